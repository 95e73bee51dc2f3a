// SPDX-License-Identifier: Apache-2.0

package cf_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const slowStop = "HOLLOW_STOP=2s ./app"

// requestRestart requests a restart in the same way as the API, and returns the resulting revision.
func (a *app) requestRestart(t *testing.T, request string) string {
	t.Helper()
	return a.annotateApp(t, torporv1alpha1.RestartRequestAnnotation, request).Annotations[revisionAnnotation]
}

// Race f of docs/adr/0010-revisions-of-apps.md: new Pods are held back until the old ones are deleted, both for a
// restart and for a stop followed by a start.
func TestStrictDrainRunsOneRevisionAtATime(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 3, command: slowStop})
	a.waitUntilRunning(t)
	h := a.watchHistory(t)
	a.setState(t, stopped)
	a.setState(t, started)
	a.waitForReady(t, metav1.ConditionFalse, korifiv1alpha1.WaitingForDrainReason)
	if d := meta.FindStatusCondition(a.getApp(t).Status.Conditions, korifiv1alpha1.DrainingCondition); d == nil || d.Status != metav1.ConditionTrue {
		t.Errorf("expected the condition Draining to hold, found %+v", d)
	}
	a.waitUntilRunning(t)
	a.requestRestart(t, "once")
	a.waitUntilRunning(t)
	if most, overlap := h.measureOverlap(); most != 1 || overlap != 0 {
		t.Errorf("expected one revision with Pods at a time, found %d, two of them for %s", most, overlap)
	}
}

// With the drain policy overlap, Pods of two revisions may run at the same time.
func TestOverlapRunsTwoRevisionsForAWhile(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 2, command: slowStop, drain: korifiv1alpha1.Drain{Policy: korifiv1alpha1.DrainOverlap}})
	a.waitUntilRunning(t)
	h := a.watchHistory(t)
	a.requestRestart(t, "once")
	a.waitUntilRunning(t)
	if most, overlap := h.measureOverlap(); most != 2 || overlap == 0 {
		t.Errorf("expected two revisions with Pods for a while, found %d for %s", most, overlap)
	}
	a.waitForRevisions(t, "1")
}

// After a drain timeout, the new revision starts, and the condition reports the timeout.
func TestDrainTimeoutLetsTheNewRevisionStart(t *testing.T) {
	e := shared.Get(t)
	drain := korifiv1alpha1.Drain{TimeoutSeconds: new(int32(2))}
	a := e.createApp(t, appOptions{instances: 1, command: "HOLLOW_STOP=12s ./app", drain: drain})
	a.waitUntilRunning(t)
	a.requestRestart(t, "once")
	testenv.Eventually(t, "the drain timeout shows", func() error {
		d := meta.FindStatusCondition(a.getApp(t).Status.Conditions, korifiv1alpha1.DrainingCondition)
		if d == nil || d.Reason != korifiv1alpha1.DrainTimeoutReason {
			return fmt.Errorf("found %+v", d)
		}
		return nil
	})
	a.waitUntilRunning(t)
	a.waitForRevisions(t, "1")
}

// Race i of docs/adr/0010-revisions-of-apps.md: an app scaled to zero counts as started immediately, and has no Pods.
func TestAppScaledToZeroStartsAtOnce(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 0})
	a.waitUntilRunning(t)
	a.setState(t, stopped)
	a.waitUntilStopped(t)
	a.setState(t, started)
	a.waitUntilRunning(t)
	if found := a.getApp(t).Status.ActualState; found != started {
		t.Errorf("expected the actual state %s, found %s", started, found)
	}
	a.setInstances(t, 2)
	a.waitForInstances(t, 2)
	a.setInstances(t, 0)
	a.waitForInstances(t, 0)
	testenv.Eventually(t, "no Pod is left", func() error {
		if n := len(a.listPods(t)); n != 0 {
			return fmt.Errorf("found %d", n)
		}
		return nil
	})
}

// Race k of docs/adr/0010-revisions-of-apps.md: a crash loop is reported for each instance, and a restart of the
// crashing app succeeds.
func TestCrashLoopIsReportedAndRestarted(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 2, command: "HOLLOW_CRASH=boom ./app"})
	testenv.Eventually(t, "both instances have crashed", func() error {
		all := a.getProcess(t).Status.InstancesStatus
		for _, index := range []string{"0", "1"} {
			if one := all[index]; one.State != korifiv1alpha1.CrashedInstance || one.Details != "exited with status 1: boom" {
				return fmt.Errorf("instance %s: %+v", index, one)
			}
		}
		return nil
	})
	a.waitForReady(t, metav1.ConditionFalse, korifiv1alpha1.StartingReason)
	a.requestRestart(t, "once")
	a.waitForRevisions(t, "1")
	a.waitForReady(t, metav1.ConditionFalse, korifiv1alpha1.StartingReason)
}

