// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const spreadOver = time.Hour

// turn returns the time at which a cluster is stopped or started if its wave began at the given time.
func (s *story) turn(name string, began time.Time) time.Time {
	return began.Add(slumber.SpreadOffset(s.clusters[name].UID, spreadOver))
}

// sortByTurn returns the names of clusters in the order of their turns.
func (s *story) sortByTurn(names ...string) []string {
	slices.SortFunc(names, func(a, b string) int { return s.turn(a, time.Time{}).Compare(s.turn(b, time.Time{})) })
	return names
}

// change advances the time and has a user change the reason. The observed generation then shows that a pass has run at
// this time.
func (s *story) change(t *testing.T, now time.Time) {
	t.Helper()
	s.clock.SetTime(now)
	reason := fmt.Appendf(nil, `{"spec": {"reason": "at %s"}}`, now.Format(time.TimeOnly))
	testenv.ExpectNoError(t, s.Client.Patch(t.Context(), s.slumber, client.RawPatch(types.MergePatchType, reason)))
}

// waitForWave waits until the status records the time at which the stop or start of a wave began. Turns count from this
// time.
func (s *story) waitForWave(t *testing.T, wave int, shouldSleep bool) {
	t.Helper()
	s.WaitFor(t, fmt.Sprintf("wave %d is to sleep: %t", wave, shouldSleep), s.slumber, func() error {
		is := s.slumber.Status.Waves[wave]
		return testenv.ErrorIf(is.ShouldSleep != shouldSleep, "found %+v", is)
	})
}

// TestSpreadOverDelaysEachStop follows a night with spec.spreadOver: each cluster of the first wave is stopped at
// its turn and not a second earlier, even by another manager. The second wave follows the first. Starts in the
// morning are spread, too.
func TestSpreadOverDelaysEachStop(t *testing.T) {
	s := newStory(t)
	spread := fmt.Appendf(nil, `{"spec": {"spreadOver": %q}}`, spreadOver)
	testenv.ExpectNoError(t, s.Client.Patch(t.Context(), s.slumber, client.RawPatch(types.MergePatchType, spread)))
	stop := s.startManager(t)
	s.waitFor(t, "all are awake", torporv1alpha1.SlumberAwake)

	evening := beforeNight().Add(time.Hour)
	s.moveTo(t, evening)
	s.waitForWave(t, 0, true)
	order := s.sortByTurn("blog", "shop")
	var stopped []string
	for _, name := range order {
		if turn := s.turn(name, evening); turn.After(s.clock.Now()) {
			s.change(t, turn.Add(-time.Second))
			s.waitFor(t, "the turn of "+name+" has not come", torporv1alpha1.SlumberFallingAsleep, stopped...)
			stop()
			stop = s.startManager(t)
			s.moveTo(t, turn)
		}
		stopped = nil // Two clusters may have the same turn.
		for _, other := range []string{"blog", "shop"} {
			if !s.turn(other, evening).After(s.clock.Now()) {
				stopped = append(stopped, other)
			}
		}
		s.waitFor(t, "the turn of "+name, torporv1alpha1.SlumberFallingAsleep, stopped...)
		if record := s.clusters[name].Status.ScheduledStops[0].Stops[0]; !record.Since.Time.Equal(s.turn(name, evening)) || !record.Until.Time.Equal(s.turn(name, evening.Add(11*time.Hour))) {
			t.Errorf("%s: expected a stop from its turn in the evening to its turn in the morning, found %+v", name, record)
		}
	}
	s.finish(t, "blog")
	s.finish(t, "shop")
	s.waitForWave(t, 1, true)
	s.moveTo(t, s.clock.Now().Add(spreadOver))
	s.waitFor(t, "the databases follow", torporv1alpha1.SlumberFallingAsleep, "blog", "shop", "store")
	s.finish(t, "store")
	s.waitFor(t, "all sleep", torporv1alpha1.SlumberAsleep, "blog", "shop", "store")

	morning := evening.Add(11 * time.Hour)
	s.moveTo(t, morning)
	s.waitForWave(t, 1, false)
	if turn := s.turn("store", morning); turn.After(morning) {
		s.change(t, turn.Add(-time.Second))
		s.waitFor(t, "the turn of the database has not come", torporv1alpha1.SlumberWakingUp, "blog", "shop", "store")
		s.moveTo(t, turn)
	}
	s.waitFor(t, "the turn of the database", torporv1alpha1.SlumberWakingUp, "blog", "shop")
	s.finish(t, "store")
	// The first wave begins to wake now. A skip by a user takes effect before the cluster's turn.
	woken := s.clock.Now()
	s.waitForWave(t, 0, false)
	last := order[1]
	s.annotate(t, s.clusters[last], torporv1alpha1.SkipUntilAnnotation, woken.Add(spreadOver).Format(time.RFC3339))
	s.WaitFor(t, "a skipped cluster does not wait", s.clusters[last], func() error {
		return testenv.ErrorIf(s.isWanted(s.clusters[last]), "found %+v", s.clusters[last].Status.ScheduledStops)
	})
	s.moveTo(t, woken.Add(spreadOver))
	s.waitFor(t, "all turns have come", torporv1alpha1.SlumberWakingUp)
	s.finish(t, "blog")
	s.finish(t, "shop")
	s.waitFor(t, "all are awake again", torporv1alpha1.SlumberAwake)
	stop()
}

