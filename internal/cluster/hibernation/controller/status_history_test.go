// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/decision"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// statusHistory contains every version of a ClusterDeployment that the API server has stored.
type statusHistory struct {
	mu       sync.Mutex
	versions []*hivev1.ClusterDeployment
}

// watchHistory starts to record the versions. When the test ends, the whole history must be consistent.
func (e *env) watchHistory(t *testing.T, key client.ObjectKey) *statusHistory {
	t.Helper()
	c, err := client.NewWithWatch(e.Config, client.Options{Scheme: e.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	watcher, err := c.Watch(ctx, &hivev1.ClusterDeploymentList{}, client.InNamespace(key.Namespace))
	if err != nil {
		t.Fatal(err)
	}
	h, done := &statusHistory{}, make(chan struct{})
	go func() {
		defer close(done)
		for event := range watcher.ResultChan() {
			if cd, ok := event.Object.(*hivev1.ClusterDeployment); ok && event.Type != watch.Deleted {
				h.add(cd)
			}
		}
	}()
	t.Cleanup(func() {
		h.awaitNewest(t, e, key)
		cancel()
		watcher.Stop()
		<-done
		for _, wrong := range h.violations() {
			t.Errorf("%s: %s", key.Namespace, wrong)
		}
	})
	return h
}

func (h *statusHistory) add(cd *hivev1.ClusterDeployment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions = append(h.versions, cd)
}

func (h *statusHistory) all() []*hivev1.ClusterDeployment {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*hivev1.ClusterDeployment(nil), h.versions...)
}

func (h *statusHistory) newest() *hivev1.ClusterDeployment {
	all := h.all()
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// awaitNewest waits until the newest version is recorded, or the object is deleted.
func (h *statusHistory) awaitNewest(t *testing.T, e *env, key client.ObjectKey) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	testenv.Eventually(t, "the history is complete", func() error {
		var cd hivev1.ClusterDeployment
		if err := e.Client.Get(ctx, key, &cd); err != nil {
			return client.IgnoreNotFound(err)
		}
		if newest := h.newest(); newest == nil || newest.ResourceVersion != cd.ResourceVersion {
			return fmt.Errorf("version %s has not arrived", cd.ResourceVersion)
		}
		return nil
	})
}

// violations lists every violation of an invariant in a version, or between consecutive versions of one object.
func (h *statusHistory) violations() []string {
	var list []string
	var before *hivev1.ClusterDeployment
	for _, now := range h.all() {
		if len(now.Status.Conditions) > 0 {
			list = append(list, violationsWithin(now)...)
		}
		if before != nil && before.UID == now.UID {
			list = append(list, violationsBetween(before, now)...)
		}
		before = now
	}
	return list
}

func ownedConditions() []string {
	return []string{hivev1.ClusterHibernatingCondition, hivev1.ClusterReadyCondition, hivev1.ClusterUnreachableCondition}
}

func violationsWithin(cd *hivev1.ClusterDeployment) []string {
	var list []string
	for _, kind := range ownedConditions() {
		c := meta.FindStatusCondition(cd.Status.Conditions, kind)
		if c == nil {
			return []string{fmt.Sprintf("version %s: expected the condition %s, found none", cd.ResourceVersion, kind)}
		}
		if first := cd.Status.Conditions[0]; c.ObservedGeneration != first.ObservedGeneration {
			list = append(list, fmt.Sprintf("version %s: %s was observed at generation %d and %s at %d",
				cd.ResourceVersion, kind, c.ObservedGeneration, first.Type, first.ObservedGeneration))
		}
	}
	hibernating := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterHibernatingCondition)
	if hibernating.Status == metav1.ConditionTrue && meta.IsStatusConditionTrue(cd.Status.Conditions, hivev1.ClusterReadyCondition) {
		list = append(list, fmt.Sprintf("version %s: Hibernating and Ready are both True", cd.ResourceVersion))
	}
	derived := hibernation.DisplayedPowerState(decision.Condition{Status: hibernating.Status, Reason: hibernating.Reason})
	ready := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterReadyCondition)
	if hibernating.Reason == hivev1.ResumingOrRunningHibernationReason && cd.Status.PowerState != hivev1.RunningHibernationReason {
		derived = ready.Reason // With Hive's reasons, powerState is the step of the resume.
	} else if hibernating.Reason == hivev1.ResumingOrRunningHibernationReason {
		derived = hivev1.RunningHibernationReason
	}
	if cd.Status.PowerState != derived {
		list = append(list, fmt.Sprintf("version %s: powerState is %q, the conditions mean %q", cd.ResourceVersion, cd.Status.PowerState, derived))
	}
	return list
}

