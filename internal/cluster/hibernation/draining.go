// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// If the cluster's owner sets a drain budget, the Pods of the workers are evicted before the first machine is
// stopped. The drain stops when the budget has elapsed, and never blocks a stop. Nodes that were cordoned for the
// drain are marked and uncordoned at the resume (docs/adr/0036-workers-stop-first.md).

// NodeVersion identifies an observed version of a node, so an update fails if the node has changed in between.
type NodeVersion struct{ Name, UID, ResourceVersion string }

// NodeCordon describes whether Pods can be scheduled on a node.
type NodeCordon struct {
	// IsSet is true if the node is cordoned. IsOurs is true if Torpor cordoned it for a drain.
	IsSet, IsOurs bool
	// IsRefused is true if the cluster has permanently refused to change the node.
	IsRefused bool
	// ResourceVersion is the observed resource version of the node.
	ResourceVersion string
}

// ObservedPod is a Pod of a worker. Pods of DaemonSets and static Pods are omitted: they stop with their node.
type ObservedPod struct {
	Namespace, Name, UID, Node string
	// IsLeaving is true if the Pod is being deleted.
	IsLeaving bool
	// IsBare is true if the Pod has no controller that would recreate it. Such a Pod is not evicted.
	IsBare bool
	// IsRefused is true if the cluster has permanently refused to evict the Pod.
	IsRefused bool
}

// WorkerPods are the Pods of the workers while a cluster is being drained.
type WorkerPods struct {
	// IsRead is true if the Pods were read, and HasMore if there are more Pods than were read.
	IsRead, HasMore bool
	// IsForbidden is true if the cluster has permanently refused to list the Pods.
	IsForbidden bool
	Pods        []ObservedPod
	// Kept are the Pods, as NAMESPACE/NAME, whose last eviction a PodDisruptionBudget or a rate limit prevented.
	Kept []string
	// Error is the error of reading Pods, or of changing nodes and Pods; empty without an error.
	Error string
}

// DrainWorkers cordons nodes and evicts Pods.
type DrainWorkers struct {
	Cordon []NodeVersion
	Evict  []ObservedPod
}

// UncordonNodes uncordons nodes.
type UncordonNodes struct{ Nodes []NodeVersion }

func (DrainWorkers) isAction()  {}
func (UncordonNodes) isAction() {}

const (
	// drainInterval is the interval of probing a cluster during its drain, and while its nodes are uncordoned.
	drainInterval = 2 * time.Second
	// maxDrainNote is the limit in the record's schema.
	maxDrainNote = 1024
)

// isDraining reports whether the drain of a hibernation is in progress.
func (o Observed) isDraining() bool {
	return o.shouldHibernate() && o.isHibernationOpen() && o.Record.Drain != nil && o.Record.Drain.EndedAt == nil
}

// drainEndsAt returns the latest end of the drain. It uses the current value of the option: removing the budget stops
// the drain.
func (o Observed) drainEndsAt() time.Time {
	return o.Record.SleepStartedAt.Add(o.Options.DrainBudget)
}

// needsDrainLook reports whether the drain must be observed. It is observed once more after the budget has elapsed, to
// report the remaining Pods.
func (o Observed) needsDrainLook() bool {
	return o.isDraining() && o.anyMachineIs(actuator.Running)
}

// awaitsDrain reports whether machines are left on while Pods are evicted.
func (o Observed) awaitsDrain() bool {
	return o.needsDrainLook() && o.Now.Before(o.drainEndsAt()) && !o.isDrained() && !o.isDrainRefused()
}

// NeedsPods reports whether the Pods of the workers must be read.
func NeedsPods(o Observed) bool {
	return NeedsNodes(o) && o.needsDrainLook()
}

func (o Observed) isDrained() bool {
	isKnown := o.API == Reachable && o.Pods.IsRead && !o.Pods.HasMore
	return isKnown && len(o.nodesToCordon()) == 0 && !slices.ContainsFunc(o.Pods.Pods, func(p ObservedPod) bool { return !p.IsBare || p.IsLeaving })
}