// Race n of docs/adr/0010-revisions-of-apps.md: restarting one of twelve instances by its index does not restart any
// other instance.
func TestOneInstanceOfTwelveIsRestarted(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 12})
	a.waitUntilRunning(t)
	uids := func() map[string]string {
		all := map[string]string{}
		for _, p := range a.listPods(t) {
			all[p.Labels["apps.kubernetes.io/pod-index"]] = string(p.UID)
		}
		return all
	}
	before := uids()
	err := e.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, client.InNamespace(e.namespace), client.MatchingLabels{
		korifiv1alpha1.ProcessGUIDLabel: a.process, korifiv1alpha1.VersionLabel: "0", "apps.kubernetes.io/pod-index": "1",
	})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "instance 1 has been replaced", func() error {
		if found := uids()["1"]; found == "" || found == before["1"] {
			return fmt.Errorf("found %q", found)
		}
		return nil
	})
	a.waitUntilRunning(t)
	for index, uid := range uids() {
		if index != "1" && uid != before[index] {
			t.Errorf("instance %s was restarted too", index)
		}
	}
	if found := a.getApp(t).Annotations[revisionAnnotation]; found != "0" {
		t.Errorf("expected the revision to stay 0, found %s", found)
	}
}

// Race m of docs/adr/0010-revisions-of-apps.md: each revision has its own PodDisruptionBudget, so no Pod is selected by
// two of them.
func TestEachRevisionHasItsOwnDisruptionBudget(t *testing.T) {
	e := shared.Get(t)
	a := e.createApp(t, appOptions{instances: 2, command: slowStop, drain: korifiv1alpha1.Drain{Policy: korifiv1alpha1.DrainOverlap}})
	a.waitUntilRunning(t)
	a.requestRestart(t, "once")
	testenv.Eventually(t, "two budgets are there", func() error {
		var list policyv1.PodDisruptionBudgetList
		a.listObjects(t, &list)
		versions := map[string]bool{}
		for _, b := range list.Items {
			versions[b.Spec.Selector.MatchLabels[korifiv1alpha1.VersionLabel]] = true
		}
		if len(versions) != 2 || len(list.Items) != 2 {
			return fmt.Errorf("expected one budget for each of two revisions, found %d for %v", len(list.Items), versions)
		}
		return nil
	})
	a.waitForRevisions(t, "1")
}

// Race q of docs/adr/0010-revisions-of-apps.md: a newly assigned droplet is not used until the next restart.
func TestAssignedDropletWaitsForTheNextRestart(t *testing.T) {
	e := shared.Get(t)
	const other = "registry.example/app:2"
	a := e.createApp(t, appOptions{instances: 1})
	a.waitUntilRunning(t)
	e.createBuild(t, a.name+"-2", other)
	a.patchApp(t, fmt.Sprintf(`{"spec":{"currentDropletRef":{"name":"%s-2"}}}`, a.name))
	a.waitUntilRunning(t)
	if found := a.listPods(t)[0].Spec.Containers[0].Image; found != image {
		t.Errorf("expected the image %s until the next restart, found %s", image, found)
	}
	a.requestRestart(t, "once")
	a.waitUntilRunning(t)
	if found := a.listPods(t)[0].Spec.Containers[0].Image; found != other {
		t.Errorf("expected the image %s after a restart, found %s", other, found)
	}
}

// waitForInstances waits until n instances are desired and n are ready.
func (a *app) waitForInstances(t *testing.T, n int32) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%d instances are ready", n), func() error {
		if c := a.getApp(t).Status.Instances; c == nil || c.Desired != n || c.Ready != n {
			return fmt.Errorf("found %+v", c)
		}
		return nil
	})
}

// waitForRevisions waits until exactly these revisions have LRPs and Pods.
func (a *app) waitForRevisions(t *testing.T, want ...string) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("only revisions %v are left", want), func() error {
		left := map[string]bool{}
		for _, p := range a.listPods(t) {
			left[p.Labels[korifiv1alpha1.VersionLabel]] = true
		}
		for _, l := range a.listLRPs(t) {
			left[l.Spec.Version] = true
		}
		for _, version := range want {
			if !left[version] {
				return fmt.Errorf("expected revision %s, found %v", version, left)
			}
		}
		if len(left) != len(want) {
			return fmt.Errorf("expected %v, found %v", want, left)
		}
		return nil
	})
}

// waitUntilQuiet waits until neither the app nor its process has been written for a second.
func (a *app) waitUntilQuiet(t *testing.T) {
	t.Helper()
	last, since := "", time.Now()
	testenv.Eventually(t, "nothing is written any more", func() error {
		version := a.getApp(t).ResourceVersion + "/" + a.getProcess(t).ResourceVersion
		if version != last {
			last, since = version, time.Now()
		}
		if time.Since(since) < time.Second {
			return fmt.Errorf("written %s ago", time.Since(since))
		}
		return nil
	})
}
