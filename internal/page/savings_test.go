// SPDX-License-Identifier: Apache-2.0

package page

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/stop/savings"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// writePrices writes the keys of a ConfigMap in the way the kubelet mounts them.
func writePrices(t *testing.T, keys map[string]string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	testenv.ExpectNoError(t, os.Mkdir(filepath.Join(folder, "..data"), 0o700))
	for key, text := range keys {
		testenv.ExpectNoError(t, os.WriteFile(filepath.Join(folder, key), []byte(text), 0o600))
	}
	return folder
}

func TestPricesAreReadFromAConfigMap(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		keys          map[string]string
		text, problem string
	}{
		"ConfigMap without keys: no price is set":                                   {nil, "", ""},
		"ConfigMap with some of the keys: the description lists the missing prices": {map[string]string{"machineHour": "0.38\n", "currency": "EUR"}, "Amounts are at current prices: 0.38 EUR per machine-hour. Without a price: CPU-hour, GiB-hour.", ""},
		"ConfigMap with all keys: the description lists all prices":                 {map[string]string{"machineHour": "1", "cpuHour": "0.031", "gibHour": "0", "currency": "€", "ownerLabel": "example.com/team"}, "Amounts are at current prices: 1 € per machine-hour, 0.031 € per CPU-hour, 0 € per GiB-hour.", ""},
		"price with a comma: rejected":                                              {map[string]string{"cpuHour": "0,03"}, "", `cpuHour: expected a price such as 0.38, found "0,03"`},
		"negative price: rejected":                                                  {map[string]string{"cpuHour": "-1"}, "", `cpuHour: expected a price`},
		"price that is not a number: rejected":                                      {map[string]string{"gibHour": "NaN"}, "", `gibHour: expected a price`},
		"price above the maximum: rejected":                                         {map[string]string{"gibHour": "1e12"}, "", `gibHour: expected a price`},
		"overlong price: rejected":                                                  {map[string]string{"gibHour": strings.Repeat(" ", maxPriceBytes) + "1"}, "", "gibHour: expected at most 1024 bytes"},
		"misspelled key: rejected":                                                  {map[string]string{"machinehour": "1"}, "", "machinehour: expected one of the keys machineHour, cpuHour"},
		"currency of several words: rejected":                                       {map[string]string{"currency": "of our bank"}, "", "currency: expected a currency such as EUR"},
		"invalid owner label: rejected":                                             {map[string]string{"ownerLabel": "a team"}, "", `ownerLabel: expected the name of a label, found "a team"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := readPrices(writePrices(t, row.keys))
			if row.problem == "" {
				testenv.ExpectNoError(t, err)
			} else if err == nil || !strings.Contains(err.Error(), row.problem) {
				t.Errorf("expected %q, found %v", row.problem, err)
			}
			testenv.ExpectEqual(t, "the description", row.text, p.describe())
		})
	}
	if p, err := readPrices(filepath.Join(t.TempDir(), "missing")); err != nil || p.areSet() {
		t.Errorf("expected no prices and no error without the ConfigMap, found %+v and %v", p, err)
	}
}

// TestSavingsAreSummed covers objects in two namespaces and of two owners, and objects without an owner or without
// savings.
func TestSavingsAreSummed(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	monday := savings.WeekOf(now)
	at := func(of time.Time) *metav1.Time { return new(metav1.NewTime(of)) }
	week := func(begin time.Time, cpuHours int64) torporv1alpha1.WeekSavings {
		return torporv1alpha1.WeekSavings{Begin: metav1.NewTime(begin), CPUMilliSeconds: cpuHours * 3600 * 1000}
	}
	matching := []*listedSwitch{
		{Row: kinds.Row{Namespace: "shop", Stopped: true}, labels: map[string]string{"team": "blue"}, savings: kinds.Savings{Recorded: &torporv1alpha1.Savings{Since: at(monday.Add(-12 * time.Hour)), Machines: 2}}},
		{Row: kinds.Row{Namespace: "shop"}, labels: map[string]string{"team": "red"}, savings: kinds.Savings{Recorded: &torporv1alpha1.Savings{CPUMilliSeconds: 30 * 3600 * 1000, Weeks: []torporv1alpha1.WeekSavings{week(monday, 4), week(monday.AddDate(0, 0, -7), 6)}}}},
		{Row: kinds.Row{Namespace: "mail"}, savings: kinds.Savings{Recorded: &torporv1alpha1.Savings{CPUMilliSeconds: 3600 * 1000, Weeks: []torporv1alpha1.WeekSavings{week(monday, 1)}}}},
		{Row: kinds.Row{Namespace: "mail", Stopped: true}},
		{Row: kinds.Row{Namespace: "mail"}},
	}
	describe := func(rows []savedRow) string {
		var text []string
		for _, r := range rows {
			text = append(text, fmt.Sprintf("%s %d: %.0f+%.0f", r.Name, r.Objects, r.totals.MachineSeconds/3600, r.totals.CPUSeconds/3600))
		}
		return strings.Join(text, "; ")
	}
	set := prices{cpuHour: new(10.0), machineHour: new(0.01), ownerLabel: "team"}
	for week, row := range map[string]struct{ period, namespaces, owners string }{
		"":           {"Week of 23 Nov 2026", "shop 2: 72+4; mail 1: 0+1", "red 1: 0+4;  1: 0+1; blue 1: 72+0"},
		"nonsense":   {"Week of 23 Nov 2026", "shop 2: 72+4; mail 1: 0+1", "red 1: 0+4;  1: 0+1; blue 1: 72+0"},
		"2026-11-16": {"Week of 16 Nov 2026", "shop 2: 24+6", "red 1: 0+6; blue 1: 24+0"},
		"2026-11-09": {"Week of 9 Nov 2026", "", ""},
		allWeeks:     {"All recorded stops", "shop 2: 96+30; mail 1: 0+1", "red 1: 0+30;  1: 0+1; blue 1: 96+0"},
	} {
		v := composeSavings(view{matching: matching}, set, url.Values{"week": {week}}, now)
		if found := describe(v.ByNamespace); v.Period != row.period || found != row.namespaces || describe(v.ByOwner) != row.owners {
			t.Errorf("%s: expected %q, %q and %q, found %q, %q and %q", week, row.period, row.namespaces, row.owners, v.Period, found, describe(v.ByOwner))
		}
		if v.Uncounted != 1 {
			t.Errorf("%s: expected one stopped object without figures, found %d", week, v.Uncounted)
		}
	}
	v := composeSavings(view{matching: matching}, prices{}, nil, now)
	want := "Week of 23 Nov 2026 3: 72+5; Week of 16 Nov 2026 2: 24+6; Week of 9 Nov 2026 0: 0+0; Week of 2 Nov 2026 0: 0+0; Week of 26 Oct 2026 0: 0+0; All recorded stops 3: 96+31"
	testenv.ExpectEqual(t, "the weeks", want, describe(v.Weeks))
	testenv.ExpectEqual(t, "owners without a label", 0, len(v.ByOwner))
	testenv.ExpectEqual(t, "an amount", "1,234.50 EUR", prices{currency: "EUR"}.formatAmount(1234.5))
}

// TestSavingsAreThoseOfTheCaller covers a stopped Deployment of the caller, and a cluster that the caller may not list.
func TestSavingsAreThoseOfTheCaller(t *testing.T) {
	e := shared.Get(t)
	ours, others := e.CreateNamespace(t), e.CreateNamespace(t)
	now := time.Now()
	saved, err := savings.FormatAnnotation(&torporv1alpha1.Savings{CPUMilliSeconds: 7200 * 1000, MemoryKiBSeconds: 3 << 20 * 3600})
	testenv.ExpectNoError(t, err)
	e.createDeployment(t, ours, "web", map[string]string{torporv1alpha1.SavingsAnnotation: saved, torporv1alpha1.StoppedAnnotation: "true"})
	cluster := buildCluster(others, "theirs")
	e.ExpectCreated(t, cluster)
	before := client.MergeFrom(cluster.DeepCopy())
	cluster.Status.Savings = &torporv1alpha1.Savings{Since: new(metav1.NewTime(now.Add(-time.Hour))), Machines: 7}
	testenv.ExpectNoError(t, e.Client.Status().Patch(t.Context(), cluster, before))
	_, token := e.createAccount(t, ours, "viewer", "list")
	b := e.openBrowser(t)
	if status, _ := b.get(t, "/savings"); status != 401 {
		t.Errorf("expected 401 without a token, found %d", status)
	}
	b.logIn(t, token)
	b.expectShown(t, "/savings?week=all", []string{
		`<a href="savings?week=all" aria-current="true">All recorded stops</a></th><td class="number">1</td><td class="number">2.0</td><td class="number">3.0</td><td class="number">0.84 EUR</td>`,
		`<th scope="row">` + ours + `</th>`, "0.42 EUR per CPU-hour", "Without a price: machine-hour, GiB-hour.", "without the label", "All recorded stops by team", "All recorded stops by namespace",
		"Stopped objects that are not counted now, because they have no figures or are still stopping: 1.",
	}, []string{"theirs", others, "Machine-hours"})
	testenv.ExpectNoError(t, os.WriteFile(filepath.Join(e.prices, "cpuHour"), []byte("cheap"), 0o600))
	b.expectShown(t, "/savings", []string{"The ConfigMap with prices is not used: cpuHour: expected a price such as 0.38, found &#34;cheap&#34;"}, []string{" EUR", "by team"})
	testenv.ExpectNoError(t, os.WriteFile(filepath.Join(e.prices, "cpuHour"), []byte("0.42"), 0o600))
}