// isDrainRefused reports whether the cluster has permanently refused all remaining steps of a drain, or a lasting
// problem prevents connections. Refused steps are retried while other steps remain.
func (o Observed) isDrainRefused() bool {
	switch {
	case o.API == Unreachable:
		return o.IsAPIForbidden || o.IsAPIProblemLasting
	case !o.Pods.IsRead:
		return o.Pods.IsForbidden
	}
	isRefused, isClosed := false, map[string]bool{}
	for _, n := range o.Nodes {
		if n.ControlPlane || n.Cordon.IsSet {
			continue
		}
		if !n.Cordon.IsRefused {
			return false
		}
		isRefused, isClosed[n.Name] = true, true
	}
	for _, p := range o.Pods.Pods {
		mayGo := !p.IsBare && !p.IsRefused && !isClosed[p.Node]
		if p.IsLeaving || mayGo {
			return false
		}
		isRefused = isRefused || p.IsRefused
	}
	return isRefused
}

func (o Observed) nodesToCordon() []NodeVersion {
	var nodes []NodeVersion
	for _, n := range o.Nodes {
		if !n.ControlPlane && !n.Cordon.IsSet {
			nodes = append(nodes, n.version())
		}
	}
	return nodes
}

func (n ObservedNode) version() NodeVersion {
	return NodeVersion{Name: n.Name, UID: n.UID, ResourceVersion: n.Cordon.ResourceVersion}
}

// podsToEvict returns the Pods that have a controller, are not being deleted, and run on cordoned nodes. The
// replacement of a Pod on another node could be scheduled on that node again.
func (o Observed) podsToEvict() []ObservedPod {
	takesPods := map[string]bool{}
	for _, n := range o.nodesToCordon() {
		takesPods[n.Name] = true
	}
	var pods []ObservedPod
	for _, p := range o.Pods.Pods {
		if !p.IsLeaving && !p.IsBare && !takesPods[p.Node] {
			pods = append(pods, p)
		}
	}
	return pods
}

// drainWorkers repeats evictions, because PodDisruptionBudgets allow more of them once Pods are ready on other nodes.
func drainWorkers(o Observed) Plan {
	p := stoppingPlan(o)
	p.Hibernating.Message = "The workers are being drained before the machines are stopped"
	p.Ready = decision.False(hivev1.DrainingWorkersReason, o.drainMessage())
	p.Unreachable = o.probedCondition()
	p.RequeueAfter, p.ProbeInterval = max(min(machineWaitInterval, o.drainEndsAt().Sub(o.Now)), minCloudInterval), drainInterval
	if do := (DrainWorkers{Cordon: o.nodesToCordon(), Evict: o.podsToEvict()}); o.API == Reachable && len(do.Cordon)+len(do.Evict) > 0 {
		p.Do = do
	}
	return p
}

// formatBudget omits zero parts, as in 10m instead of 10m0s.
func formatBudget(d time.Duration) string {
	text := d.String()
	for _, zero := range []struct{ after, part string }{{"m", "0s"}, {"h", "0m"}} {
		if strings.HasSuffix(text, zero.after+zero.part) {
			text = strings.TrimSuffix(text, zero.part)
		}
	}
	return text
}

// drainMessage lists Pods only when they are late, because each change to the message is a status write.
func (o Observed) drainMessage() string {
	message := fmt.Sprintf("Draining the workers before the machines are stopped, for at most %s", formatBudget(o.Options.DrainBudget))
	if left := o.undrained(); left != "" && o.Now.Sub(o.Record.SleepStartedAt.Time) > lateAfter {
		message += "; remaining: " + left
	}
	return message + o.Options.ignoredNote()
}

// endDrain only writes status, so a manager that restarts afterwards does not drain a cluster that is about to
// be stopped.
func endDrain(o Observed) Plan {
	p := stoppingPlan(o)
	p.Record = p.Record.DeepCopy()
	p.Record.Drain = &hivev1.DrainRecord{EndedAt: new(metav1.NewTime(o.Now)), Left: o.undrained()}
	p.RequeueAfter = immediately
	return p
}

