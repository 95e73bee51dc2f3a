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

// SettleTime is how long a Pod has to be ready before it counts: by then clustering has looked at it.
const SettleTime = 5 * time.Second

// ObservedRollout is what a rollout depends on.
type ObservedRollout struct {
	// Name is that of the cluster.
	Name string
	// Offline is true when no Pod is desired.
	Offline bool
	// RevisionKnown is true when the StatefulSet controller has reported the revision of the newest template. Before that
	// Outdated cannot be trusted.
	RevisionKnown bool
	// Pods by ordinal, as many as are desired.
	Pods []PodState
	// Primary is the ordinal of the one that takes writes, or None.
	Primary int
	// Healthy is true while clustering reports that every instance does what its role demands.
	Healthy bool
	// ClusteringStopped is true while people work on the instances.
	ClusteringStopped bool
	// HasTurn is true unless as many other clusters as may are rolled out now.
	HasTurn bool
	// StoppedInstances is true while people work on single instances.
	StoppedInstances bool
}

// PodState is one Pod of the cluster.
type PodState struct {
	Exists, Ready, Terminating bool
	// Outdated is true for a Pod that was made for something else than users ask for now.
	Outdated bool
	// IsKept is true for a Pod that another version of Torpor made for the same.
	IsKept bool
	// Served is true for a Pod that clustering has let clients find. A Pod that was made anew begins without, so that clustering
	// has looked at this very Pod, and found it following, since.
	Served bool
	// DemotionRequested is true for a primary that was asked to hand over.
	DemotionRequested bool
	// ReadyFor is how long it has been ready.
	ReadyFor time.Duration
}

// RolloutAction is the effect of a rollout in one pass.
//
//sumtype:decl
type RolloutAction interface{ action() }

// Nothing leaves all Pods alone.
type Nothing struct{}

// ReplacePod deletes a Pod; the StatefulSet controller makes it anew.
type ReplacePod struct{ Ordinal int }

// RequestSwitchover asks clustering to make another instance the primary.
type RequestSwitchover struct{ Ordinal int }

func (Nothing) action()           {}
func (ReplacePod) action()        {}
func (RequestSwitchover) action() {}

// RolloutPlan is the next step of a rollout.
type RolloutPlan struct {
	// Rule is the name of the rule that matched.
	Rule string
	// Action is the effect.
	Action RolloutAction
	// Done is true when every Pod is ready and of the newest revision.
	Done bool
	// Message names what is waited for; empty if nothing is.
	Message string
	// RequeueAfter is when to look again; zero waits for an event.
	RequeueAfter time.Duration
	// TakesTurn is true for a step for which the cluster needs a turn, and keeps it until a plan with EndsTurn.
	TakesTurn, EndsTurn bool
}

const (
	// rolloutRetry is when to look again at what sends no event.
	rolloutRetry = 2 * time.Second
	// turnRetry is when to look again whether another cluster has ended its turn.
	turnRetry = 10 * time.Second
)

