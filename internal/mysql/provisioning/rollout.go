// SPDX-License-Identifier: Apache-2.0

package provisioning

import (
	"fmt"
	"slices"
	"strings"
	"time"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// None is the ordinal that stands for no Pod.
const None = -1

// SettleTime is how long a Pod must be ready before a rollout continues. By then clustering has observed the Pod.
const SettleTime = 5 * time.Second

// ObservedRollout is the input for a decision about a rollout.
type ObservedRollout struct {
	// Name is the name of the cluster.
	Name string
	// Offline is true if no Pods are desired.
	Offline bool
	// RevisionKnown is true once the StatefulSet controller has reported the revision of the newest template. Until
	// then, Outdated is not reliable.
	RevisionKnown bool
	// Pods holds the desired Pods by ordinal.
	Pods []PodState
	// Primary is the ordinal of the primary that clustering has chosen, or None.
	Primary int
	// Healthy is true while clustering reports that every instance fulfills its role.
	Healthy bool
	// ClusteringStopped is true while clustering is stopped, so users may be working on the instances.
	ClusteringStopped bool
	// HasTurn is true if the cluster may be rolled out now. It is false while the maximum number of other clusters is
	// being rolled out.
	HasTurn bool
	// StoppedInstances is true while clustering is stopped for single instances.
	StoppedInstances bool
	// Forced is true while the annotation that forces rollouts is "true".
	Forced bool
}

// PodState is one Pod of the cluster.
type PodState struct {
	Exists, Ready, Terminating bool
	// Outdated is true for a Pod whose inputs differ from the user's current inputs.
	Outdated bool
	// IsKept is true for a Pod that another version of Torpor created from the same inputs.
	IsKept bool
	// Served is true for a Pod that clustering has made available to clients with a role label. It is false for a new
	// Pod. Therefore true means that clustering has observed this particular Pod and found it fit to serve.
	Served bool
	// DemotionRequested is true for a primary with a switchover request.
	DemotionRequested bool
	// ReadyFor is how long the Pod has been ready.
	ReadyFor time.Duration
}

// RolloutAction is the action of a rollout in one pass.
//
//sumtype:decl
type RolloutAction interface{ action() }

// Nothing does not change any Pod.
type Nothing struct{}

// ReplacePod deletes a Pod. The StatefulSet controller creates its replacement.
type ReplacePod struct{ Ordinal int }

// RequestSwitchover requests a switchover to another instance.
type RequestSwitchover struct{ Ordinal int }

func (Nothing) action()           {}
func (ReplacePod) action()        {}
func (RequestSwitchover) action() {}

// RolloutPlan is the next step of a rollout.
type RolloutPlan struct {
	// Rule is the name of the rule that matched.
	Rule string
	// Action is the action to perform.
	Action RolloutAction
	// Done is true when every Pod is ready and none has to be replaced, or the cluster is offline.
	Done bool
	// Message describes the condition that the rollout waits for. It is empty if the rollout does not wait.
	Message string
	// RequeueAfter is the delay before the next pass. Zero means that an event triggers it.
	RequeueAfter time.Duration
	// TakesTurn is true for a step that requires a turn, which is the permission to roll out this cluster. The cluster
	// keeps the turn until a plan with EndsTurn. A forced rollout does not require a turn.
	TakesTurn, EndsTurn bool
	// Forced is true for a step that is allowed only because the annotation forces the rollout.
	Forced bool
}

const (
	// rolloutRetry is the poll interval for states without events.
	rolloutRetry = 2 * time.Second
	// turnRetry is the poll interval of a rollout that waits for the rollouts of other clusters.
	turnRetry = 10 * time.Second
)

// forcedBy is the end of the message for a step that is allowed only because the annotation forces the rollout.
const forcedBy = ", although the cluster is not healthy, because of the annotation " + mocov1beta2.ForceRolloutAnnotation

// DecideRollout decides which Pod of a rollout is replaced next. Pods are replaced one at a time, replicas from the
// highest ordinal to the lowest, the primary last and after a switchover. A serving Pod is replaced only while the
// cluster is healthy. A Pod that does not serve may be replaced at any time, if no other Pod is being replaced. A
// forced rollout does not wait for a healthy cluster, and may restart a primary that no replica follows.
func DecideRollout(o ObservedRollout) RolloutPlan {
	outdated := o.ordinalsWhere(func(p PodState) bool { return p.Outdated })
	absent := o.ordinalsWhere(func(p PodState) bool { return !p.Exists || p.Terminating })
	down := o.ordinalsWhere(func(p PodState) bool { return !p.Outdated && !p.Ready })
	broken := o.nextOrdinalWhere(func(p PodState) bool { return p.Outdated && !p.Ready })
	replica := o.nextOrdinalWhere(func(p PodState) bool { return p.Outdated })
	young := o.shortestReadyTime()
	unserved := o.ordinalsWhere(func(p PodState) bool { return !p.Served })
	switch {
	case o.Offline:
		return RolloutPlan{Rule: "cluster is offline", Action: Nothing{}, Done: true, EndsTurn: true}
	case !o.RevisionKnown:
		return waitingPlan("the template is new", "the StatefulSet controller has not observed the newest template yet")
	case len(absent) == 0 && len(outdated) == 0 && len(down) == 0:
		return RolloutPlan{Rule: "rollout is complete", Action: Nothing{}, Done: true, EndsTurn: true}
	case len(outdated) == 0:
		return waitingPlan("nothing to replace", "waiting for "+o.podNames(unionSorted(absent, down)))
	case o.ClusteringStopped:
		return waitingPlan("clustering is stopped", fmt.Sprintf("the rollout waits while clustering is stopped; still to be replaced: %s; "+
			"to continue, run: kubectl moco start clustering %s", o.podNames(outdated), o.Name)).endTurn()
	case o.StoppedInstances:
		return waitingPlan("clustering of instances is stopped", fmt.Sprintf("the rollout waits while clustering is stopped for single "+
			"instances; still to be replaced: %s; to continue, remove the annotation %s", o.podNames(outdated), mocov1beta2.StoppedInstancesAnnotation)).endTurn()
	// The rollout also waits while a new Pod is not ready, because a broken template must not reach a second serving
	// Pod. If the new Pod can become ready only after the broken primary's Pod is replaced, the rollout must be forced.
	case len(absent) > 0 || len(down) > 0 && (!o.Forced || broken == None):
		return waitingPlan("another Pod is not ready", "the rollout waits for "+o.podNames(unionSorted(absent, down)))
	// The new template may fix a broken Pod, so its replacement does not wait for a healthy cluster. A broken primary
	// still comes last, because a failover to an outdated serving replica is possible.
	case broken != None && (broken != o.Primary || len(outdated) == 1 || len(down) > 0):
		return RolloutPlan{Rule: "replace a broken Pod", Action: ReplacePod{broken}, Message: "replacing " + o.podNames([]int{broken}) + ", which is not ready", RequeueAfter: rolloutRetry, Forced: len(down) > 0}
	case !o.Healthy && o.Forced && young >= SettleTime:
		return RolloutPlan{Rule: "forced replacement", Action: ReplacePod{replica}, Message: "replacing " + o.podNames([]int{replica}) + forcedBy, RequeueAfter: rolloutRetry, Forced: true}
	case (!o.Healthy || o.Primary == None) && !o.Forced:
		return waitingPlan("cluster is not healthy", fmt.Sprintf("the rollout waits until the cluster is healthy; still to be replaced: %s; to continue now, with a loss of "+
			"availability, set the annotation %s: \"true\"", o.podNames(outdated), mocov1beta2.ForceRolloutAnnotation)).requeueAfter(rolloutRetry)
	// Healthy may date from before the last Pod was replaced, because clustering may be slow or hang.
	case len(unserved) > 0 && o.Healthy:
		return waitingPlan("role label is not set yet", "the rollout waits until clustering sets the role label of "+o.podNames(unserved))
	// Clustering may have observed the cluster as healthy before it observed a Pod that has just become ready.
	case young < SettleTime:
		return waitingPlan("new Pod has just become ready", "the rollout continues soon; still to be replaced: "+o.podNames(outdated)).requeueAfter(SettleTime - young)
	case !o.HasTurn && !o.Forced:
		return waitingPlan("waiting for other rollouts", "the rollout waits for the rollouts of other clusters, see torpor manager --rollouts-at-once; "+
			"still to be replaced: "+o.podNames(outdated)).requeueAfter(turnRetry)
	case replica != o.Primary:
		return RolloutPlan{Rule: "replace a replica", Action: ReplacePod{replica}, Message: "replacing " + o.podNames([]int{replica}), RequeueAfter: rolloutRetry, TakesTurn: !o.Forced}
	case len(o.Pods) == 1:
		return RolloutPlan{Rule: "replace the only Pod", Action: ReplacePod{replica}, Message: "replacing " + o.podNames([]int{replica}), RequeueAfter: rolloutRetry, TakesTurn: !o.Forced}
	default:
		return o.handOver()
	}
}

// handOver requests a switchover once, and waits until it is done.
func (o ObservedRollout) handOver() RolloutPlan {
	primary := o.podNames([]int{o.Primary})
	if o.Pods[o.Primary].DemotionRequested {
		return waitingPlan("waiting for the switchover", "the rollout waits for a switchover before "+primary+" is replaced").requeueAfter(rolloutRetry)
	}
	return RolloutPlan{
		Rule: "demote the primary", Action: RequestSwitchover{o.Primary}, RequeueAfter: rolloutRetry, TakesTurn: !o.Forced,
		Message: "requesting a switchover before " + primary + " is replaced",
	}
}

func waitingPlan(rule, why string) RolloutPlan {
	return RolloutPlan{Rule: rule, Action: Nothing{}, Message: why}
}

func (p RolloutPlan) requeueAfter(after time.Duration) RolloutPlan {
	p.RequeueAfter = after
	return p
}

// endTurn lets other clusters be rolled out while this cluster waits for the user.
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

// nextOrdinalWhere returns the highest ordinal of a Pod that matches, because StatefulSets replace Pods from the
// highest ordinal to the lowest. The primary is considered last. It returns None if no Pod matches.
func (o ObservedRollout) nextOrdinalWhere(holds func(PodState) bool) int {
	next := None
	for _, i := range o.ordinalsWhere(holds) {
		if i != o.Primary || next == None {
			next = i
		}
	}
	return next
}

// shortestReadyTime returns the ReadyFor of the Pod that became ready last, but at most SettleTime. Other rules handle
// Pods that are not ready.
func (o ObservedRollout) shortestReadyTime() time.Duration {
	least := SettleTime
	for _, p := range o.Pods {
		if p.Ready {
			least = min(least, p.ReadyFor)
		}
	}
	return least
}

// DescribeKeptPods lists the Pods that this version of Torpor would create differently, and describes how to replace
// them. It returns "" if none exist.
func (o ObservedRollout) DescribeKeptPods() string {
	kept := o.ordinalsWhere(func(p PodState) bool { return p.IsKept })
	if len(kept) == 0 {
		return ""
	}
	return fmt.Sprintf("created by another version of Torpor and kept until the spec or a setting changes: %s; to replace these Pods now, one at a time, "+
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

// unionSorted returns the sorted union of two lists.
func unionSorted(a, b []int) []int {
	list := slices.Concat(a, b)
	slices.Sort(list)
	return slices.Compact(list)
}
