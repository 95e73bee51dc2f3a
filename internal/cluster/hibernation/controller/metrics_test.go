// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// silentCloud never answers, so passes do not finish.
type silentCloud struct{ actuator.Actuator }

// Observe implements actuator.Actuator.
func (silentCloud) Observe(ctx context.Context, _ actuator.Target) ([]actuator.Machine, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestMetricsSurviveARestartAndEndWithTheObject(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	stop := e.startManager(t, clouds())
	hibernated, running := e.newCluster(t, func(r *clusterSetup) { r.cd.Spec.PowerState = hivev1.PowerStateHibernating }), e.newCluster(t, nil)
	hibernated.awaitSettled(t, hivev1.PowerStateHibernating)
	running.awaitSettled(t, hivev1.PowerStateRunning)
	states := map[string]string{hibernated.key.Namespace: "Hibernating", running.key.Namespace: "Running"}
	e.awaitMetric(t, "torpor_cluster_power_state", states)
	e.awaitMetric(t, "torpor_cluster_transitions_total", map[string]string{"Stopping": "1", "Hibernating": "1"})

	stop()
	before := e.counts.all()
	e.startManager(t, map[string]actuator.Actuator{"aws": silentCloud{}})
	e.awaitMetric(t, "torpor_cluster_power_state", states)
	for key, c := range e.counts.all() {
		if c.writes != before[key].writes {
			t.Errorf("%s: the status was written after the restart", key)
		}
	}

	if err := e.Client.Delete(t.Context(), hibernated.get(t)); err != nil {
		t.Fatal(err)
	}
	delete(states, hibernated.key.Namespace)
	e.awaitMetric(t, "torpor_cluster_power_state", states)
}

// awaitMetric waits until a metric has exactly these series: power states by namespace, or counts by reason or kind.
func (e *env) awaitMetric(t *testing.T, name string, want map[string]string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(e.metrics); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, name, func() error {
		families, err := registry.Gather()
		if err != nil {
			return fmt.Errorf("gather: %w", err)
		}
		got := map[string]string{}
		for _, family := range families {
			if family.GetName() != name {
				continue
			}
			for _, m := range family.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				if m.GetGauge() != nil {
					got[labels["namespace"]] = labels["power_state"]
				} else {
					got[labels["reason"]+labels["kind"]] = fmt.Sprint(m.GetCounter().GetValue())
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

// TestMetricsCountStopsAndStarts hibernates a cluster while its account throttles for a moment, and resumes it with
// one machine missing.
func TestMetricsCountStopsAndStarts(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.startManager(t, clouds())
	s := e.newCluster(t, func(r *clusterSetup) { r.cloud = testenv.StartCloud(t) })
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.cloud.InjectFault(t, testenv.CloudFault{Code: "RequestLimitExceeded"})
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "Unknown", hivev1.CloudThrottledReason, nil})
	s.cloud.ClearFaults(t)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	s.cloud.InjectFault(t, testenv.CloudFault{Action: "StartInstances", Code: "InsufficientInstanceCapacity", Message: "No room.", InstanceIDs: s.ids[1:]})
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterDegradedCondition, "True", hivev1.MachinesMissingReason, nil})

	name := "name=" + s.key.Name + " namespace=" + s.key.Namespace
	e.awaitSeries(t, "torpor_cluster_trouble condition=Degraded "+name, "torpor_cluster_power_state "+name+" power_state=Running")
	s.cloud.ClearFaults(t)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterDegradedCondition, "False", hivev1.AsExpectedReason, nil})
	s.awaitSettled(t, hivev1.PowerStateRunning)
	e.awaitSeries(t,
		"torpor_cluster_transition_seconds transition=hibernate", "torpor_cluster_transition_seconds transition=resume",
		"torpor_cloud_operations_total account=one error= operation=look", "torpor_cloud_operations_total account=one error=throttled operation=look",
		"torpor_cloud_operations_total account=one error= operation=stop", "torpor_cloud_operations_total account=one error= operation=start",
		"torpor_cluster_probes_total answered=true",
	)
}

// awaitSeries waits until series have values other than zero.
func (e *env) awaitSeries(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		testenv.Eventually(t, name, func() error {
			all := e.gatherMetrics(t)
			return testenv.ErrorIf(all[name] == 0, "found %v", all)
		})
	}
}

// gatherMetrics returns the values of all series, and the counts of histograms, by name and labels. The account label
// is always "one".
func (e *env) gatherMetrics(t *testing.T) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	testenv.ExpectNoError(t, registry.Register(e.metrics))
	families, err := registry.Gather()
	testenv.ExpectNoError(t, err)
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			series := family.GetName()
			for _, l := range m.GetLabel() {
				value := l.GetValue()
				if l.GetName() == "account" && value != "" {
					value = "one" // The test has a single account.
				}
				series += " " + l.GetName() + "=" + value
			}
			all[series] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// TestTransitionsAreTimed checks the transitions that new records complete.
func TestTransitionsAreTimed(t *testing.T) {
	at := func(seconds int64) *metav1.Time { return new(metav1.Unix(seconds, 0)) }
	stopping := &hivev1.HibernationRecord{SleepStartedAt: *at(100)}
	asleep := &hivev1.HibernationRecord{SleepStartedAt: *at(100), AsleepAt: at(130)}
	waking := &hivev1.HibernationRecord{SleepStartedAt: *at(100), AsleepAt: at(130), ResumeStartedAt: at(200)}
	awake := &hivev1.HibernationRecord{SleepStartedAt: *at(100), AsleepAt: at(130), ResumeStartedAt: at(200), ResumedAt: at(245)}
	for name, row := range map[string]struct {
		before, after *hivev1.HibernationRecord
		want          []finishedTransition
	}{
		"cluster that never hibernated is not timed": {nil, nil, nil},
		"start of a hibernation is not timed":        {nil, stopping, nil},
		"complete hibernation is timed":              {stopping, asleep, []finishedTransition{{"hibernate", 30 * time.Second}}},
		"hibernating cluster is not timed":           {asleep, asleep, nil},
		"start of a resume is not timed":             {asleep, waking, nil},
		"complete resume is timed":                   {waking, awake, []finishedTransition{{"resume", 45 * time.Second}}},
		"running cluster is not timed":               {awake, awake, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(row.want, finishedTransitions(row.before, row.after), cmp.AllowUnexported(finishedTransition{})); diff != "" {
				t.Errorf("transitions (-want +got):\n%s", diff)
			}
		})
	}
}
