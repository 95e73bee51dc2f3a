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

// Where the owner of a cluster gives it time for that, the pods of its workers are evicted before the first machine is stopped. What the drain
// is for is over once that time is: a stop is never kept from going on. Nodes that were cordoned for it are marked, and uncordoned at the
// resume (docs/adr/0036-workers-stop-first.md).

// NodeVersion names a node as it was seen, so that nothing is done to one that somebody has changed since.
type NodeVersion struct{ Name, UID, ResourceVersion string }

// NodeCordon is whether a node takes pods.
type NodeCordon struct {
	// IsSet says that it takes none, and IsOurs that this was done for a drain.
	IsSet, IsOurs bool
	// IsRefused says that the cluster has refused for good to have it changed.
	IsRefused bool
	// ResourceVersion is that of the node.
	ResourceVersion string
}

// ObservedPod is a pod of a worker. Those of DaemonSets and those that their node alone knows of are left out: they go with it.
type ObservedPod struct {
	Namespace, Name, UID, Node string
	// IsLeaving says that it is being deleted.
	IsLeaving bool
	// IsBare says that it has no controller, so that nothing would make another one of it.
	IsBare bool
	// IsRefused says that the cluster has refused for good to have it evicted.
	IsRefused bool
}

// WorkerPods are the pods of the workers of a cluster that is drained.
type WorkerPods struct {
	// IsRead says that they were read, and HasMore that there are more than those.
	IsRead, HasMore bool
	// IsForbidden says that the cluster has refused for good to have them read.
	IsForbidden bool
	Pods        []ObservedPod
	// Kept are names of pods that PodDisruptionBudgets have kept when they were to be evicted last.
	Kept []string
	// Error says why pods could not be read, or nodes and pods not changed; empty if they could.
	Error string
}

// DrainWorkers asks a cluster to give no pods to nodes any more, and to evict pods.
type DrainWorkers struct {
	Cordon []NodeVersion
	Evict  []ObservedPod
}

// UncordonNodes asks a cluster to give pods to nodes again.
type UncordonNodes struct{ Nodes []NodeVersion }

func (DrainWorkers) isAction()  {}
func (UncordonNodes) isAction() {}

const (
	// drainInterval is how often a cluster that is drained is looked at.
	drainInterval = 2 * time.Second
	// maxDrainNote is what the schema of the record allows.
	maxDrainNote = 1024
)

// isDraining reports whether the drain of a hibernation is not over.
func (o Observed) isDraining() bool {
	return o.shouldHibernate() && o.isHibernationOpen() && o.Record.Drain != nil && o.Record.Drain.EndedAt == nil
}

// drainEndsAt follows what the owner says now: without a budget the drain is over.
func (o Observed) drainEndsAt() time.Time {
	return o.Record.SleepStartedAt.Add(o.Options.DrainBudget)
}

// needsDrainLook reports whether the cluster shows what the drain is about. After its time it is looked at once more, to tell what is left.
func (o Observed) needsDrainLook() bool {
	return o.isDraining() && o.anyMachineIs(actuator.Running)
}

// awaitsDrain reports whether machines are left on so that their pods can go.
func (o Observed) awaitsDrain() bool {
	return o.needsDrainLook() && o.Now.Before(o.drainEndsAt()) && !o.isDrained() && !o.isDrainRefused()
}

// NeedsPods reports whether the pods of the workers matter.
func NeedsPods(o Observed) bool {
	return NeedsNodes(o) && o.needsDrainLook()
}

func (o Observed) isDrained() bool {
	isKnown := o.API == Reachable && o.Pods.IsRead && !o.Pods.HasMore
	return isKnown && len(o.nodesToCordon()) == 0 && !slices.ContainsFunc(o.Pods.Pods, func(p ObservedPod) bool { return !p.IsBare || p.IsLeaving })
}

