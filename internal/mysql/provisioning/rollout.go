// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// None is the primary of a cluster that has none yet.
const None = -1

// Settle is how long a Pod has to be ready before it counts: by then clustering has looked at it.
const Settle = 5 * time.Second

// Observed is what a rollout depends on.
type Observed struct {
	// Name of the cluster.
	Name string
	// Offline: no Pod is wanted.
	Offline bool
	// Known: the revision of the newest template is known, so that Outdated can be trusted.
	Known bool
	// Pods by ordinal, as many as are wanted.
	Pods []Pod
	// Primary is the ordinal of the one that takes writes, or None.
	Primary int
	// Healthy: clustering vouches for every instance.
	Healthy bool
	// ClusteringStopped: somebody works on the instances.
	ClusteringStopped bool
	// StoppedInstances: somebody works on single instances.
	StoppedInstances bool
}

// Pod is one of the cluster's.
type Pod struct {
	Exists, Ready, Terminating bool
	// Outdated: it was made from an older template.
	Outdated bool
	// Demote: it is asked to hand over.
	Demote bool
	// ReadyFor is how long it has been ready.
	ReadyFor time.Duration
}

// Action is one effect.
//
//sumtype:decl
type Action interface{ action() }

// Nothing is to be done.
type Nothing struct{}

// Replace deletes the Pod, and the StatefulSet makes it anew.
type Replace struct{ Ordinal int }

// Demote asks clustering to make another instance the primary.
type Demote struct{ Ordinal int }

func (Nothing) action() {}
func (Replace) action() {}
func (Demote) action()  {}

// Plan is what Decide wants.
type Plan struct {
	// Rule is the name of the rule that matched.
	Rule string
	// Do is the effect.
	Do Action
	// Done: every Pod is ready and of the newest revision.
	Done bool
	// Why says what is waited for; empty if nothing is.
	Why string
	// After is when to look again; zero waits for an event.
	After time.Duration
}

// retry is when to look again at what tells nobody.
const retry = 2 * time.Second

// Decide says which Pod of a rollout is replaced next: one after the other, the primary last and after a switchover. A
// Pod that serves is replaced only while all is well; one that does not serve may be replaced at any time, as long as no
// other is on its way.
func Decide(o Observed) Plan {
	outdated := o.which(func(p Pod) bool { return p.Outdated })
	absent := o.which(func(p Pod) bool { return !p.Exists || p.Terminating })
	down := o.which(func(p Pod) bool { return !p.Outdated && !p.Ready })
	broken := o.next(func(p Pod) bool { return p.Outdated && !p.Ready })
	replica := o.next(func(p Pod) bool { return p.Outdated })
	young := o.youngest()
	switch {
	case o.Offline:
		return Plan{Rule: "offline", Do: Nothing{}, Done: true}
	case !o.Known:
		return wait("the template is new", "the StatefulSet controller has not seen the newest template yet")
	case len(absent) == 0 && len(outdated) == 0 && len(down) == 0:
		return Plan{Rule: "done", Do: Nothing{}, Done: true}
	case len(outdated) == 0:
		return wait("nothing to replace", "waiting for "+o.pods(union(absent, down)))
	case o.ClusteringStopped:
		return wait("clustering is stopped", fmt.Sprintf("the rollout waits while clustering is stopped; of an older revision: %s; "+
			"to go on, run: kubectl moco start clustering %s", o.pods(outdated), o.Name))
	case o.StoppedInstances:
		return wait("instances are stopped", fmt.Sprintf("the rollout waits while clustering leaves single instances alone; of an older "+
			"revision: %s; to go on, remove the annotation clustering-stopped-instances", o.pods(outdated)))
	case len(absent) > 0 || len(down) > 0:
		return wait("one at a time", "the rollout waits for "+o.pods(union(absent, down)))
	case broken != None && (broken != o.Primary || len(outdated) == 1):
		return Plan{Rule: "replace a broken Pod", Do: Replace{broken}, Why: "replacing " + o.pods([]int{broken}) + ", which is not ready", After: retry}
	case !o.Healthy || o.Primary == None:
		return wait("not healthy", "the rollout waits until the cluster is healthy; of an older revision: "+o.pods(outdated)).again(retry)
	case young < Settle:
		return wait("settle", "the rollout goes on soon; of an older revision: "+o.pods(outdated)).again(Settle - young)
	case replica != o.Primary:
		return Plan{Rule: "replace a replica", Do: Replace{replica}, Why: "replacing " + o.pods([]int{replica}), After: retry}
	case len(o.Pods) == 1:
		return Plan{Rule: "replace the only Pod", Do: Replace{replica}, Why: "replacing " + o.pods([]int{replica}), After: retry}
	case !o.Pods[o.Primary].Demote:
		return Plan{
			Rule: "demote the primary", Do: Demote{o.Primary}, After: retry,
			Why: "asking for a switchover before " + o.pods([]int{o.Primary}) + " is replaced",
		}
	default:
		return wait("switchover", "the rollout waits for a switchover before "+o.pods([]int{o.Primary})+" is replaced").again(retry)
	}
}

func wait(rule, why string) Plan { return Plan{Rule: rule, Do: Nothing{}, Why: why} }

func (p Plan) again(after time.Duration) Plan {
	p.After = after
	return p
}

func (o Observed) which(holds func(Pod) bool) []int {
	var list []int
	for i, p := range o.Pods {
		if holds(p) {
			list = append(list, i)
		}
	}
	return list
}

// next is the first Pod of its kind, the primary last; None if there is none.
func (o Observed) next(holds func(Pod) bool) int {
	list := o.which(holds)
	for _, i := range list {
		if i != o.Primary {
			return i
		}
	}
	if len(list) == 0 {
		return None
	}
	return list[0]
}

// youngest is how long the Pod has been ready that became so last.
func (o Observed) youngest() time.Duration {
	least := Settle
	for _, p := range o.Pods {
		least = min(least, p.ReadyFor)
	}
	return least
}

// pods are the names of Pods for people.
func (o Observed) pods(ordinals []int) string {
	const most = 3
	var names []string
	for _, i := range ordinals[:min(most, len(ordinals))] {
		names = append(names, fmt.Sprintf("moco-%s-%d", o.Name, i))
	}
	text := "Pod " + strings.Join(names, ", ")
	if rest := len(ordinals) - most; rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	return text
}

// union of two sorted lists, sorted.
func union(a, b []int) []int {
	list := slices.Concat(a, b)
	slices.Sort(list)
	return slices.Compact(list)
}
