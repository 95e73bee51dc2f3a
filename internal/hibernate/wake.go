// SPDX-License-Identifier: Apache-2.0

package hibernate

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// The plans of a cluster that should run.

func startMachines(o Observed) Plan {
	p := waking(o, starting(o))
	p.Do = Start{IDs: o.in(actuator.Stopped)}
	p.After = minPace
	return p
}

func waitStarted(o Observed) Plan {
	p := waking(o, starting(o))
	p.After = pace(p.Record.ResumeStartedAt.Time, o.Now)
	return p
}

func waitAPI(o Observed) Plan {
	p := waking(o, isFalse(hivev1.WaitingForAPIReason, "The machines run; waiting for the API server to answer"))
	p.After = fastPace(p.Record.ResumeStartedAt.Time, o.Now)
	return p
}

func waitNodes(o Observed) Plan {
	p := waking(o, isFalse(hivev1.WaitingForNodesReason, fmt.Sprintf("Waiting for nodes to report since the machines were started: %s", few(o.missing()))))
	p.Unreachable = reachable()
	p.After = fastPace(p.Record.ResumeStartedAt.Time, o.Now)
	return p
}

// approve leaves the conditions as the next rules would: the approvals themselves are told by events.
func approve(o Observed) Plan {
	requests := o.Approvable
	o.Approvable = nil
	p := Decide(o)
	p.Do, p.After = Approve{Requests: requests}, now
	return p
}

func running(o Observed) Plan {
	p := Plan{
		Hibernating: isFalse(hivev1.RunningHibernationReason, "The cluster runs"),
		Ready:       isTrue(hivev1.RunningHibernationReason, "The cluster runs and answers"),
		Unreachable: reachable(),
		Record:      o.Record,
		After:       driftInterval,
	}
	if o.resuming() {
		p.Record = wakeRecord(o).DeepCopy()
		p.Record.ResumedAt = new(metav1.NewTime(o.Now))
		p.After = minCare
	}
	if o.aftercare() {
		p.After = carePace(o.Record.ResumedAt.Time, o.Now)
	}
	return p
}

func runningUnreachable(o Observed) Plan {
	return Plan{
		Hibernating: isFalse(hivev1.RunningHibernationReason, "The cluster should run"),
		Ready:       isFalse(hivev1.APIUnreachableReason, "The API server does not answer: "+o.APIMessage),
		Unreachable: isTrue(hivev1.ErrorConnectingToClusterReason, o.APIMessage),
		Record:      o.Record,
		After:       retryInterval,
	}
}

// waking is the plan of a cluster whose machines do not all run although they should: it slept, or a machine was
// stopped by somebody else, which is mended as a resume of its own.
func waking(o Observed, ready Condition) Plan {
	return Plan{
		Hibernating: isTrue(hivev1.ResumingHibernationReason, "The cluster is being resumed"),
		Ready:       ready,
		Unreachable: isTrue(hivev1.ClusterAsleepReason, "The cluster is waking and does not answer yet"),
		Record:      wakeRecord(o),
	}
}

func starting(o Observed) Condition {
	r := wakeRecord(o)
	if o.Now.Sub(r.ResumeStartedAt.Time) > lateAfter {
		left := o.in(actuator.Stopped, actuator.Stopping, actuator.Starting)
		return isFalse(hivev1.WaitingForMachinesReason, fmt.Sprintf("Waiting for %s to start", o.names(left)))
	}
	return isFalse(hivev1.StartingMachinesReason, fmt.Sprintf("Starting the cluster's %d machines", len(o.Machines)))
}

func reachable() Condition {
	return isFalse(hivev1.ClusterReachableReason, "The API server answers")
}

// wakeRecord notes when the resume began. The time is rounded up to the next second, because the API keeps only seconds
// and nothing from before may count.
func wakeRecord(o Observed) *hivev1.HibernationRecord {
	if o.resuming() && !o.asleep() {
		return o.Record
	}
	r := &hivev1.HibernationRecord{SleepStartedAt: metav1.NewTime(o.Now)}
	if o.Record != nil {
		r = o.Record.DeepCopy()
	}
	r.ResumedAt = nil
	r.ResumeStartedAt = new(metav1.NewTime(o.Now.Truncate(time.Second).Add(time.Second)))
	return r
}

// missing are the nodes that were ready when the cluster went to sleep and have not been seen ready since it was woken.
// Without recorded nodes every node counts, and there must be one. A Ready from before the sleep is no sign of life.
func (o Observed) missing() []string {
	since := wakeRecord(o).ResumeStartedAt.Time
	back := map[string]bool{}
	var names []string
	for _, n := range o.Nodes {
		if back[n.Name] = n.Ready && n.LastSeen.After(since); !back[n.Name] {
			names = append(names, n.Name)
		}
	}
	if expected := o.expected(); len(expected) > 0 {
		names = nil
		for _, name := range expected {
			if !back[name] {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 && len(o.Nodes) == 0 {
		return []string{"any node"}
	}
	return names
}

// expected are the recorded nodes that were ready and still exist.
func (o Observed) expected() []string {
	exists := map[string]bool{}
	for _, n := range o.Nodes {
		exists[n.Name] = true
	}
	var names []string
	for _, n := range o.Record.Nodes {
		if n.Ready && exists[n.Name] {
			names = append(names, n.Name)
		}
	}
	return names
}