// isDrainRefused reports whether the cluster has refused for good all that is left of a drain, which no time mends. What it refuses is asked for
// again while there is something else to do or to wait for.
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

// podsToEvict are those of nodes that take no others: they would only move.
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

// drainWorkers evicts again and again, because budgets allow more once pods are ready elsewhere.
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

// formatBudget leaves out what is zero: 10m instead of 10m0s.
func formatBudget(d time.Duration) string {
	text := d.String()
	for _, zero := range []struct{ after, part string }{{"m", "0s"}, {"h", "0m"}} {
		if strings.HasSuffix(text, zero.after+zero.part) {
			text = strings.TrimSuffix(text, zero.part)
		}
	}
	return text
}

// drainMessage names pods only once they are late: a message that changes with every pod is a write each.
func (o Observed) drainMessage() string {
	message := fmt.Sprintf("Draining the workers before the machines are stopped, for %s at the longest", formatBudget(o.Options.DrainBudget))
	if left := o.undrained(); left != "" && o.Now.Sub(o.Record.SleepStartedAt.Time) > lateAfter {
		message += "; left: " + left
	}
	return message + o.Options.ignoredNote()
}

// endDrain only writes status, so that a manager that dies afterwards does not drain what is about to be stopped.
func endDrain(o Observed) Plan {
	p := stoppingPlan(o)
	p.Record = p.Record.DeepCopy()
	p.Record.Drain = &hivev1.DrainRecord{EndedAt: new(metav1.NewTime(o.Now)), Left: o.undrained()}
	p.RequeueAfter = immediately
	return p
}

// undrained says what was not drained.
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
		{"nodes that the cluster lets nobody cordon", o.closedNodes()},
		{"pods kept by PodDisruptionBudgets", kept},
		{"pods that are still being deleted", leaving},
		{"pods that the cluster lets nobody evict", refused},
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

// closedNodes are those that the cluster has refused to have cordoned.
func (o Observed) closedNodes() (names []string) {
	for _, n := range o.Nodes {
		if n.Cordon.IsRefused && !n.Cordon.IsSet {
			names = append(names, n.Name)
		}
	}
	return names
}

// drainNote says what was not drained while the machines are stopped.
func (o Observed) drainNote() string {
	if !o.isHibernationOpen() || o.Record.Drain == nil || o.Record.Drain.Left == "" {
		return ""
	}
	return "; the workers were not drained of everything; left: " + o.Record.Drain.Left
}

// stopBeganAt is when machines were to be stopped first.
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

// newDrain is that of a hibernation that begins; nil without a budget.
func (o Observed) newDrain() *hivev1.DrainRecord {
	switch {
	case o.Options.DrainBudget == 0:
		return nil
	case o.API != Reachable:
		return &hivev1.DrainRecord{EndedAt: new(metav1.NewTime(o.Now)), Left: "everything, because the API server does not answer"}
	default:
		return &hivev1.DrainRecord{}
	}
}

// nodesToUncordon are those that were cordoned for a drain.
func (o Observed) nodesToUncordon() []NodeVersion {
	var nodes []NodeVersion
	for _, n := range o.Nodes {
		if n.Cordon.IsOurs {
			nodes = append(nodes, n.version())
		}
	}
	return nodes
}

// awaitsUncordon reports whether a resuming cluster does not run before its nodes take pods again. That has the same end as the wait for
// operators; it is tried on after that.
func (o Observed) awaitsUncordon() bool {
	return o.isOperatorWaitOpen() && len(o.nodesToUncordon()) > 0
}

func awaitUncordon(o Observed) Plan {
	p := resumingPlan(o, decision.False(hivev1.WaitingForNodesReason, "The nodes are back; those that were cordoned for the drain before the stop are being uncordoned"+o.cordonNote()))
	p.RequeueAfter, p.ProbeInterval = machineWaitInterval, drainInterval
	return o.withAction(p)
}

// cordonNote names nodes that should take pods and do not.
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
