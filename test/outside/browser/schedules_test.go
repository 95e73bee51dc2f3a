// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func buildSlumber(name, zone, sleep, wake string) *torporv1alpha1.Slumber {
	return &torporv1alpha1.Slumber{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: torporv1alpha1.SlumberSpec{
			TimeZone: zone, Windows: []torporv1alpha1.SlumberWindow{{Sleep: sleep, Wake: wake}}, Reason: "nobody works at night",
			Waves: []torporv1alpha1.SlumberWave{{Name: "databases", Targets: []torporv1alpha1.SlumberTarget{{Kind: "MySQLCluster"}}}},
		},
	}
}

// createSchedules creates schedules in all states. No controller runs: the statuses are what it would write.
func (e *pageEnv) createSchedules(t *testing.T) {
	t.Helper()
	for name, status := range map[string]torporv1alpha1.SlumberStatus{
		"nights":  {State: torporv1alpha1.SlumberAwake, Members: 3, Waves: []torporv1alpha1.SlumberWaveStatus{{Name: "databases", Members: 3}}},
		"tokyo":   {State: torporv1alpha1.SlumberAsleep, Members: 4, Asleep: 4},
		"waiting": {State: torporv1alpha1.SlumberFallingAsleep, Members: 9, Asleep: 8, Waves: []torporv1alpha1.SlumberWaveStatus{{Name: "databases", ShouldSleep: true, Members: 9, Asleep: 8, WaitsFor: "MySQLCluster dba (a backup runs)"}}},
		"broken": {State: torporv1alpha1.SlumberInvalid, Conditions: []metav1.Condition{{
			Type: torporv1alpha1.SlumberStalledCondition, Status: metav1.ConditionTrue, Reason: "InvalidSchedule", LastTransitionTime: metav1.Now(),
			Message: "Nothing is stopped or started: spec.timeZone: expected the name of a time zone such as Europe/Berlin, found <img src=x onerror=window.hacked=1>; correct it",
		}}},
	} {
		s := buildSlumber(name, map[string]string{"tokyo": "Asia/Tokyo"}[name], "0 19 * * MON-FRI", "0 7 * * MON-FRI")
		if s.Spec.TimeZone == "" {
			s.Spec.TimeZone = "Europe/Berlin"
		}
		e.ExpectCreated(t, s)
		status.ObservedGeneration = s.Generation
		s.Status = status
		testenv.ExpectNoError(t, e.Client.Status().Update(t.Context(), s))
	}
	e.ExpectCreated(t, &torporv1alpha1.ClusterSlumber{
		ObjectMeta: metav1.ObjectMeta{Name: "weekends"},
		Spec: torporv1alpha1.ClusterSlumberSpec{
			SlumberSpec: buildSlumber("", "America/New_York", "0 0 * * SAT", "0 0 * * MON").Spec, NamespaceSelector: metav1.LabelSelector{MatchLabels: map[string]string{"environment": "development"}},
		},
	})
	e.ExpectCreated(t,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "planner"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"create"}, APIGroups: []string{torporv1alpha1.GroupVersion().Group}, Resources: []string{"slumbers"}}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "planner"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "planner"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: metav1.NamespaceDefault, Name: "alice"}},
		})
}

// TestSchedulesInChromium goes through the Schedules tab as a user does, on a wide screen and on a phone.
func TestSchedulesInChromium(t *testing.T) {
	findChromium(t)
	e := newPageEnv(t)
	e.createFleet(t)
	e.createSchedules(t)
	b := openTab(t)
	b.preferColors(t, "light")
	b.logIn(t, e)
	b.do(t, "open the tab", chromedp.Click(`.views a[href="schedules"]`), chromedp.WaitVisible("#schedules"))
	b.waitFor(t, "all schedules are listed", `document.querySelectorAll("article").length === 5`)
	testenv.ExpectEqual(t, "the invalid schedule comes first", "Slumber default/broken", evaluate[string](t, b, `document.querySelector("article").dataset.key`))
	testenv.ExpectEqual(t, "images made by a message", 0, evaluate[int](t, b, `document.querySelectorAll("#schedules img").length`))
	b.do(t, "search", chromedp.Navigate(e.url+"schedules?q=asleep"), chromedp.WaitVisible("#schedules"))
	testenv.ExpectEqual(t, "schedules that are or fall asleep", 2, evaluate[int](t, b, `document.querySelectorAll("article").length`))
	b.do(t, "open their details", run(`document.querySelectorAll("article details").forEach((e) => { e.open = true; })`))
	b.photograph(t, "schedules")
	b.do(t, "go back to all", chromedp.Navigate(e.url+"schedules"), chromedp.WaitVisible("#schedules"))
	for _, width := range []int{1440, 390} {
		b.do(t, fmt.Sprintf("%d pixels", width), chromedp.EmulateViewport(int64(width), 860))
		for _, scheme := range []string{"dark", "light"} {
			b.preferColors(t, scheme)
			b.expectReadable(t, fmt.Sprintf("%s at %d pixels", scheme, width))
			b.photograph(t, fmt.Sprintf("schedules-%d-%s", width, scheme))
		}
		expectAccessibleSchedules(t, b, width)
		for name, step := range map[string]func(*testing.T, *pageEnv, *tab, int){
			"a schedule is created from the form": testScheduleIsCreated,
			"objects are kept awake":              testObjectsAreKeptAwake,
		} {
			t.Run(fmt.Sprintf("%s at %d pixels", name, width), func(t *testing.T) { step(t, e, b, width) })
		}
	}
	b.expectNoComplaints(t)
}

