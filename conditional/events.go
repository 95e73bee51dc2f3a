// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The reasons of a group's events. They are promises: no release renames one.
const (
	ControllerStarted     = "ControllerStarted"     // the group is Running
	ControllerStopped     = "ControllerStopped"     // a group that was Running has stopped; a Warning when an error was the cause
	ControllerStuck       = "ControllerStuck"       // Warning: something has not returned within the drain timeout
	ControllerStartFailed = "ControllerStartFailed" // Warning: a start did not come to Running
	ControllerDropped     = "ControllerDropped"     // Warning: the CRD has gone, and requests were left in a queue after the drain timeout
	ControllerTerminating = "ControllerTerminating" // the group's CRD is being deleted and waits for its objects
)

// maxNote is what the API server takes of an event's note, in bytes.
const maxNote = 1024

// recordEvent writes an event, if the group has a recorder.
func (g *Group) recordEvent(eventType, reason, action, note string) {
	if g.options.recorder == nil {
		return
	}
	note = fmt.Sprintf("group %s: %s", g.options.name, note)
	note = note[:min(len(note), maxNote)] // The API server refuses a longer one, and the event would be lost.
	g.options.recorder.Eventf(g.options.regarding, nil, eventType, reason, action, "%s", note)
}

// phaseChange is one change of a group's phase.
type phaseChange struct {
	from, to Phase
	err      error // why it failed
	at       time.Time
}

// recordPhaseChange records the event of a change. hasRun says that this activation has been Running.
func (g *Group) recordPhaseChange(t phaseChange, hasRun bool) {
	condition := g.Status().Condition
	switch {
	case t.to == Running:
		g.recordEvent(corev1.EventTypeNormal, ControllerStarted, "Start", "all its runnables have been started: "+condition.Reason)
	case t.to == Stuck:
		g.recordEvent(corev1.EventTypeWarning, ControllerStuck, "Stop",
			fmt.Sprintf("something has not returned within %s; nothing starts before it does", g.options.drainTimeout))
	case t.from == Failed: // The failure had an event of its own.
	case t.to == Failed && !hasRun:
		g.recordEvent(corev1.EventTypeWarning, ControllerStartFailed, "Start", t.err.Error())
	case (t.to == Dormant || t.to == Failed) && hasRun && t.err != nil:
		g.recordEvent(corev1.EventTypeWarning, ControllerStopped, "Stop", t.err.Error())
	case t.to == Dormant && hasRun:
		g.recordEvent(corev1.EventTypeNormal, ControllerStopped, "Stop", "everything has returned: "+condition.Reason)
	}
}

// warnDropped says how many requests a stop has left in the queues.
func (g *Group) warnDropped(requests int) {
	g.logger().Info("the CRD has gone, and requests were not reconciled before the stop", "dropped", requests, "drainTimeout", g.options.drainTimeout)
	g.recordEvent(corev1.EventTypeWarning, ControllerDropped, "Stop",
		fmt.Sprintf("the CRD has gone, and %d requests were not reconciled within %s: a longer DrainTimeout gives them more time", requests, g.options.drainTimeout))
}

// setTerminating records whether the CRD of a kind waits for its deletion.
func (g *Group) setTerminating(kind string, isTerminating bool) {
	g.mu.Lock()
	if _, known := g.terminating[kind]; isTerminating && !known {
		if g.terminating == nil {
			g.terminating = map[string]bool{}
		}
		g.terminating[kind] = false
	} else if !isTerminating {
		delete(g.terminating, kind)
	}
	g.mu.Unlock()
	g.wake()
}

// warnTerminating logs each CRD that waits for its deletion once, while the group is active.
func (g *Group) warnTerminating() {
	g.mu.Lock()
	var kinds []string
	for kind, told := range g.terminating {
		if !told {
			kinds = append(kinds, kind)
			g.terminating[kind] = true
		}
	}
	g.mu.Unlock()
	slices.Sort(kinds)
	what := "the controller goes on until the CRD is gone, for its objects may have finalizers"
	if g.options.stopOnTerminating {
		what = "the controller stops, as StopOnTerminating says, and leaves its finalizers on"
	}
	for _, kind := range kinds {
		g.logger().Info("a CRD is being deleted", "kind", kind, "then", what)
		g.recordEvent(corev1.EventTypeNormal, ControllerTerminating, "Terminate", "the CRD of "+kind+" is being deleted: "+what)
	}
}