// undrained describes the remaining nodes and Pods of the drain.
func (o Observed) undrained() string {
	var parts []string
	switch {
	case o.isDrained():
	case o.API == Unreachable:
		parts = append(parts, "the API server does not answer: "+o.APIMessage)
	case o.Pods.Error != "":
		parts = append(parts, o.Pods.Error)
	}
	var bare, leaving, kept, refused, others []string
	for _, p := range o.Pods.Pods {
		name := p.Namespace + "/" + p.Name
		switch {
		case p.IsLeaving:
			leaving = append(leaving, name)
		case p.IsBare:
			bare = append(bare, name)
		case slices.Contains(o.Pods.Kept, name):
			kept = append(kept, name)
		case p.IsRefused:
			refused = append(refused, name)
		default:
			others = append(others, name)
		}
	}
	for _, part := range []struct {
		what  string
		names []string
	}{
		{"nodes that the cluster refuses to cordon", o.closedNodes()},
		{"pods that PodDisruptionBudgets protect from eviction", kept},
		{"pods that are still being deleted", leaving},
		{"pods that the cluster refuses to evict", refused},
		{"pods that were not evicted yet", others},
		{"pods without a controller, which are not evicted", bare},
	} {
		if len(part.names) > 0 {
			parts = append(parts, part.what+": "+joinNames(part.names))
		}
	}
	if o.Pods.HasMore {
		parts = append(parts, "further pods")
	}
	text := strings.Join(parts, "; ")
	return strings.ToValidUTF8(text[:min(len(text), maxDrainNote)], "")
}

// closedNodes returns the nodes that the cluster has refused to cordon.
func (o Observed) closedNodes() (names []string) {
	for _, n := range o.Nodes {
		if n.Cordon.IsRefused && !n.Cordon.IsSet {
			names = append(names, n.Name)
		}
	}
	return names
}

// drainNote describes what remained of the drain, while the machines are stopped.
func (o Observed) drainNote() string {
	if !o.isHibernationOpen() || o.Record.Drain == nil || o.Record.Drain.Left == "" {
		return ""
	}
	return "; the workers were not drained completely; remaining: " + o.Record.Drain.Left
}

// stopBeganAt returns the time from which machines may be stopped.
func (o Observed) stopBeganAt() time.Time {
	switch drain := o.Record.Drain; {
	case drain == nil:
		return o.Record.SleepStartedAt.Time
	case drain.EndedAt == nil:
		return o.Now
	default:
		return drain.EndedAt.Time
	}
}

// newDrain returns the drain of a new hibernation, or nil without a budget.
func (o Observed) newDrain() *hivev1.DrainRecord {
	switch {
	case o.Options.DrainBudget == 0:
		return nil
	case o.API != Reachable:
		return &hivev1.DrainRecord{EndedAt: new(metav1.NewTime(o.Now)), Left: "all Pods, because the API server does not answer"}
	default:
		return &hivev1.DrainRecord{}
	}
}

// nodesToUncordon returns the nodes that were cordoned for a drain.
func (o Observed) nodesToUncordon() []NodeVersion {
	var nodes []NodeVersion
	for _, n := range o.Nodes {
		if n.Cordon.IsOurs {
			nodes = append(nodes, n.version())
		}
	}
	return nodes
}

// awaitsUncordon reports whether a resuming cluster waits until its nodes are uncordoned. This wait ends together
// with the wait for operators. Uncordoning is still retried after that.
func (o Observed) awaitsUncordon() bool {
	return o.isInResumeWait() && len(o.nodesToUncordon()) > 0
}

func awaitUncordon(o Observed) Plan {
	p := resumingPlan(o, decision.False(hivev1.WaitingForNodesReason, "The nodes have reported; nodes that were cordoned for the drain are being uncordoned"+o.cordonNote()))
	p.RequeueAfter, p.ProbeInterval = machineWaitInterval, drainInterval
	return o.withAction(p)
}

// cordonNote lists the nodes that cannot be uncordoned.
func (o Observed) cordonNote() string {
	nodes := o.nodesToUncordon()
	if len(nodes) == 0 || o.CordonError == "" {
		return ""
	}
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return "; cordoned nodes that cannot be uncordoned: " + joinNames(names) + ": " + o.CordonError
}