// TestClusterSlumberSpreadsStops has Deployments in two namespaces, each of which is scaled down at its own turn.
func TestClusterSlumberSpreadsStops(t *testing.T) {
	s := newClusterStory(t)
	spread := fmt.Appendf(nil, `{"spec": {"spreadOver": %q}}`, spreadOver)
	testenv.ExpectNoError(t, s.Client.Patch(t.Context(), s.slumber, client.RawPatch(types.MergePatchType, spread)))
	var keys []client.ObjectKey
	for range 2 {
		namespace := s.addNamespace(t, nil)
		for _, name := range []string{"a", "b"} {
			keys = append(keys, s.addDeployment(t, namespace, name, 2, nil))
		}
	}
	stop := s.startManager(t)
	evening := beforeNight().Add(time.Hour)
	turns := map[client.ObjectKey]time.Time{}
	for _, key := range keys {
		var d appsv1.Deployment
		testenv.ExpectNoError(t, s.Client.Get(t.Context(), key, &d))
		turns[key] = evening.Add(slumber.SpreadOffset(d.UID, spreadOver))
	}
	slices.SortFunc(keys, func(a, b client.ObjectKey) int { return turns[a].Compare(turns[b]) })
	s.WaitFor(t, "the ClusterSlumber has members", s.slumber, func() error {
		return testenv.ErrorIf(int(s.slumber.Status.Members) != len(keys), "found %+v", s.slumber.Status)
	})
	s.moveTo(t, evening)
	s.WaitFor(t, "the wave begins", s.slumber, func() error {
		return testenv.ErrorIf(!s.slumber.Status.Waves[0].ShouldSleep, "found %+v", s.slumber.Status)
	})
	for i, key := range keys {
		s.moveTo(t, turns[key])
		testenv.Eventually(t, "the turn of "+key.String(), func() error {
			for j, other := range keys {
				var d appsv1.Deployment
				if err := s.Client.Get(t.Context(), other, &d); err != nil {
					return fmt.Errorf("read: %w", err)
				}
				isDue := !turns[other].After(turns[key])
				if isStopped := *d.Spec.Replicas == 0; isStopped != isDue {
					return fmt.Errorf("expected Deployment %d at step %d to be stopped: %t, found %t", j, i, isDue, isStopped)
				}
			}
			return nil
		})
	}
	stop()
}

// TestSpreadAtAdmission has values of spec.spreadOver and the error of a real API server.
func TestSpreadAtAdmission(t *testing.T) {
	env := shared.Get(t)
	namespace := env.CreateNamespace(t)
	for name, row := range map[string]struct {
		over    time.Duration
		refusal string
	}{
		"spreadOver of zero: accepted":                {0, ""},
		"spreadOver of fifteen minutes: accepted":     {15 * time.Minute, ""},
		"spreadOver of four hours: accepted":          {4 * time.Hour, ""},
		"spreadOver of more than four hours: refused": {4*time.Hour + time.Second, "expected a duration from 0s to 4h"},
		"a negative spreadOver: refused":              {-time.Second, "expected a duration from 0s to 4h"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := sleepAt("0 20 * * *")
			spec.SpreadOver = &metav1.Duration{Duration: row.over}
			spec.Waves = []torporv1alpha1.SlumberWave{{Name: "all", Targets: []torporv1alpha1.SlumberTarget{{Kind: "Deployment"}}}}
			s := &torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nights"}, Spec: spec}
			testenv.ExpectRefused(t, env.Client.Create(t.Context(), s, client.DryRunAll), row.refusal)
			of := &torporv1alpha1.ClusterSlumber{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: torporv1alpha1.ClusterSlumberSpec{SlumberSpec: spec}}
			testenv.ExpectRefused(t, env.Client.Create(t.Context(), of, client.DryRunAll), row.refusal)
		})
	}
}
