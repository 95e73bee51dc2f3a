// SPDX-License-Identifier: Apache-2.0

package process

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

const guid = "8d1b1d4c-2f4a-4d3e-9c55-0a1b2c3d4e5f"

// decisionSummary holds the checked parts of a plan: the rule, the action, the reasons of Ready and Draining, and the
// requeue time.
type decisionSummary struct {
	Rule            string
	Do              Action
	Ready, Draining string
	After           time.Duration
}

func testNow() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// observedApp returns a started app with 3 desired instances at revision 5, which a stop began.
func observedApp(change ...func(*Observed)) Observed {
	o := Observed{
		Now: testNow(), ProcessGUID: guid, Desired: 3,
		App: DesiredApp{Started: true, Revision: 5, LastStop: 5, DrainTimeout: time.Minute},
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

func withLRP(rev int64, instances int32) func(*Observed) {
	return func(o *Observed) {
		o.LRPs = append(o.LRPs, ObservedLRP{Name: revision.LRPName(guid, rev), Revision: rev, Instances: instances})
	}
}

// withDyingLRP adds an LRP that is being deleted. Without ago, it has no deletion timestamp.
func withDyingLRP(rev int64, ago ...time.Duration) func(*Observed) {
	return func(o *Observed) {
		l := ObservedLRP{Name: revision.LRPName(guid, rev), Revision: rev, Instances: 3, Deleting: true}
		for _, d := range ago {
			l.DeletedAt = testNow().Add(-d)
		}
		o.LRPs = append(o.LRPs, l)
	}
}

func begun(ago time.Duration) func(*Observed) {
	return func(o *Observed) { o.BegunAt = testNow().Add(-ago) }
}

// withPods adds ready Pods of a revision, and draining Pods whose deletion was requested five seconds ago.
func withPods(rev int64, ready, draining int32) func(*Observed) {
	return func(o *Observed) {
		p := podstatus.RevisionPods{Revision: rev, Alive: ready, Ready: ready, Draining: draining}
		if draining > 0 {
			p.Since = testNow().Add(-5 * time.Second)
		}
		o.Pods = append(o.Pods, p)
	}
}

// endingOn adds a terminating instance on a node to the revision that was added last. Its termination deadline has
// passed since the given time.
func endingOn(node string, ago time.Duration) func(*Observed) {
	return func(o *Observed) {
		p := &o.Pods[len(o.Pods)-1]
		p.Draining, p.Since, p.EndsBy, p.NodeOfEnd = 1, testNow().Add(-ago), testNow().Add(-ago), node
	}
}

func whenStopped(o *Observed)      { o.App.Started = false }
func whenOverlapping(o *Observed)  { o.App.Overlap = true }
func duringDeployment(o *Observed) { o.App.LastStop = 3 }
func whenCancelled(o *Observed)    { o.App.LastStop, o.App.Rollout.Cancelled = 3, true }
func whenCancellable(o *Observed)  { o.App.LastStop, o.App.Rollout.Cancellable = 3, true }

func duringCanary(o *Observed)                 { o.App.LastStop, o.App.Rollout.CanaryPercent = 3, 50 }
func wantingInstances(n int32) func(*Observed) { return func(o *Observed) { o.Desired = n } }

func TestDecide(t *testing.T) {
	const starting, held, stopping, deploying = korifiv1alpha1.StartingReason, korifiv1alpha1.WaitingForDrainReason, korifiv1alpha1.StoppingReason, korifiv1alpha1.DeployingReason
	const drained, draining = korifiv1alpha1.DrainedReason, korifiv1alpha1.DrainingReason
	const left = 55 * time.Second
	const running = korifiv1alpha1.RunningReason
	n3, n4, n5 := revision.LRPName(guid, 3), revision.LRPName(guid, 4), revision.LRPName(guid, 5)
	create := func(n int32) decisionSummary {
		return decisionSummary{"create the LRP", CreateLRP{n5, 5, n}, starting, drained, 0}
	}
	runs := decisionSummary{"running", Nothing{}, korifiv1alpha1.RunningReason, drained, 0}
	for name, row := range map[string]struct {
		in   Observed
		want decisionSummary
	}{
		"a process that is being deleted is not changed": {
			observedApp(withLRP(4, 3), func(o *Observed) { o.Deleted, o.App.Unreadable = true, "x" }),
			decisionSummary{"process is deleted", Nothing{}, korifiv1alpha1.DeletedReason, draining, 0},
		},
		"an unreadable revision causes no action": {
			observedApp(withLRP(4, 3), func(o *Observed) { o.App = DesiredApp{Started: true, Unreadable: "x"} }),
			decisionSummary{"revision unreadable", Nothing{}, korifiv1alpha1.RevisionUnreadableReason, drained, staleInterval},
		},
		"an LRP of a newer revision is kept": {
			observedApp(withLRP(6, 3), withLRP(4, 3)), decisionSummary{"LRP newer than the app", Nothing{}, korifiv1alpha1.NewerRevisionReason, draining, staleInterval},
		},
		"an LRP of a newer revision is kept even if the app is stopped": {
			observedApp(withLRP(6, 3), whenStopped), decisionSummary{"LRP newer than the app", Nothing{}, korifiv1alpha1.NewerRevisionReason, drained, staleInterval},
		},
		"an app is not started while Korifi's Pods exist": {
			observedApp(func(o *Observed) { o.UpstreamPods = 2 }), decisionSummary{"Korifi's Pods still exist", Nothing{}, torporv1alpha1.AnotherWriterReason, drained, staleInterval},
		},
		"a stop is not complete while Korifi's Pods exist": {
			observedApp(func(o *Observed) { o.UpstreamPods = 2 }, whenStopped), decisionSummary{"Korifi's Pods still exist", Nothing{}, torporv1alpha1.AnotherWriterReason, drained, staleInterval},
		},
		"a running app is not affected by Korifi's Pods": {
			observedApp(withLRP(5, 3), withPods(5, 3, 0), func(o *Observed) { o.UpstreamPods = 2 }), decisionSummary{"running", Nothing{}, korifiv1alpha1.RunningReason, drained, 0},
		},
		"a stop deletes the LRPs of all revisions": {
			observedApp(withLRP(5, 3), withLRP(4, 3), withPods(4, 3, 0), whenStopped), decisionSummary{"delete obsolete LRPs", DeleteLRPs{sortedNames(n4, n5)}, stopping, draining, 0},
		},
		"a stop deletes an LRP without a version": {
			observedApp(withLRP(revision.UnknownRevision, 1), whenStopped), decisionSummary{"delete obsolete LRPs", DeleteLRPs{[]string{revision.LRPName(guid, revision.UnknownRevision)}}, stopping, draining, 0},
		},
		"a stop is not complete while an instance remains": {
			observedApp(withPods(4, 0, 1), whenStopped), decisionSummary{"stopping", Nothing{}, stopping, draining, left},
		},
		"a stop is not complete while an LRP remains": {observedApp(withDyingLRP(4), whenStopped), decisionSummary{"stopping", Nothing{}, stopping, draining, 0}},
		"a stop is complete when no instance remains": {
			observedApp(whenStopped), decisionSummary{"stopped", Nothing{}, korifiv1alpha1.StoppedReason, drained, 0},
		},

		"a start creates an LRP":                                          {observedApp(), create(3)},
		"a start with zero instances is complete immediately":             {observedApp(wantingInstances(0)), decisionSummary{"running", Nothing{}, korifiv1alpha1.RunningReason, drained, 0}},
		"a scale to zero is complete immediately":                         {observedApp(wantingInstances(0), withLRP(5, 3)), decisionSummary{"scale the LRP", ScaleLRP{n5, 0}, korifiv1alpha1.RunningReason, drained, 0}},
		"an app without a droplet is not started":                         {observedApp(func(o *Observed) { o.NoDroplet = "x" }), decisionSummary{"no droplet", Nothing{}, korifiv1alpha1.DropletMissingReason, drained, 0}},
		"a running revision is not affected by a missing droplet":         {observedApp(withLRP(5, 3), withPods(5, 3, 0), func(o *Observed) { o.NoDroplet = "x" }), runs},
		"LRPs of older revisions are deleted before a new LRP is created": {observedApp(withLRP(4, 3), withPods(4, 3, 0)), decisionSummary{"delete obsolete LRPs", DeleteLRPs{[]string{n4}}, starting, draining, 0}},
		"an LRP with an invalid version counts as older":                  {observedApp(withLRP(revision.UnknownRevision, 3)), decisionSummary{"delete obsolete LRPs", DeleteLRPs{[]string{revision.LRPName(guid, revision.UnknownRevision)}}, starting, draining, 0}},
		"a new revision is held back while old instances terminate":       {observedApp(withDyingLRP(4), withPods(4, 0, 3)), decisionSummary{"new revision held until drained", Nothing{}, held, draining, left}},
		"a new revision is held back by Pods without an LRP": {
			observedApp(withPods(4, 1, 0)), decisionSummary{"new revision held until drained", Nothing{}, held, draining, 0},
		},
		"a new revision is held back by an LRP without Pods": {
			observedApp(withDyingLRP(4)), decisionSummary{"new revision held until drained", Nothing{}, held, draining, 0},
		},
		"a new revision is not held back if revisions may overlap": {
			observedApp(withDyingLRP(4), withPods(4, 0, 3), whenOverlapping), decisionSummary{"create the LRP", CreateLRP{n5, 5, 3}, starting, draining, left},
		},
		"a new revision starts after the drain timeout, and Draining reports the timeout": {
			observedApp(withDyingLRP(4), withPods(4, 0, 3), func(o *Observed) { o.App.DrainTimeout = 5 * time.Second }),
			decisionSummary{"create the LRP", CreateLRP{n5, 5, 3}, starting, korifiv1alpha1.DrainTimeoutReason, 0},
		},
		"the drain timeout counts from the deletion of the LRP if its Pods are not being deleted": {
			observedApp(withDyingLRP(4, 5*time.Second), withPods(4, 2, 0)), decisionSummary{"new revision held until drained", Nothing{}, held, draining, left},
		},
		"a new revision is not held back by Pods of a deleted LRP after the drain timeout": {
			observedApp(withDyingLRP(4, time.Hour), withPods(4, 2, 0)), decisionSummary{"create the LRP", CreateLRP{n5, 5, 3}, starting, korifiv1alpha1.DrainTimeoutReason, 0},
		},
		"a new revision is not held back by an LRP with a finalizer after the drain timeout": {
			observedApp(withDyingLRP(4, time.Hour)), decisionSummary{"create the LRP", CreateLRP{n5, 5, 3}, starting, korifiv1alpha1.DrainTimeoutReason, 0},
		},
		"a new revision is not held back by a Pod without an LRP after the drain timeout": {
			observedApp(withPods(revision.UnknownRevision, 1, 0), begun(time.Hour)), decisionSummary{"create the LRP", CreateLRP{n5, 5, 3}, starting, korifiv1alpha1.DrainTimeoutReason, 0},
		},
		"a new revision is held back by a Pod without an LRP until the drain timeout": {
			observedApp(withPods(revision.UnknownRevision, 1, 0), begun(5*time.Second)), decisionSummary{"new revision held until drained", Nothing{}, held, draining, left},
		},
		"the drain timeout begins at the deletion of the LRP, not at the start of the revision": {
			observedApp(withDyingLRP(4, 5*time.Second), withPods(4, 2, 0), begun(time.Hour)), decisionSummary{"new revision held until drained", Nothing{}, held, draining, left},
		},
		"a new revision without a drain timeout waits indefinitely": {
			observedApp(withDyingLRP(4), withPods(4, 0, 3), func(o *Observed) { o.App.DrainTimeout, o.Now = 0, testNow().Add(time.Hour) }),
			decisionSummary{"new revision held until drained", Nothing{}, held, draining, 0},
		},
		"a revision waits while an LRP of another revision with the same name is being deleted": {
			observedApp(func(o *Observed) {
				o.LRPs = []ObservedLRP{{Name: n5, Revision: 4, Deleting: true}}
				o.App.Overlap = true
			}),
			decisionSummary{"waiting for the LRP name", Nothing{}, korifiv1alpha1.NameTakenReason, draining, staleInterval},
		},
		"a revision waits while an LRP of another owner has the name of its LRP": {
			observedApp(func(o *Observed) { o.NameTaken = true }), decisionSummary{"waiting for the LRP name", Nothing{}, korifiv1alpha1.NameTakenReason, drained, staleInterval},
		},
		"a revision waits while its own LRP is being deleted": {
			observedApp(withDyingLRP(5), withPods(5, 3, 0)), decisionSummary{"waiting for the LRP name", Nothing{}, korifiv1alpha1.NameTakenReason, drained, staleInterval},
		},
		"a process with too few instances is scaled up":    {observedApp(withLRP(5, 1), withPods(5, 1, 0)), decisionSummary{"scale the LRP", ScaleLRP{n5, 3}, starting, drained, 0}},
		"a process with too many instances is scaled down": {observedApp(withLRP(5, 9), withPods(5, 9, 0)), decisionSummary{"scale the LRP", ScaleLRP{n5, 3}, korifiv1alpha1.RunningReason, drained, 0}},
		"a process with starting instances is Starting":    {observedApp(withLRP(5, 3), withPods(5, 2, 0)), decisionSummary{"starting", Nothing{}, starting, drained, 0}},
		"a process with crashing instances is Starting": {
			observedApp(withLRP(5, 3), func(o *Observed) { o.Pods = []podstatus.RevisionPods{{Revision: 5, Alive: 3, Crashed: 3}} }), decisionSummary{"starting", Nothing{}, starting, drained, 0},
		},
		"a terminating instance is checked again when its node must have reported the termination": {
			observedApp(withLRP(5, 3), withPods(5, 2, 0), endingOn("n", 20*time.Second)), decisionSummary{"starting", Nothing{}, starting, draining, 10 * time.Second},
		},
		"an app is blocked if a node never reports that an instance has terminated": {
			observedApp(withLRP(5, 3), withPods(5, 2, 0), endingOn("n", 30*time.Second)), decisionSummary{"starting", Nothing{}, korifiv1alpha1.BlockedReason, draining, 0},
		},
		"a process with all instances and a surplus one that does not terminate is Running": {
			observedApp(withLRP(5, 3), withPods(5, 3, 0), endingOn("n", time.Hour)), decisionSummary{"running", Nothing{}, korifiv1alpha1.RunningReason, draining, 0},
		},
		"an instance of an older revision does not count as ready":    {observedApp(withLRP(5, 3), withPods(5, 2, 0), withPods(4, 1, 0)), decisionSummary{"starting", Nothing{}, starting, draining, 0}},
		"a process with all instances is Running":                     {observedApp(withLRP(5, 3), withPods(5, 3, 0)), runs},
		"a process with an instance that was scaled down is Draining": {observedApp(withLRP(5, 3), withPods(5, 3, 1)), decisionSummary{"running", Nothing{}, korifiv1alpha1.RunningReason, draining, 0}},

		"a deployment starts a new instance next to the old revision": {
			observedApp(duringDeployment, withLRP(4, 3), withPods(4, 3, 0)), decisionSummary{"create the LRP", CreateLRP{n5, 5, 1}, deploying, drained, 0},
		},
		"a deployment starts maxInFlight instances": {
			observedApp(duringDeployment, withLRP(4, 3), withPods(4, 3, 0), func(o *Observed) { o.App.Rollout.MaxInFlight = 2 }), decisionSummary{"create the LRP", CreateLRP{n5, 5, 2}, deploying, drained, 0},
		},
		"a deployment starts no more than the desired instances": {
			observedApp(duringDeployment, withLRP(4, 3), withPods(4, 3, 0), func(o *Observed) { o.App.Rollout.MaxInFlight = 9 }), decisionSummary{"create the LRP", CreateLRP{n5, 5, 3}, deploying, drained, 0},
		},
		"a deployment removes no old instance before a new one is ready": {
			observedApp(duringDeployment, withLRP(4, 3), withPods(4, 3, 0), withLRP(5, 1)), decisionSummary{"deploying", Nothing{}, deploying, drained, 0},
		},
		"a deployment starts the next instance when one is ready": {
			observedApp(duringDeployment, withLRP(4, 3), withPods(4, 3, 0), withLRP(5, 1), withPods(5, 1, 0)), decisionSummary{"scale the LRP", ScaleLRP{n5, 2}, deploying, drained, 0},
		},
		"a deployment removes an old instance when a new one is ready": {
			observedApp(duringDeployment, withLRP(4, 3), withPods(4, 3, 0), withLRP(5, 2), withPods(5, 1, 0)), decisionSummary{"retire replaced instances", ScaleLRP{n4, 2}, deploying, drained, 0},
		},
		"a deployment deletes an LRP together with its last instance": {
			observedApp(duringDeployment, withLRP(4, 1), withPods(4, 1, 0), withLRP(5, 3), withPods(5, 3, 0)), decisionSummary{"retire replaced instances", DeleteLRPs{[]string{n4}}, deploying, drained, 0},
		},
		"a deployment that can be cancelled keeps the LRP of its last old instance": {
			observedApp(whenCancellable, withLRP(4, 1), withPods(4, 1, 0), withLRP(5, 3), withPods(5, 3, 0)), decisionSummary{"retire replaced instances", ScaleLRP{n4, 0}, deploying, drained, 0},
		},
		"a deployment is complete even if an LRP without instances is kept": {
			observedApp(whenCancellable, withLRP(4, 0), withLRP(5, 3), withPods(5, 3, 0)), decisionSummary{"running", Nothing{}, running, drained, 0},
		},
		"a kept LRP is deleted when the deployment has finished": {
			observedApp(duringDeployment, withLRP(4, 0), withLRP(5, 3), withPods(5, 3, 0)), decisionSummary{"retire replaced instances", DeleteLRPs{[]string{n4}}, deploying, drained, 0},
		},
		"a deployment keeps only the LRP that a cancellation would restore": {
			observedApp(whenCancellable, withLRP(3, 1), withPods(3, 1, 0), withLRP(4, 1), withPods(4, 1, 0), withLRP(5, 3), withPods(5, 3, 0)),
			decisionSummary{"retire replaced instances", DeleteLRPs{[]string{n3}}, deploying, drained, 0},
		},
		"a cancelled deployment scales up the kept LRP": {
			observedApp(whenCancelled, withLRP(4, 0), withLRP(5, 3), withPods(5, 3, 0)), decisionSummary{"scale the LRP", ScaleLRP{n4, 3}, starting, drained, 0},
		},
		"a cancelled revision is kept while instances of the restored revision are about to terminate": {
			observedApp(whenCancelled, withLRP(4, 0), withPods(4, 3, 0), withLRP(5, 3), withPods(5, 3, 0)), decisionSummary{"scale the LRP", ScaleLRP{n4, 3}, deploying, drained, 0},
		},
		"a stop deletes a kept LRP": {
			observedApp(whenCancellable, whenStopped, withLRP(4, 0)), decisionSummary{"delete obsolete LRPs", DeleteLRPs{[]string{n4}}, stopping, draining, 0},
		},
		"a deployment is not complete while old instances terminate": {
			observedApp(duringDeployment, withDyingLRP(4), withPods(4, 0, 1), withLRP(5, 3), withPods(5, 3, 0)), decisionSummary{"replaced instances are ending", Nothing{}, deploying, draining, left},
		},
		"a deployment is not complete while an old LRP without Pods remains": {
			observedApp(duringDeployment, withDyingLRP(4), withLRP(5, 3), withPods(5, 3, 0)), decisionSummary{"replaced instances are ending", Nothing{}, deploying, drained, 0},
		},
		"a deployment is not complete while old Pods without an LRP remain": {
			observedApp(duringDeployment, withPods(4, 1, 0), withLRP(5, 3), withPods(5, 3, 0)), decisionSummary{"replaced instances are ending", Nothing{}, deploying, drained, 0},
		},
		"a deployment completes before old Pods end if revisions may overlap": {
			observedApp(duringDeployment, whenOverlapping, withDyingLRP(4), withPods(4, 0, 1), withLRP(5, 3), withPods(5, 3, 0)), decisionSummary{"running", Nothing{}, korifiv1alpha1.RunningReason, draining, left},
		},
		"a deployment is complete after the drain timeout even if old Pods remain": {
			observedApp(duringDeployment, withDyingLRP(4), withPods(4, 0, 1), withLRP(5, 3), withPods(5, 3, 0), func(o *Observed) { o.App.DrainTimeout = 5 * time.Second }),
			decisionSummary{"running", Nothing{}, korifiv1alpha1.RunningReason, draining, 0},
		},
		"a deployment removes instances of the oldest revision first": {
			observedApp(duringDeployment, withLRP(3, 2), withPods(3, 2, 0), withLRP(4, 1), withPods(4, 1, 0), withLRP(5, 2), withPods(5, 1, 0)),
			decisionSummary{"retire replaced instances", ScaleLRP{revision.LRPName(guid, 3), 1}, deploying, drained, 0},
		},
		"a deployment does not start while a revision from before the last stop exists": {
			observedApp(duringDeployment, withLRP(2, 3), withPods(2, 3, 0)), decisionSummary{"delete obsolete LRPs", DeleteLRPs{[]string{revision.LRPName(guid, 2)}}, starting, draining, 0},
		},
		"a canary pauses at its step": {
			observedApp(duringCanary, withLRP(4, 1), withPods(4, 1, 0), withLRP(5, 2), withPods(5, 2, 0)), decisionSummary{"canary paused", Nothing{}, korifiv1alpha1.DeploymentPausedReason, drained, 0},
		},
		"a canary with the largest maxInFlight grows to its step": {
			observedApp(duringCanary, wantingInstances(4), withLRP(4, 4), withPods(4, 4, 0), withLRP(5, 1), withPods(5, 1, 0), func(o *Observed) { o.App.Rollout.MaxInFlight = math.MaxInt32 }),
			decisionSummary{"scale the LRP", ScaleLRP{n5, 2}, deploying, drained, 0},
		},
		"a cancelled deployment scales up the old revision": {
			observedApp(whenCancelled, withLRP(4, 1), withPods(4, 1, 0), withLRP(5, 2), withPods(5, 2, 0)), decisionSummary{"scale the LRP", ScaleLRP{n4, 3}, starting, drained, 0},
		},
		"a cancelled deployment scales down the new revision, because a full quota may have no room for the old one": {
			observedApp(whenCancelled, wantingInstances(10), withLRP(4, 10), withPods(4, 6, 0), withLRP(5, 5), withPods(5, 5, 0)), decisionSummary{"retire replaced instances", ScaleLRP{n5, 4}, starting, drained, 0},
		},
		"a cancelled deployment keeps new instances until the old ones are ready": {
			observedApp(whenCancelled, withLRP(4, 3), withPods(4, 1, 0), withLRP(5, 2), withPods(5, 2, 0)), decisionSummary{"starting", Nothing{}, starting, drained, 0},
		},
		"a cancelled deployment deletes the new revision when the old one is ready": {
			observedApp(whenCancelled, withLRP(4, 3), withPods(4, 3, 0), withLRP(5, 2), withPods(5, 2, 0)), decisionSummary{"delete obsolete LRPs", DeleteLRPs{[]string{n5}}, deploying, draining, 0},
		},
		"a cancelled deployment is not complete while the new revision's Pods terminate": {
			observedApp(whenCancelled, withLRP(4, 3), withPods(4, 3, 0), withDyingLRP(5), withPods(5, 0, 2)), decisionSummary{"replaced instances are ending", Nothing{}, deploying, draining, left},
		},
		"a cancelled deployment immediately deletes a new revision without ready instances": {
			observedApp(whenCancelled, withLRP(4, 2), withPods(4, 2, 0), withLRP(5, 2)), decisionSummary{"delete obsolete LRPs", DeleteLRPs{[]string{n5}}, starting, draining, 0},
		},
		"a cancelled revision is not created again": {observedApp(whenCancelled, withLRP(4, 3), withPods(4, 3, 0)), runs},
		"a cancellation after the end of a deployment has no effect": {
			observedApp(whenCancelled, withLRP(5, 3), withPods(5, 3, 0)), runs,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			if diff := cmp.Diff(row.want, decisionSummary{p.Rule, p.Do, p.Ready.Reason, p.Draining.Reason, p.After}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (p.Ready.Status == metav1.ConditionTrue) != (p.Ready.Reason == korifiv1alpha1.RunningReason || p.Ready.Reason == korifiv1alpha1.StoppedReason) {
				t.Errorf("found %s for %s", p.Ready.Status, p.Ready.Reason)
			}
		})
	}
}

func sortedNames(a, b string) []string {
	if a > b {
		return []string{b, a}
	}
	return []string{a, b}
}

func TestMessagesCount(t *testing.T) {
	for name, row := range map[string]struct {
		in              Observed
		ready, draining string
	}{
		"instances that delay a new revision are counted": {
			observedApp(withDyingLRP(4), withPods(4, 1, 2)), "revision 5 starts when 3 instances of older revisions are gone", "3 instances are terminating",
		},
		"instances that remain after the drain timeout are counted": {
			observedApp(withDyingLRP(4), withPods(4, 0, 3), func(o *Observed) { o.App.DrainTimeout = time.Second }),
			"0 of 3 instances of revision 5 are ready", "3 instances are left after the drain timeout of 1s; check their Pods",
		},
		"crashed instances are counted": {
			observedApp(withLRP(5, 3), func(o *Observed) { o.Pods = []podstatus.RevisionPods{{Revision: 5, Alive: 3, Ready: 1, Crashed: 2}} }),
			"1 of 3 instances of revision 5 are ready, 2 have crashed", "no instance is terminating",
		},
		"instances of a paused canary are counted": {
			observedApp(duringCanary, withLRP(4, 1), withPods(4, 1, 0), withLRP(5, 2), withPods(5, 2, 0)),
			"2 of 3 instances run revision 5; continue or cancel the deployment", "no instance is terminating",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			if diff := cmp.Diff([]string{row.ready, row.draining}, []string{p.Ready.Message, p.Draining.Message}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestCanaryInstancesAreRounded(t *testing.T) {
	t.Parallel()
	for _, desired := range []int32{1, 149, 150, 1000} {
		o := observedApp(duringCanary, withLRP(4, 1), wantingInstances(desired))
		if o.App.Rollout.CanaryPercent, o.App.Rollout.CanaryOfOne = 0, true; o.canaryInstances() != 1 {
			t.Errorf("a canary of one instance of %d: found %d", desired, o.canaryInstances())
		}
	}
	for given, want := range map[[2]int32]int32{{1, 10}: 1, {3, 50}: 2, {4, 33}: 1, {4, 38}: 2, {10, 25}: 3, {3, 100}: 3, {2, 1000}: 2, {0, 50}: 0} {
		o := observedApp(duringCanary, withLRP(4, 1))
		o.Desired, o.App.Rollout.CanaryPercent = given[0], given[1]
		if got := o.canaryInstances(); got != want {
			t.Errorf("%d %% of %d instances: expected %d, found %d", given[1], given[0], want, got)
		}
	}
}
