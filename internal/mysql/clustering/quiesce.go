// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"
	"time"
)

// A stop lets what is under way reach a point at which everything may be left alone: it begins no switchover, no fence
// and no copy, takes back what is only prepared, and finishes what was written down. That point is written down too.

// stopped: the point was reached.
func (v *view) stopped() bool { return v.StopAsked && v.Stop != nil }

// resumed: the wish to stop is gone, and its record is not.
func (v *view) resumed() bool { return !v.StopAsked && v.Stop != nil }

// reached: nothing is left to finish, or it takes too long.
func (v *view) reached() bool {
	overdue := !v.History.StopAskedSince.IsZero() && v.Now.Sub(v.History.StopAskedSince) >= stopTimeout
	return v.StopAsked && v.Stop == nil && (overdue || len(v.leftovers()) == 0)
}

// leftovers are what must not be left alone.
func (v *view) leftovers() []string {
	if v.Offline || v.p == NoInstance {
		return nil
	}
	found := v.primaryLeftovers()
	for i, s := range v.servers {
		if s.Stopped || i == v.p {
			continue
		}
		switch {
		case usurper(v, i):
			found = append(found, fmt.Sprintf("instance %d still has the label of the primary", i))
		case s.Clone == Cloning:
			found = append(found, fmt.Sprintf("instance %d is being cloned", i))
		case s.Pending:
			found = append(found, fmt.Sprintf("a statement still runs in instance %d", i))
		case v.stray(i):
			found = append(found, fmt.Sprintf("instance %d is not read-only", i))
		case v.fencedInVain(i):
			found = append(found, fmt.Sprintf("instance %d is fenced", i))
		case joining(v, i) && s.Channel.IOErrno == 0:
			found = append(found, fmt.Sprintf("instance %d does not follow the primary", i))
		}
	}
	return found
}

func (v *view) primaryLeftovers() []string {
	s := v.at(v.p)
	say := func(what string) []string { return []string{fmt.Sprintf("the primary, instance %d, %s", v.p, what)} }
	switch {
	case s.Stopped:
		return nil
	case !s.Reachable:
		return say("does not answer")
	case v.lostData():
		return say("lacks what its replicas have")
	case s.Clone == Cloning:
		return say("is being cloned")
	case s.Pending:
		return say("still runs a statement")
	case v.Source.open(), v.Restore.open(), v.doubtful():
		return nil
	case !v.configured():
		return say("is not configured")
	case (s.ReadOnly || s.SuperReadOnly) && !v.staysReadOnly():
		return say("is read-only")
	case !v.labelled():
		return say("does not have its label")
	default:
		return nil
	}
}

func stayStopped(v *view, _ int) Plan {
	return Plan{Stop: v.Stop, Why: "clustering is stopped", After: stoppedInterval}
}

func resume(*view, int) Plan {
	return Plan{
		Why: "clustering is started", After: immediately,
		Events: []Event{{Reason: "ClusteringStarted", Note: "Clustering is started"}},
	}
}

func stop(v *view, _ int) Plan {
	left := list(v.leftovers())
	p := Plan{Stop: &StopRecord{Since: v.Now, Unfinished: left}, Why: "the stop of clustering is reached", After: stoppedInterval}
	p.Events = []Event{{Reason: ReasonStopped, Note: "Clustering is stopped"}}
	if left != "" {
		p.Events = []Event{{Warning: true, Reason: ReasonStopped, Note: "Clustering is stopped, and not all could be finished: " + left}}
	}
	return p
}

func waitQuiet(v *view, _ int) Plan {
	return Plan{Why: "the stop waits: " + list(v.leftovers()), After: operationInterval}
}

const (
	// immediately: look again at once, through the queue.
	immediately = time.Millisecond
	// operationInterval is the pace within an operation, suspectPace that of a primary that may have failed.
	operationInterval = 100 * time.Millisecond
	suspicionInterval = 250 * time.Millisecond
	// degradedInterval, wellPace and stoppedPace are the paces of looking at a cluster with which nothing is to be done.
	degradedInterval = time.Second
	healthyInterval  = 10 * time.Second
	stoppedInterval  = 30 * time.Second
)
