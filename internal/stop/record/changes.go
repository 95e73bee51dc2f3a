// SPDX-License-Identifier: Apache-2.0

package record

import (
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Request returns the requester, the reason and the end of the stop in effect. If no stop is in effect, it returns the
// requester of the last start.
func (r Records) Request() decision.Request {
	switch {
	case len(r) == 0:
		return decision.Request{}
	case r[0].EndedAt != nil:
		return decision.Request{Requester: r[0].StartedBy}
	default:
		return describeStop(r[0])
	}
}

func describeStop(stop torporv1alpha1.StopRecord) decision.Request {
	asked := decision.Request{Requester: stop.By, Reason: stop.Reason}
	if stop.Until != nil {
		asked.Until = formatTime(stop.Until.Time)
	}
	return asked
}

// RequestOf returns the request of the stop in effect: the request of the object's own switch if its stop is in effect,
// otherwise the request of the Slumber. Without a stop, it returns the requester of the last start.
func RequestOf(own Records, scheduled *torporv1alpha1.ScheduledStop) decision.Request {
	if scheduled != nil && !own.Holds() {
		return Records(scheduled.Stops).Request()
	}
	return own.Request()
}

// Changes returns the stop or start that was requested, or the stop whose request was changed, between two states of a
// switch's records. It returns nil if nothing changed. It omits a stop that ended at its requested end, because Events
// reports it.
func Changes(part string, before, after Records) []decision.Change {
	if len(after) == 0 {
		return nil
	}
	newest, wasHeld := after[0], before.Holds()
	isSame := len(before) > 0 && before[0].Since.Equal(&newest.Since)
	change := decision.Change{Part: part, Request: after.Request()}
	switch {
	case after.Holds() && !isSame:
		change.What = "Stop requested"
	case after.Holds() && describeStop(before[0]) != change.Request:
		change.What = "Stop changed"
	case !after.Holds() && isSame && wasHeld && newest.StartedBy != torporv1alpha1.UntilAnnotation:
		change.What = "Start requested"
	default:
		return nil
	}
	return []decision.Change{change}
}
