// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Hooks are functions that a group calls. A panic in one of them is an error of it.
type Hooks struct {
	// OnTransition is called at every change of the phase, in order. The group goes on only after it has returned, so it
	// must not block, and must not Wait for the group; Status may be asked.
	OnTransition func(Transition)
	// BeforeStart runs before the setup function. Its context ends when the start is no longer wanted. Its error is a
	// failed start.
	BeforeStart func(context.Context) error
	// AfterStop runs once for every start whose BeforeStart returned nil, after everything has returned, however it
	// ended. Its context ends after the drain timeout; one that ignores that makes the group Stuck. The next start waits
	// for it. Its error is logged and shown, and changes nothing else.
	AfterStop func(context.Context) error
}

// Transition is one change of a group's phase.
type Transition struct {
	Group    string
	From, To Phase
	Reason   string // what happened, as in docs/manual.md: Wanted, Unwanted, Changed, Up, …
	Err      error  // why it failed, or what AfterStop returned
	At       time.Time
}

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

// recordTransition records the event of a transition. hasRun says that this activation has been Running.
func (g *Group) recordTransition(t Transition, hasRun bool) {
	condition := g.Status().Condition
	switch {
	case t.To == Running:
		g.recordEvent(corev1.EventTypeNormal, ControllerStarted, "Start", "all its runnables have been started: "+condition.Reason)
	case t.To == Stuck:
		g.recordEvent(corev1.EventTypeWarning, ControllerStuck, "Stop",
			fmt.Sprintf("something has not returned within %s; nothing starts before it does", g.options.drainTimeout))
	case t.From == Failed: // The failure had an event of its own.
	case t.To == Failed && !hasRun:
		g.recordEvent(corev1.EventTypeWarning, ControllerStartFailed, "Start", t.Err.Error())
	case (t.To == Dormant || t.To == Failed) && hasRun && t.Err != nil:
		g.recordEvent(corev1.EventTypeWarning, ControllerStopped, "Stop", t.Err.Error())
	case t.To == Dormant && hasRun:
		g.recordEvent(corev1.EventTypeNormal, ControllerStopped, "Stop", "everything has returned: "+condition.Reason)
	}
}

// warnDropped says how many requests a stop has left in the queues.
func (g *Group) warnDropped(requests int) {
	g.log.Info("the CRD has gone, and requests were not reconciled before the stop", "dropped", requests, "drainTimeout", g.options.drainTimeout)
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
		g.log.Info("a CRD is being deleted", "kind", kind, "then", what)
		g.recordEvent(corev1.EventTypeNormal, ControllerTerminating, "Terminate", "the CRD of "+kind+" is being deleted: "+what)
	}
}

// callRecovering calls a function of the group's author and returns its panic as an error.
func (g *Group) callRecovering(name string, call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			g.log.Info("a function of the group's author panicked", "function", name, "stack", string(debug.Stack()))
			err = fmt.Errorf("%s panicked: %v", name, p)
		}
	}()
	if err := call(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (g *Group) callOnTransition(t Transition) {
	if g.options.hooks.OnTransition == nil {
		return
	}
	if err := g.callRecovering("OnTransition", func() error { g.options.hooks.OnTransition(t); return nil }); err != nil {
		g.log.Error(err, "hook failed", "from", t.From, "to", t.To)
	}
}

func (g *Group) callBeforeStart(ctx context.Context) error {
	if g.options.hooks.BeforeStart == nil {
		return nil
	}
	return g.callRecovering("BeforeStart", func() error { return g.options.hooks.BeforeStart(ctx) })
}

// callAfterStop calls the hook with a context of its own, since ctx may have ended.
func (g *Group) callAfterStop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.options.drainTimeout)
	defer cancel()
	return g.callRecovering("AfterStop", func() error { return g.options.hooks.AfterStop(ctx) })
}
