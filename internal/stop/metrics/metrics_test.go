// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// collector exports the stops of one object.
type collector struct {
	*Gauges
	stops stoprecord.Records
}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	c.CollectStop(ch, &metav1.ObjectMeta{Namespace: "ns", Name: "x"}, "machines", c.stops)
}

func TestStopsThatGoOnAreShown(t *testing.T) {
	t.Parallel()
	since, until := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	const shownSince, shownUntil = `torpor_stop_since_timestamp_seconds{kind="K",name="x",namespace="ns",part="machines"} 1000`, `torpor_stop_until_timestamp_seconds{kind="K",name="x",namespace="ns",part="machines"} 2000`
	for name, test := range map[string]struct {
		stop torporv1alpha1.StopRecord
		want []string
	}{
		"a stop without an end exports its start":          {torporv1alpha1.StopRecord{Since: since, Requested: true}, []string{shownSince}},
		"a stop with an end exports its start and its end": {torporv1alpha1.StopRecord{Since: since, Until: &until, Requested: true}, []string{shownSince, shownUntil}},
		"an expired stop has no metrics":                   {torporv1alpha1.StopRecord{Since: since, Until: &until, EndedAt: &until, Requested: true}, nil},
		"a stop that a user ended has no metrics":          {torporv1alpha1.StopRecord{Since: since, EndedAt: &until}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewPedanticRegistry()
			// A second kind can register the same gauges.
			registry.MustRegister(collector{NewGauges("K"), stoprecord.Records{test.stop}}, collector{NewGauges("Other"), nil})
			found, err := testutil.GatherAndCount(registry)
			if err != nil || found != len(test.want) {
				t.Errorf("expected %d series, found %d (%v)", len(test.want), found, err)
			}
			for _, line := range test.want {
				metric, _, _ := strings.Cut(line, "{")
				if err := testutil.GatherAndCompare(registry, strings.NewReader("# HELP "+metric+" "+helpOf(t, registry, metric)+"\n# TYPE "+metric+" gauge\n"+line+"\n"), metric); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func helpOf(t *testing.T, registry prometheus.Gatherer, metric string) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == metric {
			return f.GetHelp()
		}
	}
	return ""
}