// DecideRollout says which Pod of a rollout is replaced next: one after the other, the primary last and after a switchover. A
// Pod that serves is replaced only while all is well; one that does not serve may be replaced at any time, as long as no
// other is on its way.
func DecideRollout(o ObservedRollout) RolloutPlan {
	outdated := o.ordinalsWhere(func(p PodState) bool { return p.Outdated })
	absent := o.ordinalsWhere(func(p PodState) bool { return !p.Exists || p.Terminating })
	down := o.ordinalsWhere(func(p PodState) bool { return !p.Outdated && !p.Ready })
	broken := o.firstOrdinalWhere(func(p PodState) bool { return p.Outdated && !p.Ready })
	replica := o.firstOrdinalWhere(func(p PodState) bool { return p.Outdated })
	young := o.shortestReadyTime()
	unserved := o.ordinalsWhere(func(p PodState) bool { return !p.Served })
	switch {
	case o.Offline:
		return RolloutPlan{Rule: "offline", Action: Nothing{}, Done: true, EndsTurn: true}
	case !o.RevisionKnown:
		return waitingPlan("the template is new", "the StatefulSet controller has not seen the newest template yet")
	case len(absent) == 0 && len(outdated) == 0 && len(down) == 0:
		return RolloutPlan{Rule: "done", Action: Nothing{}, Done: true, EndsTurn: true}
	case len(outdated) == 0:
		return waitingPlan("nothing to replace", "waiting for "+o.podNames(unionSorted(absent, down)))
	case o.ClusteringStopped:
		return waitingPlan("clustering is stopped", fmt.Sprintf("the rollout waits while clustering is stopped; of an older revision: %s; "+
			"to go on, run: kubectl moco start clustering %s", o.podNames(outdated), o.Name)).endTurn()
	case o.StoppedInstances:
		return waitingPlan("instances are stopped", fmt.Sprintf("the rollout waits while clustering leaves single instances alone; of an older "+
			"revision: %s; to go on, remove the annotation clustering-stopped-instances", o.podNames(outdated))).endTurn()
	// Also while a new Pod is not ready: a template that does not work must not reach a second Pod.
	case len(absent) > 0 || len(down) > 0:
		return waitingPlan("one at a time", "the rollout waits for "+o.podNames(unionSorted(absent, down)))
	// The new template may be what mends a broken Pod, so that it does not wait for health. A broken primary still comes
	// last: an outdated replica that serves could take over from it.
	case broken != None && (broken != o.Primary || len(outdated) == 1):
		return RolloutPlan{Rule: "replace a broken Pod", Action: ReplacePod{broken}, Message: "replacing " + o.podNames([]int{broken}) + ", which is not ready", RequeueAfter: rolloutRetry}
	case !o.Healthy || o.Primary == None:
		return waitingPlan("not healthy", "the rollout waits until the cluster is healthy; of an older revision: "+o.podNames(outdated)).requeueAfter(rolloutRetry)
	// Healthy may be what clustering, which may be slow or hang, found before the last Pod was replaced.
	case len(unserved) > 0:
		return waitingPlan("not looked at", "the rollout waits until clustering lets clients find "+o.podNames(unserved))
	// Clustering may have observed a cluster as healthy before it looked at a Pod that just became ready.
	case young < SettleTime:
		return waitingPlan("settle", "the rollout goes on soon; of an older revision: "+o.podNames(outdated)).requeueAfter(SettleTime - young)
	case !o.HasTurn:
		return waitingPlan("no turn", "the rollout waits for those of other clusters, see torpor manager --rollouts-at-once; of an older revision: "+o.podNames(outdated)).requeueAfter(turnRetry)
	case replica != o.Primary:
		return RolloutPlan{Rule: "replace a replica", Action: ReplacePod{replica}, Message: "replacing " + o.podNames([]int{replica}), RequeueAfter: rolloutRetry, TakesTurn: true}
	case len(o.Pods) == 1:
		return RolloutPlan{Rule: "replace the only Pod", Action: ReplacePod{replica}, Message: "replacing " + o.podNames([]int{replica}), RequeueAfter: rolloutRetry, TakesTurn: true}
	case !o.Pods[o.Primary].DemotionRequested:
		return RolloutPlan{
			Rule: "demote the primary", Action: RequestSwitchover{o.Primary}, RequeueAfter: rolloutRetry, TakesTurn: true,
			Message: "asking for a switchover before " + o.podNames([]int{o.Primary}) + " is replaced",
		}
	default:
		return waitingPlan("switchover", "the rollout waits for a switchover before "+o.podNames([]int{o.Primary})+" is replaced").requeueAfter(rolloutRetry)
	}
}

func waitingPlan(rule, why string) RolloutPlan {
	return RolloutPlan{Rule: rule, Action: Nothing{}, Message: why}
}

func (p RolloutPlan) requeueAfter(after time.Duration) RolloutPlan {
	p.RequeueAfter = after
	return p
}

// endTurn lets another cluster be rolled out while this one waits for people.
func (p RolloutPlan) endTurn() RolloutPlan {
	p.EndsTurn = true
	return p
}

func (o ObservedRollout) ordinalsWhere(holds func(PodState) bool) []int {
	var list []int
	for i, p := range o.Pods {
		if holds(p) {
			list = append(list, i)
		}
	}
	return list
}

// firstOrdinalWhere returns the first Pod that matches, the primary last; None if there is none.
func (o ObservedRollout) firstOrdinalWhere(holds func(PodState) bool) int {
	list := o.ordinalsWhere(holds)
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

// shortestReadyTime is that of the Pod that became ready last, at most SettleTime.
func (o ObservedRollout) shortestReadyTime() time.Duration {
	least := SettleTime
	for _, p := range o.Pods {
		least = min(least, p.ReadyFor)
	}
	return least
}

// DescribeKeptPods says which Pods another version of Torpor would make differently, and how to replace them; empty if there are none.
func (o ObservedRollout) DescribeKeptPods() string {
	kept := o.ordinalsWhere(func(p PodState) bool { return p.IsKept })
	if len(kept) == 0 {
		return ""
	}
	return fmt.Sprintf("as another version of Torpor made them stay, until the spec or a setting changes: %s; to replace them now, one at a time, "+
		"run: kubectl rollout restart statefulset moco-%s", o.podNames(kept), o.Name)
}

func (o ObservedRollout) podNames(ordinals []int) string {
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

// unionSorted merges two lists.
func unionSorted(a, b []int) []int {
	list := slices.Concat(a, b)
	slices.Sort(list)
	return slices.Compact(list)
}
