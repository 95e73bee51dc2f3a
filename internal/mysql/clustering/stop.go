// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"

	"github.com/torpor-dev/torpor/internal/decision"
)

// After a stop is requested, operations in progress reach a point at which the cluster works without a manager. No
// switchover, fence or copy begins. Operations that are only prepared are withdrawn, and operations that the status
// records are finished. Then the status records the stop.

func isStopped(d *derivedFacts) bool { return d.StopAsked && d.Stop != nil }

// isStopWithdrawn reports whether the stop request was removed while the record of the stop still exists.
func isStopWithdrawn(d *derivedFacts) bool { return !d.StopAsked && d.Stop != nil }

// isStopReached reports whether a requested stop of clustering can be recorded: no work is left to finish, or
// stopTimeout has elapsed since the request.
func isStopReached(d *derivedFacts) bool {
	since := d.History.StopAskedSince
	isOverdue := !since.IsZero() && d.Now.Sub(since) >= stopTimeout
	return d.StopAsked && d.Stop == nil && (isOverdue || len(listUnfinished(d)) == 0)
}

func isStopAsked(d *derivedFacts) bool { return d.StopAsked }

// listUnfinished lists the work that must be finished before a stop is recorded.
func listUnfinished(d *derivedFacts) []string {
	if d.Offline || !d.hasPrimary() {
		return nil
	}
	found := listUnfinishedOfPrimary(d)
	for _, i := range d.instances {
		if i.Stopped || i.IsPrimary {
			continue
		}
		switch {
		case hasStalePrimaryLabel(i):
			found = append(found, fmt.Sprintf("instance %d still has the label of the primary", i.Index))
		case i.Clone == Cloning:
			found = append(found, fmt.Sprintf("instance %d is being cloned", i.Index))
		case i.Pending:
			found = append(found, fmt.Sprintf("a statement still runs in instance %d", i.Index))
		case i.IsUnexpectedlyWritable:
			found = append(found, fmt.Sprintf("instance %d is not read-only", i.Index))
		case isFencedInVain(i):
			found = append(found, fmt.Sprintf("instance %d is fenced", i.Index))
		case mayStartFollowing(i) && i.Channel.IOErrno == 0:
			found = append(found, fmt.Sprintf("instance %d does not follow the primary", i.Index))
		}
	}
	return found
}

func listUnfinishedOfPrimary(d *derivedFacts) []string {
	p := d.primary
	list := func(format string) []string {
		return []string{fmt.Sprintf(format, p.Index)}
	}
	switch {
	case p.Stopped:
		return nil
	case !p.Reachable:
		return list("the primary, instance %d, does not answer")
	case d.primaryLostData:
		return list("the primary, instance %d, lacks transactions that its replicas have")
	case p.Clone == Cloning:
		return list("the primary, instance %d, is being cloned")
	case p.Pending:
		return list("the primary, instance %d, still runs a statement")
	case d.Source.isOutstanding(), d.Restore.isOutstanding(), d.primaryMayHaveLostData:
		return nil // The primary would be read-only without a stop, too.
	case !d.primaryIsConfigured:
		return list("the primary, instance %d, is not configured")
	case (p.ReadOnly || p.SuperReadOnly) && !d.staysReadOnly():
		return list("the primary, instance %d, is read-only")
	case !isPrimaryLabelled(d):
		return list("the primary, instance %d, does not have its label")
	default:
		return nil
	}
}

func hasStopEnded(d *derivedFacts) bool {
	return isStopWithdrawn(d) || d.Stop != nil && d.IsStopOverdue && !d.IsOtherStopOverdue
}

// isStartRefused reports whether the stop has ended, but a start would do harm and the requester has not forced the
// start.
func isStartRefused(d *derivedFacts) bool {
	return hasStopEnded(d) && !d.StartForced && len(listRefusals(d)) > 0
}

func refuseStart(d *derivedFacts, _ *instanceFacts) Plan {
	refused, reason := joinFindings(listRefusals(d)), EventStartRefused
	if d.IsStopOverdue {
		reason = EventStopOverdue
	}
	return Plan{
		Stop: d.Stop, StartRefused: true, Why: "the start of clustering is refused: " + refused, After: refusedInterval,
		Events: []decision.Event{warningEvent(reason, "Clustering stays stopped: "+refused)},
	}
}

func removeLeftovers(*derivedFacts, *instanceFacts) Plan {
	return Plan{Do: RemoveLeftovers{}, Why: "nothing is stopped, but annotations of a stop are left"}
}

func endStop(*derivedFacts, *instanceFacts) Plan {
	return Plan{Do: EndStop{}, Why: "the end time of the stop has passed"}
}

func stayStopped(d *derivedFacts, _ *instanceFacts) Plan {
	return Plan{Stop: d.Stop, Why: "clustering is stopped", After: stoppedInterval}
}

func startAgain(*derivedFacts, *instanceFacts) Plan {
	return Plan{
		Why: "clustering is started", After: immediately,
		Events: []decision.Event{normalEvent(EventStarted, "Clustering is started")},
	}
}

func recordStop(d *derivedFacts, _ *instanceFacts) Plan {
	unfinished := joinFindings(listUnfinished(d))
	plan := Plan{Stop: &StopRecord{Since: d.Now, Unfinished: unfinished}, Why: "clustering has stopped", After: stoppedInterval}
	plan.Events = []decision.Event{normalEvent(EventStopped, "Clustering is stopped")}
	if unfinished != "" {
		plan.Events = []decision.Event{warningEvent(EventStopped, "Clustering is stopped with unfinished work: "+unfinished)}
	}
	return plan
}

func waitForStop(d *derivedFacts, _ *instanceFacts) Plan {
	return Plan{Why: "the stop waits: " + joinFindings(listUnfinished(d)), After: operationInterval}
}
