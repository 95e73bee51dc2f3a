// SPDX-License-Identifier: Apache-2.0

package clustering

import (
	"fmt"

	"github.com/torpor-dev/torpor/internal/decision"
)

// A switchover is: make the primary read-only; see a replica with everything; write it down. The way back is always
// open: a primary that is read-only for no switchover is made writable.

// isSwitchoverCandidate reports whether a replica can be expected to have everything a moment after the primary is
// read-only.
func isSwitchoverCandidate(i *instanceFacts) bool {
	return mayBecomeCandidate(i) && i.MayActNow && i.IsInSync && i.Pod.Ready && i.Channel.Lag >= 0 && i.Channel.Lag <= maxSwitchoverLag
}

// mayBecomeCandidate reports whether a replica can take the primary's place, now or after it has caught up.
func mayBecomeCandidate(i *instanceFacts) bool {
	return i.IsReadOnly && !i.IsPrimary && !i.Stopped && !i.IsErrant && !i.HasWrongSource && i.SemiSync.Waiting == 0 &&
		i.Pod.Exists && !i.Pod.Terminating && !i.Pod.Demote
}

func shouldBeginSwitchover(d *derivedFacts) bool {
	return d.switchoverIsActive && d.any(isSwitchoverCandidate) && d.primary.MayActNow && !d.primary.SuperReadOnly
}

// findSwitchoverTarget returns the replica that has everything of a primary that is read-only.
func findSwitchoverTarget(d *derivedFacts) *instanceFacts {
	p := d.primary
	if !d.switchoverIsActive || !p.IsReadOnly || p.SemiSync.Waiting > 0 {
		return nil
	}
	return d.findOldestSeries(func(i *instanceFacts) bool { return mayBecomeCandidate(i) && i.Executed.Contains(p.Executed) })
}

// awaitsSwitchoverTarget reports whether the primary is read-only while a replica is catching up.
func awaitsSwitchoverTarget(d *derivedFacts) bool {
	return d.switchoverIsActive && d.primary.IsReadOnly && d.any(func(i *instanceFacts) bool { return mayBecomeCandidate(i) && i.IsInSync })
}

// isFullyReadOnly reports whether a server is read-only for everybody. While the statement still waits for commits, the
// server reports super_read_only alone.
func isFullyReadOnly(i *instanceFacts) bool { return i.ReadOnly && i.SuperReadOnly }

// primaryStuckInReadOnly reports whether clients keep the primary from becoming read-only.
func primaryStuckInReadOnly(d *derivedFacts) bool {
	p := d.primary
	return d.switchoverIsActive && p.MayAct && p.Pending && p.PendingFor >= killClientsAfter && !isFullyReadOnly(p)
}

// shouldCancelPending reports whether a statement still runs in the primary whose effect is not wanted any more.
func shouldCancelPending(d *derivedFacts) bool {
	p := d.primary
	isUnwanted := (d.StopAsked || d.switchoverGaveUp) && !isFullyReadOnly(p)
	return p.MayAct && p.Pending && !d.switchoverIsActive && (isUnwanted || p.PendingFor >= killClientsAfter)
}

func hasPendingStatement(d *derivedFacts) bool { return d.primary.Pending }

func beginSwitchover(d *derivedFacts, p *instanceFacts) Plan {
	candidate := d.findOldestSeries(isSwitchoverCandidate)
	return Plan{
		Do:  SetReadOnly{Index: p.Index},
		Why: fmt.Sprintf("instance %d is made read-only, for instance %d to take its place", p.Index, candidate.Index),
	}
}

func promoteSwitchoverTarget(d *derivedFacts, i *instanceFacts) Plan {
	return Plan{
		Do:  PromoteInStatus{Index: i.Index, From: d.primary.Index},
		Why: fmt.Sprintf("instance %d has everything and becomes the primary", i.Index),
		Events: []decision.Event{normalEvent(EventSwitchOver,
			fmt.Sprintf("Instance %d takes the place of the primary, instance %d", i.Index, d.primary.Index))},
	}
}

// describeSwitchoverObstacle says why a switchover that is requested does not begin; it is empty if none is requested.
func describeSwitchoverObstacle(d *derivedFacts) string {
	switch {
	case !d.switchoverRequested || d.primary.SuperReadOnly:
		return ""
	case d.switchoverGaveUp:
		return fmt.Sprintf("the switchover from instance %d took too long and is tried again later", d.primary.Index)
	default:
		return fmt.Sprintf("the switchover from instance %d waits for a replica that is in sync and ready", d.primary.Index)
	}
}