// TestSinceFollowsThePowerState goes through a hibernation and a resume. Each step takes an hour.
func TestSinceFollowsThePowerState(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	cd := &hivev1.ClusterDeployment{}
	since := func() time.Duration {
		return now.Since(meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterReadyCondition).LastTransitionTime.Time)
	}
	for _, step := range []struct {
		hibernating, ready decision.Condition
		want               time.Duration
	}{
		{decision.False(hivev1.RunningHibernationReason, "It runs"), decision.True(hivev1.RunningHibernationReason, "It runs"), 0},
		{decision.False(hivev1.RunningHibernationReason, "It runs"), decision.False(hivev1.APIUnreachableReason, "It does not answer"), 0},
		{decision.True(hivev1.StoppingHibernationReason, "It stops"), decision.False(hivev1.StoppingMachinesReason, "It stops"), 0},
		{decision.True(hivev1.StoppingHibernationReason, "It stops"), decision.False(hivev1.FailedToStopReason, "It does not"), time.Hour},
		{decision.True(hivev1.HibernatingHibernationReason, "It hibernates"), decision.False(hivev1.HibernatingHibernationReason, "It hibernates"), 0},
		{decision.True(hivev1.HibernatingHibernationReason, "It hibernates"), decision.False(hivev1.HibernatingHibernationReason, "It hibernates"), time.Hour},
		{decision.True(hivev1.ResumingHibernationReason, "It resumes"), decision.False(hivev1.StartingMachinesReason, "It resumes"), 0},
		{decision.True(hivev1.ResumingHibernationReason, "It resumes"), decision.False(hivev1.WaitingForAPIReason, "It resumes"), time.Hour},
		{decision.False(hivev1.RunningHibernationReason, "It runs"), decision.True(hivev1.RunningHibernationReason, "It runs"), 0},
	} {
		now.SetTime(now.Now().Add(time.Hour))
		owned := map[string]decision.Condition{hivev1.ClusterHibernatingCondition: step.hibernating, hivev1.ClusterReadyCondition: step.ready}
		setPowerState(cd, owned, hibernation.DisplayedPowerState(step.hibernating), now)
		if got := since(); got != step.want {
			t.Errorf("%s, %s: expected the time of Ready to be %s ago, found %s", cd.Status.PowerState, step.ready.Reason, step.want, got)
		}
	}
}

func violationsBetween(before, now *hivev1.ClusterDeployment) []string {
	var list []string
	for _, c := range before.Status.Conditions {
		next := meta.FindStatusCondition(now.Status.Conditions, c.Type)
		switch {
		case next == nil:
			list = append(list, fmt.Sprintf("version %s: the condition %s is gone", now.ResourceVersion, c.Type))
		// A status that was restored from a dump may have an observedGeneration above the generation of the new object.
		case next.ObservedGeneration < c.ObservedGeneration && c.ObservedGeneration <= before.Generation:
			list = append(list, fmt.Sprintf("version %s: observedGeneration of %s fell from %d to %d",
				now.ResourceVersion, c.Type, c.ObservedGeneration, next.ObservedGeneration))
		case c.Type == hivev1.ClusterReadyCondition && now.Status.PowerState != before.Status.PowerState: // The transition time of Ready changes with the power state.
		case next.Status == c.Status && !next.LastTransitionTime.Equal(&c.LastTransitionTime):
			list = append(list, fmt.Sprintf("version %s: %s stayed %s but has a new transition time", now.ResourceVersion, c.Type, c.Status))
		}
	}
	return list
}