func expectAccessibleSchedules(t *testing.T, b *tab, width int) {
	t.Helper()
	b.do(t, "open all details", run(`document.querySelectorAll("details").forEach((e) => { e.open = true; })`))
	b.expectReadable(t, fmt.Sprintf("details at %d pixels", width))
	b.photograph(t, fmt.Sprintf("schedules-%d-details", width))
	for what, expression := range map[string]string{
		"controls without a name":                      `[...document.querySelectorAll("button, input:not([type=hidden]), select, a, summary")].filter((e) => e.checkVisibility() && !(e.ariaLabel || e.innerText.trim() || e.labels?.length || e.textContent.trim())).length`,
		"tables without a caption":                     `[...document.querySelectorAll("table")].filter((e) => !e.caption?.textContent).length`,
		"rows without a row header":                    `[...document.querySelectorAll(".week tbody tr")].filter((e) => e.firstElementChild.scope !== "row").length`,
		"days without text":                            `[...document.querySelectorAll(".week tbody td:last-child")].filter((e) => !e.innerText.trim()).length`,
		"bars that are not hidden from screen readers": `document.querySelectorAll(".week svg:not([aria-hidden=true])").length`,
		"duplicate ids":                                `(() => { const ids = [...document.querySelectorAll("[id]")].map((e) => e.id); return ids.length - new Set(ids).size; })()`,
		"forms with the same accessible name":          `(() => { const names = [...document.querySelectorAll("form.awake")].map((e) => e.ariaLabel); return names.length - new Set(names).size; })()`,
		"pixels beyond the width of the window":        `Math.max(0, document.documentElement.scrollWidth - innerWidth)`,
		"buttons below 24 pixels":                      `[...document.querySelectorAll("button, summary, .check")].filter((e) => e.checkVisibility() && e.getBoundingClientRect().height < 24).length`,
	} {
		testenv.ExpectEqual(t, fmt.Sprintf("%s at %d pixels", what, width), 0, evaluate[int](t, b, expression))
	}
	b.do(t, "load the tab", chromedp.Reload(), chromedp.WaitVisible("#schedules"))
}

func testScheduleIsCreated(t *testing.T, e *pageEnv, b *tab, width int) {
	name := "form-" + strconv.Itoa(width)
	b.do(t, "open the form", chromedp.Click("#create > summary"), chromedp.WaitVisible("#create input[name=name]"))
	if zone := evaluate[string](t, b, `document.querySelector("#create input[name=zone]").value`); zone == "" {
		t.Error("expected the time zone of the browser, found none")
	}
	b.do(t, "fill in an invalid form", chromedp.SendKeys("#create input[name=name]", name), chromedp.SendKeys("#create input[name=namespace]", "default"),
		chromedp.SetValue("#create input[name=zone]", "Europe/Atlantis"), chromedp.Click(`#create input[value=MySQLCluster]`),
		chromedp.Click("#create button[type=submit]"), chromedp.WaitVisible(".error[role=alert]"))
	b.waitFor(t, "the error is shown and the form is kept", `document.querySelector(".error[role=alert]")?.innerText.includes("Europe/Atlantis") && document.querySelector("#create input[name=name]").checkVisibility()`)
	b.do(t, "correct the zone", chromedp.SetValue("#create input[name=zone]", "Europe/Berlin"), chromedp.Click("#create button[type=submit]"), chromedp.WaitVisible("#preview"))
	b.waitFor(t, "the preview is shown", `document.querySelector("#preview pre")?.innerText.includes("sleep: 0 19 * * MON-FRI")`)
	testenv.ExpectEqual(t, "changes of the preview", 10, evaluate[int](t, b, `document.querySelectorAll("#preview .changes li").length`))
	b.expectReadable(t, fmt.Sprintf("the preview at %d pixels", width))
	testenv.ExpectEqual(t, "pixels beyond the width of the window", 0, evaluate[int](t, b, `Math.max(0, document.documentElement.scrollWidth - innerWidth)`))
	b.photograph(t, fmt.Sprintf("schedules-%d-preview", width))
	s := &torporv1alpha1.Slumber{}
	if err := e.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, s); err == nil {
		t.Error("expected no Slumber before the answer, found one")
	}
	b.do(t, "create it", chromedp.Click("#preview button[type=submit]"), chromedp.WaitVisible(".done"))
	b.waitFor(t, "the result is shown", fmt.Sprintf(`document.querySelector(".done")?.innerText.includes("The Slumber %s was created")`, name))
	b.waitFor(t, "the schedule is listed without a reload", fmt.Sprintf(`document.querySelector('article[data-key="Slumber default/%s"]') !== null`, name))
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, s))
}

