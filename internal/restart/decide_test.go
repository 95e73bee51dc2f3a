// SPDX-License-Identifier: Apache-2.0

package restart

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// decision is what most rows are about: the rule, the effect, and the reasons of Ready and Draining.
type decision struct {
	Rule            string
	Do              Action
	Ready, Draining string
	After           time.Duration
}

func noon() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }

// observed is a started app at revision 5, begun by a stop, of which 3 instances are wanted.
func observed(change ...func(*Observed)) Observed {
	o := Observed{
		Now: noon(), ProcessGUID: guid, Desired: 3,
		App: App{Started: true, Revision: 5, LastStop: 5, DrainTimeout: time.Minute},
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

func lrp(revision int64, instances int32) func(*Observed) {
	return func(o *Observed) {
		o.LRPs = append(o.LRPs, LRP{Name: Name(guid, revision), Revision: revision, Instances: instances})
	}
}

func dying(revision int64) func(*Observed) {
	return func(o *Observed) {
		o.LRPs = append(o.LRPs, LRP{Name: Name(guid, revision), Revision: revision, Instances: 3, Deleting: true})
	}
}

// pods are so many ready ones of a revision, and so many that were told to go five seconds ago.
func pods(revision int64, ready, draining int32) func(*Observed) {
	return func(o *Observed) {
		p := Pods{Revision: revision, Alive: ready, Ready: ready, Draining: draining}
		if draining > 0 {
			p.Since = noon().Add(-5 * time.Second)
		}
		o.Pods = append(o.Pods, p)
	}
}

func stoppedApp(o *Observed)        { o.App.Started = false }
func overlap(o *Observed)           { o.App.Overlap = true }
func deploymentOf5(o *Observed)     { o.App.LastStop = 3 }
func cancelled(o *Observed)         { o.App.LastStop, o.App.Rollout.Cancelled = 3, true }
func canary(o *Observed)            { o.App.LastStop, o.App.Rollout.CanaryPercent = 3, 34 }
func wants(n int32) func(*Observed) { return func(o *Observed) { o.Desired = n } }

func TestDecide(t *testing.T) {
	const starting, held, stopping, deploying = korifiv1alpha1.StartingReason, korifiv1alpha1.WaitingForDrainReason, korifiv1alpha1.StoppingReason, korifiv1alpha1.DeployingReason
	const drained, draining = korifiv1alpha1.DrainedReason, korifiv1alpha1.DrainingReason
	const left = 55 * time.Second
	n4, n5 := Name(guid, 4), Name(guid, 5)
	create := func(n int32) decision { return decision{"create", CreateLRP{n5, 5, n}, starting, drained, 0} }
	runs := decision{"running", Nothing{}, korifiv1alpha1.RunningReason, drained, 0}
	for name, row := range map[string]struct {
		in   Observed
		want decision
	}{
		"a process that is deleted is left alone": {
			observed(lrp(4, 3), func(o *Observed) { o.Deleted, o.App.Unreadable = true, "x" }),
			decision{"deleted", Nothing{}, korifiv1alpha1.DeletedReason, draining, 0},
		},
		"race d: nothing is done for a revision that nobody can read": {
			observed(lrp(4, 3), func(o *Observed) { o.App = App{Started: true, Unreadable: "x"} }),
			decision{"revision unreadable", Nothing{}, korifiv1alpha1.RevisionUnreadableReason, drained, staleInterval},
		},
		"race p: a newer revision is never touched": {
			observed(lrp(6, 3), lrp(4, 3)), decision{"newer revision", Nothing{}, korifiv1alpha1.NewerRevisionReason, draining, staleInterval},
		},
		"race p: nor when the app seems stopped": {
			observed(lrp(6, 3), stoppedApp), decision{"newer revision", Nothing{}, korifiv1alpha1.NewerRevisionReason, drained, staleInterval},
		},
		"a stop deletes everything": {
			observed(lrp(5, 3), lrp(4, 3), pods(4, 3, 0), stoppedApp), decision{"delete what has to go", DeleteLRPs{sorted(n4, n5)}, stopping, draining, 0},
		},
		"also what has no version": {
			observed(lrp(UnknownRevision, 1), stoppedApp), decision{"delete what has to go", DeleteLRPs{[]string{Name(guid, UnknownRevision)}}, stopping, draining, 0},
		},
		"race f: an app is not stopped while an instance is left": {
			observed(pods(4, 0, 1), stoppedApp), decision{"stopping", Nothing{}, stopping, draining, left},
		},
		"nor while an LRP is": {observed(dying(4), stoppedApp), decision{"stopping", Nothing{}, stopping, draining, 0}},
		"an app without instances is stopped": {
			observed(stoppedApp), decision{"stopped", Nothing{}, korifiv1alpha1.StoppedReason, drained, 0},
		},

		"a start makes an LRP":                              {observed(), create(3)},
		"race i: a start of no instances is done at once":   {observed(wants(0)), decision{"running", Nothing{}, korifiv1alpha1.RunningReason, drained, 0}},
		"race i: to scale to 0 is done when it is said":     {observed(wants(0), lrp(5, 3)), decision{"scale", ScaleLRP{n5, 0}, korifiv1alpha1.RunningReason, drained, 0}},
		"race q: without a droplet nothing starts":          {observed(func(o *Observed) { o.NoDroplet = "x" }), decision{"no droplet", Nothing{}, korifiv1alpha1.DropletMissingReason, drained, 0}},
		"race q: what runs needs no droplet any more":       {observed(lrp(5, 3), pods(5, 3, 0), func(o *Observed) { o.NoDroplet = "x" }), runs},
		"race a: older revisions are deleted first":         {observed(lrp(4, 3), pods(4, 3, 0)), decision{"delete what has to go", DeleteLRPs{[]string{n4}}, starting, draining, 0}},
		"a version that is no revision is older":            {observed(lrp(UnknownRevision, 3)), decision{"delete what has to go", DeleteLRPs{[]string{Name(guid, UnknownRevision)}}, starting, draining, 0}},
		"race f: the new one is held until the old is gone": {observed(dying(4), pods(4, 0, 3)), decision{"held until drained", Nothing{}, held, draining, left}},
		"race f: also when the LRP is gone and Pods are not": {
			observed(pods(4, 1, 0)), decision{"held until drained", Nothing{}, held, draining, 0},
		},
		"race f: also when Pods are gone and the LRP is not": {
			observed(dying(4)), decision{"held until drained", Nothing{}, held, draining, 0},
		},
		"race f: whoever may overlap does": {
			observed(dying(4), pods(4, 0, 3), overlap), decision{"create", CreateLRP{n5, 5, 3}, starting, draining, left},
		},
		"race f: after the drain timeout it starts anyway, and says so": {
			observed(dying(4), pods(4, 0, 3), func(o *Observed) { o.App.DrainTimeout = 5 * time.Second }),
			decision{"create", CreateLRP{n5, 5, 3}, starting, korifiv1alpha1.DrainTimeoutReason, 0},
		},
		"race f: without a timeout it never does": {
			observed(dying(4), pods(4, 0, 3), func(o *Observed) { o.App.DrainTimeout, o.Now = 0, noon().Add(time.Hour) }),
			decision{"held until drained", Nothing{}, held, draining, 0},
		},
		"race h: an LRP of another revision with the name is waited for": {
			observed(func(o *Observed) { o.LRPs = []LRP{{Name: n5, Revision: 4, Deleting: true}}; o.App.Overlap = true }),
			decision{"name is free soon", Nothing{}, korifiv1alpha1.NameTakenReason, draining, staleInterval},
		},
		"race h: so is another's": {
			observed(func(o *Observed) { o.NameTaken = true }), decision{"name is free soon", Nothing{}, korifiv1alpha1.NameTakenReason, drained, staleInterval},
		},
		"race o: one that is being deleted is not used again": {
			observed(dying(5), pods(5, 3, 0)), decision{"name is free soon", Nothing{}, korifiv1alpha1.NameTakenReason, drained, staleInterval},
		},
		"more instances":  {observed(lrp(5, 1), pods(5, 1, 0)), decision{"scale", ScaleLRP{n5, 3}, starting, drained, 0}},
		"fewer instances": {observed(lrp(5, 9), pods(5, 9, 0)), decision{"scale", ScaleLRP{n5, 3}, korifiv1alpha1.RunningReason, drained, 0}},
		"instances start": {observed(lrp(5, 3), pods(5, 2, 0)), decision{"starting", Nothing{}, starting, drained, 0}},
		"race k: instances that crash are told": {
			observed(lrp(5, 3), func(o *Observed) { o.Pods = []Pods{{Revision: 5, Alive: 3, Crashed: 3}} }), decision{"starting", Nothing{}, starting, drained, 0},
		},
		"race g: an old instance does not count": {observed(lrp(5, 3), pods(5, 2, 0), pods(4, 1, 0)), decision{"starting", Nothing{}, starting, draining, 0}},
		"all instances run":                      {observed(lrp(5, 3), pods(5, 3, 0)), runs},
		"one that was scaled away drains":        {observed(lrp(5, 3), pods(5, 3, 1)), decision{"running", Nothing{}, korifiv1alpha1.RunningReason, draining, 0}},

		"race l: a deployment begins beside the old": {
			observed(deploymentOf5, lrp(4, 3), pods(4, 3, 0)), decision{"create", CreateLRP{n5, 5, 1}, deploying, drained, 0},
		},
		"with so many in flight as were asked for": {
			observed(deploymentOf5, lrp(4, 3), pods(4, 3, 0), func(o *Observed) { o.App.Rollout.MaxInFlight = 2 }), decision{"create", CreateLRP{n5, 5, 2}, deploying, drained, 0},
		},
		"but not more than are wanted": {
			observed(deploymentOf5, lrp(4, 3), pods(4, 3, 0), func(o *Observed) { o.App.Rollout.MaxInFlight = 9 }), decision{"create", CreateLRP{n5, 5, 3}, deploying, drained, 0},
		},
		"race l: nothing old goes before something new is ready": {
			observed(deploymentOf5, lrp(4, 3), pods(4, 3, 0), lrp(5, 1)), decision{"deploying", Nothing{}, deploying, drained, 0},
		},
		"the next is started when one is ready": {
			observed(deploymentOf5, lrp(4, 3), pods(4, 3, 0), lrp(5, 1), pods(5, 1, 0)), decision{"scale", ScaleLRP{n5, 2}, deploying, drained, 0},
		},
		"and an old one goes": {
			observed(deploymentOf5, lrp(4, 3), pods(4, 3, 0), lrp(5, 2), pods(5, 1, 0)), decision{"retire older", ScaleLRP{n4, 2}, deploying, drained, 0},
		},
		"the last old one goes with its LRP": {
			observed(deploymentOf5, lrp(4, 1), pods(4, 1, 0), lrp(5, 3), pods(5, 3, 0)), decision{"retire older", DeleteLRPs{[]string{n4}}, deploying, drained, 0},
		},
		"race l: a deployment is not through while the old ones end": {
			observed(deploymentOf5, dying(4), pods(4, 0, 1), lrp(5, 3), pods(5, 3, 0)), decision{"yielding", Nothing{}, deploying, draining, left},
		},
		"nor while one of them has only its LRP": {
			observed(deploymentOf5, dying(4), lrp(5, 3), pods(5, 3, 0)), decision{"yielding", Nothing{}, deploying, drained, 0},
		},
		"nor while one has only its Pods": {
			observed(deploymentOf5, pods(4, 1, 0), lrp(5, 3), pods(5, 3, 0)), decision{"yielding", Nothing{}, deploying, drained, 0},
		},
		"unless they may overlap": {
			observed(deploymentOf5, overlap, dying(4), pods(4, 0, 1), lrp(5, 3), pods(5, 3, 0)), decision{"running", Nothing{}, korifiv1alpha1.RunningReason, draining, left},
		},
		"or do not end in time": {
			observed(deploymentOf5, dying(4), pods(4, 0, 1), lrp(5, 3), pods(5, 3, 0), func(o *Observed) { o.App.DrainTimeout = 5 * time.Second }),
			decision{"running", Nothing{}, korifiv1alpha1.RunningReason, draining, 0},
		},
		"of two older ones the older goes first": {
			observed(deploymentOf5, lrp(3, 2), pods(3, 2, 0), lrp(4, 1), pods(4, 1, 0), lrp(5, 2), pods(5, 1, 0)),
			decision{"retire older", ScaleLRP{Name(guid, 3), 1}, deploying, drained, 0},
		},
		"a stop before the deployment still has to drain": {
			observed(deploymentOf5, lrp(2, 3), pods(2, 3, 0)), decision{"delete what has to go", DeleteLRPs{[]string{Name(guid, 2)}}, starting, draining, 0},
		},
		"a canary waits": {
			observed(canary, lrp(4, 1), pods(4, 1, 0), lrp(5, 2), pods(5, 2, 0)), decision{"canary waits", Nothing{}, korifiv1alpha1.DeploymentPausedReason, drained, 0},
		},
		"a deployment that is taken back grows the old": {
			observed(cancelled, lrp(4, 1), pods(4, 1, 0), lrp(5, 2), pods(5, 2, 0)), decision{"scale", ScaleLRP{n4, 3}, starting, drained, 0},
		},
		"and keeps the new until the old serve": {
			observed(cancelled, lrp(4, 3), pods(4, 1, 0), lrp(5, 2), pods(5, 2, 0)), decision{"starting", Nothing{}, starting, drained, 0},
		},
		"then the new goes": {
			observed(cancelled, lrp(4, 3), pods(4, 3, 0), lrp(5, 2), pods(5, 2, 0)), decision{"delete what has to go", DeleteLRPs{[]string{n5}}, deploying, draining, 0},
		},
		"and is waited for": {
			observed(cancelled, lrp(4, 3), pods(4, 3, 0), dying(5), pods(5, 0, 2)), decision{"yielding", Nothing{}, deploying, draining, left},
		},
		"at once if it is of no use": {
			observed(cancelled, lrp(4, 2), pods(4, 2, 0), lrp(5, 2)), decision{"delete what has to go", DeleteLRPs{[]string{n5}}, starting, draining, 0},
		},
		"what was taken back does not come again": {observed(cancelled, lrp(4, 3), pods(4, 3, 0)), runs},
		"a deployment that is through is not taken back": {
			observed(cancelled, lrp(5, 3), pods(5, 3, 0)), runs,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.in)
			if diff := cmp.Diff(row.want, decision{p.Rule, p.Do, p.Ready.Reason, p.Draining.Reason, p.After}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (p.Ready.Status == metav1.ConditionTrue) != (p.Ready.Reason == korifiv1alpha1.RunningReason || p.Ready.Reason == korifiv1alpha1.StoppedReason) {
				t.Errorf("found %s for %s", p.Ready.Status, p.Ready.Reason)
			}
		})
	}
}

func sorted(a, b string) []string {
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
		"held": {
			observed(dying(4), pods(4, 1, 2)), "revision 5 starts when 3 instances of older revisions are gone", "3 instances are on their way out",
		},
		"timed out": {
			observed(dying(4), pods(4, 0, 3), func(o *Observed) { o.App.DrainTimeout = time.Second }),
			"0 of 3 instances of revision 5 are ready", "3 instances are left although they had 1s to end; look at their Pods",
		},
		"crashed": {
			observed(lrp(5, 3), func(o *Observed) { o.Pods = []Pods{{Revision: 5, Alive: 3, Ready: 1, Crashed: 2}} }),
			"1 of 3 instances of revision 5 are ready, 2 have crashed", "no instance of an older revision is left",
		},
		"canary": {
			observed(canary, lrp(4, 1), pods(4, 1, 0), lrp(5, 2), pods(5, 2, 0)),
			"2 of 3 instances run revision 5; continue or cancel the deployment", "no instance of an older revision is left",
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