func testObjectsAreKeptAwake(t *testing.T, e *pageEnv, b *tab, width int) {
	form := `article[data-key="Slumber default/nights"] form.awake`
	b.do(t, "open the tab", chromedp.Navigate(e.url+"schedules"), chromedp.WaitVisible(form))
	b.do(t, "ask", chromedp.SendKeys(form+" input[name=until]", "monday 9:00"), chromedp.Click(form+" button"), chromedp.WaitVisible("main > form button.primary"))
	b.waitFor(t, "the question names the end and the objects", `document.querySelector("main h2").innerText.match(/awake until Mon [0-9-]+ 09:00 CES?T\?/) && document.querySelector("main ul").innerText.includes("MySQLCluster")`)
	b.expectReadable(t, "the question")
	b.photograph(t, fmt.Sprintf("schedules-%d-awake", width))
	b.do(t, "answer", chromedp.Click("main > form button.primary"), chromedp.WaitVisible(".done"))
	b.waitFor(t, "the result is shown", `document.querySelector(".done")?.innerText.includes("are kept awake until Mon")`)
	all := &mocov1beta2.MySQLClusterList{}
	testenv.ExpectNoError(t, e.Client.List(t.Context(), all, client.InNamespace(metav1.NamespaceDefault)))
	for i := range all.Items {
		if until := all.Items[i].Annotations[torporv1alpha1.SkipUntilAnnotation]; !strings.HasSuffix(until, ":00:00Z") {
			t.Errorf("%s: expected the annotation of a skip, found %q", all.Items[i].Name, until)
		}
	}
}

const manySchedules = 300

// createManySchedules creates Slumbers.
func (e *pageEnv) createManySchedules(t *testing.T) {
	t.Helper()
	var writers errgroup.Group
	writers.SetLimit(8)
	for i := range manySchedules {
		writers.Go(func() error {
			return e.Client.Create(t.Context(), buildSlumber("nights-"+strconv.Itoa(i), "Europe/Berlin", "0 19 * * MON-FRI", "0 7 * * MON-FRI"))
		})
	}
	testenv.ExpectNoError(t, writers.Wait())
}

// TestBenchSchedules measures how soon the tab is painted if there are many schedules.
func TestBenchSchedules(t *testing.T) {
	if os.Getenv("TORPOR_BENCH") == "" {
		t.Skip("TORPOR_BENCH is not set: expected `make bench NAME=page`")
	}
	findChromium(t)
	e := newPageEnv(t)
	e.createManySchedules(t)
	b := openTab(t)
	b.logIn(t, e)
	b.do(t, "open the tab", chromedp.Navigate(e.url+"schedules"), chromedp.WaitVisible("#schedules"))
	testenv.ExpectEqual(t, "the number of schedules", true, evaluate[bool](t, b, `document.getElementById("pager").innerText.includes("of 300")`))
	var paints []float64
	for range 15 {
		b.do(t, "load the tab", chromedp.Reload())
		b.waitFor(t, "the tab is painted", `performance.getEntriesByName("first-contentful-paint").length > 0`)
		paints = append(paints, evaluate[float64](t, b, `performance.getEntriesByName("first-contentful-paint")[0].startTime / 1000`))
	}
	slices.Sort(paints)
	bytes := evaluate[float64](t, b, `performance.getEntriesByType("navigation")[0].decodedBodySize`)
	t.Logf("first paint: median %.3f s, worst %.3f s; %.0f bytes", paints[len(paints)/2], paints[len(paints)-1], bytes)
	testenv.SaveFigures(t, "schedules.json", map[string]float64{
		"page_schedules_first_paint_seconds": paints[len(paints)/2], "page_schedules_first_paint_worst_seconds": paints[len(paints)-1], "page_schedules_bytes": bytes,
	})
}
