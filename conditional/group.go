// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/process"
	"github.com/torpor-dev/torpor/conditional/internal/scope"
)

// Group is a set of runnables of a manager that start and stop together.
type Group struct {
	mgr       manager.Manager
	condition Condition
	setup     SetupFunc
	options   groupOptions
	optional  detect.Interest // optional lists the optional kinds, and defines how all kinds are detected
	host      *groupHost
	server    *process.SharedState
	release   func() // release frees the name and the server state

	loop         groupLoop                     // loop is used only by the goroutine that runs it
	currentScope atomic.Pointer[scope.Manager] // currentScope is nil while there is no activation

	watchesMu sync.Mutex
	watches   map[string]*groupWatch // watches holds the watches by their ids
	queue     *scope.ControllerQueue // queue is the controller's queue of the last start

	mu              sync.Mutex
	status          GroupStatus
	orders          groupOrders
	terminating     map[string]bool     // terminating maps each kind whose CRD is being deleted to whether this was logged
	loggedForbidden string              // loggedForbidden is the missing right that was logged last
	changed         chan struct{}       // changed is closed when the status changes; nil if no caller waits
	controllers     map[string]struct{} // controllers are the names of the controllers that have had a queue
	isAwake         bool                // isAwake is true if a goroutine is handling events
	hasNews         bool                // hasNews is true if an event arrived after that goroutine last checked
	isEnded         bool                // isEnded is true if the group was removed or its manager has stopped

	stopOnTerminating bool
	followsKinds      bool        // followsKinds is true if the condition or the options list kinds
	kinds             *namedKinds // kinds are those of the condition and the optional ones; nil for a kindsCondition
}

// groupOrders records the last known state of the group's condition, and the calls of Stop, Start, Restart and Remove.
type groupOrders struct {
	lastKnown Status // lastKnown is the last report of the condition that was not Unknown
	isPaused  bool   // isPaused is true after Stop
	isRemoved bool   // isRemoved is true after Remove
	restarts  int32  // restarts counts the requested restarts
}

func (g *Group) currentOrders() groupOrders {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.orders
}

func (g *Group) changeOrders(change func(*groupOrders)) {
	g.mu.Lock()
	change(&g.orders)
	g.mu.Unlock()
	g.wake()
}

// GroupStatus is a snapshot of a group.
type GroupStatus struct {
	Name  string    `json:"name"`
	Phase Phase     `json:"phase"`
	Since time.Time `json:"since"` // Since is the time at which the phase began
	// Reason is the fact that caused the phase: Wanted, Unwanted, Changed, Up, …. It is empty before the first change.
	Reason string `json:"reason,omitempty"`
	// HeldUntil is the time at which the restart limit allows the next start; zero if no start is held back.
	HeldUntil time.Time `json:"heldUntil,omitzero"`
	// Condition is the last report of the condition; zero before the first report.
	Condition Status `json:"condition"`
	// Error is the error of the last failure. It is empty once the group is running again.
	Error string `json:"error,omitempty"`
}

// logger creates a logger on demand, so a dormant group does not keep one.
func (g *Group) logger() logr.Logger {
	return g.mgr.GetLogger().WithName("conditional").WithValues("group", g.options.name)
}

// Status returns the current status of the group.
func (g *Group) Status() GroupStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.status
}

// HeldBack lists the reasons why the group does not start, or does not start in time. It is empty if the group is not
// held back.
func (g *Group) HeldBack() []Hold {
	refused := g.refusedWatches()
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.listHoldsLocked(refused)
}

// pageEntry is the entry of a group on the status page.
type pageEntry struct {
	GroupStatus

	HeldBack []Hold `json:"heldBack,omitempty"`
}

// show returns the group's data for the status page and for metrics. The state is the phase, or Disabled, Forbidden or
// Elsewhere if that is why the group is Dormant.
func (g *Group) show() process.GroupView {
	refused := g.refusedWatches()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.status
	s.Since, s.HeldUntil = s.Since.UTC(), s.HeldUntil.UTC()
	holds := g.listHoldsLocked(refused)
	view := process.GroupView{Page: pageEntry{s, holds}, State: g.stateLocked()}
	for _, h := range holds {
		view.Holds = append(view.Holds, string(h.Reason))
	}
	return view
}

// Wait returns nil as soon as the group is in the phase, or the error of ctx. It may miss a phase that the group leaves
// immediately.
func (g *Group) Wait(ctx context.Context, phase Phase) error {
	return g.waitUntil(ctx, "be "+string(phase), func() bool { return g.status.Phase == phase })
}

// waitUntil calls holds with the lock held until it returns true.
func (g *Group) waitUntil(ctx context.Context, what string, holds func() bool) error {
	for {
		g.mu.Lock()
		if holds() {
			g.mu.Unlock()
			return nil
		}
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		now, changed := g.status.Phase, g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for group %s to %s, it is %s: %w", g.options.name, what, now, context.Cause(ctx))
		}
	}
}

// ReadyPolicy defines when a group counts as ready. It is not a string type, so a misspelled policy does not compile.
type ReadyPolicy int8

// These are the policies of Group.Checker.
const (
	Ignore          ReadyPolicy = iota // Ignore means always ready
	RequireResolved                    // RequireResolved means ready once the condition has been True or False
	RequireRunning                     // RequireRunning means ready while the group is Running, or another replica runs it, or this one is not the leader
)

// Checker returns a check for manager.AddReadyzCheck.
func (g *Group) Checker(policy ReadyPolicy) healthz.Checker {
	return func(*http.Request) error {
		s, isResolved := g.Status(), g.currentOrders().lastKnown.State != Unknown
		mustRun := policy == RequireRunning && g.host.isLeader() && !g.runsElsewhere()
		switch {
		case policy < Ignore || policy > RequireRunning:
			return fmt.Errorf("group %s: expected a policy of conditional.ReadyPolicy, found %d: pass one of its constants", s.Name, policy)
		case policy == RequireResolved && !isResolved:
			return fmt.Errorf("group %s: the condition is not known yet: %s", s.Name, s.Condition.Message)
		case mustRun && !s.HeldUntil.IsZero():
			return fmt.Errorf("group %s is Dormant, expected Running: its restart limit delays the next start until %s: %s", s.Name, s.HeldUntil.Format(time.RFC3339), s.Error)
		case mustRun && s.Phase != Running:
			return fmt.Errorf("group %s is %s, expected Running: %s", s.Name, s.Phase, s.Error)
		}
		return nil
	}
}

// reportCondition stores one status of the condition and wakes the loop.
func (g *Group) reportCondition(s Status) {
	g.mu.Lock()
	// A report that is equal to the last one must not wake all callers of Wait.
	if s != g.status.Condition {
		g.status.Condition = s
		g.notifyWaitersLocked()
	}
	if s.State != Unknown {
		g.orders.lastKnown = s
	}
	g.mu.Unlock()
	g.logForbidden()
	g.wake()
}

func (g *Group) setHeldUntil(until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.status.HeldUntil != until {
		g.status.HeldUntil = until
		g.notifyWaitersLocked()
	}
}

// enterPhase changes the phase, and reports the change to callers of Wait, in metrics and in the log. If Stop or Remove
// was called before a start, it changes nothing and returns false.
func (g *Group) enterPhase(to Phase, fact groupFact, err error) (phaseChange, bool) {
	t, condition, hasChanged := g.setPhase(to, fact, err)
	if !hasChanged {
		return phaseChange{}, false
	}
	g.logForbidden()
	log := g.logger().WithValues("from", t.from, "to", to, "fact", fact, "condition", condition.State.String(), "reason", condition.Reason)
	if err != nil {
		log.Error(err, "phase changed")
	} else {
		log.Info("phase changed")
	}
	return t, true
}

func (g *Group) setPhase(to Phase, fact groupFact, err error) (change phaseChange, condition Status, hasChanged bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// Stop returns immediately if the group is Dormant, so a start that is already being prepared must not follow.
	if to == Starting && (g.orders.isPaused || g.orders.isRemoved) {
		return phaseChange{}, Status{}, false
	}
	// The phase must be counted before a caller of Wait returns.
	g.server.Registry.PhaseChanges.WithLabelValues(g.options.name, string(to), string(fact)).Inc()
	if to == Stuck {
		g.server.Registry.OverdueDrains.WithLabelValues(g.options.name).Inc()
	}
	t := phaseChange{from: g.status.Phase, to: to, err: err, at: time.Now()}
	g.status.Phase, g.status.Since, g.status.Reason, g.status.HeldUntil = to, t.at, string(fact), time.Time{}
	if err != nil {
		g.status.Error = err.Error()
	} else if to == Running {
		g.status.Error = ""
	}
	g.notifyWaitersLocked()
	return t, g.status.Condition, true
}

func (g *Group) stateLocked() string {
	if s := g.orders.lastKnown; g.status.Phase == Dormant && s.State == False && slices.Contains(shownReasons(), s.Reason) {
		return s.Reason
	}
	return string(g.status.Phase)
}

// runsElsewhere reports whether another replica runs the group.
func (g *Group) runsElsewhere() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stateLocked() == ElsewhereReason
}

func (g *Group) logForbidden() {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch state, message := g.stateLocked(), g.orders.lastKnown.Message; {
	case state == ForbiddenReason && message != g.loggedForbidden:
		g.loggedForbidden = message
		g.logger().Info("the group waits until it is granted the missing permission", "missing", message)
	case state == string(Running):
		g.loggedForbidden = ""
	}
}

func (g *Group) notifyWaitersLocked() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// Stop stops the group, regardless of its condition. It returns when the group is Dormant, or with the error of ctx.
// The group stays stopped until Start is called.
func (g *Group) Stop(ctx context.Context) error {
	g.changeOrders(func(o *groupOrders) { o.isPaused = true })
	return g.Wait(ctx, Dormant)
}

// Start allows a group to run again after Stop, while its condition is true.
func (g *Group) Start() { g.changeOrders(func(o *groupOrders) { o.isPaused = false }) }

// Restart stops the group and starts it again, for example with different CacheOptions. Restart does not start a
// Dormant group.
func (g *Group) Restart() { g.changeOrders(func(o *groupOrders) { o.restarts++ }) }

// Remove stops the group permanently and removes it from its manager. It frees the group's name, and deletes the
// metrics of the group and of its controllers. It returns when the group has ended, or with the error of ctx.
func (g *Group) Remove(ctx context.Context) error {
	g.changeOrders(func(o *groupOrders) { o.isRemoved = true })
	g.begin(ctx) // If the manager was not started yet, this ends the group immediately.
	return g.waitUntil(ctx, "end", func() bool { return g.isEnded })
}

func (g *Group) noteControllers(names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		if g.controllers == nil {
			g.controllers = map[string]struct{}{}
		}
		g.controllers[name] = struct{}{}
	}
}

// Reasons of a group's events. They are stable: no release renames them.
const (
	ControllerStarted     = "ControllerStarted"     // ControllerStarted means that the group is Running
	ControllerStopped     = "ControllerStopped"     // ControllerStopped is a Warning if an error was the cause
	ControllerStuck       = "ControllerStuck"       // Warning: runnables have not returned within the drain timeout
	ControllerStartFailed = "ControllerStartFailed" // Warning: a start failed before the group was Running
	ControllerDropped     = "ControllerDropped"     // Warning: the CRD was deleted, and requests were left after the drain timeout
	ControllerTerminating = "ControllerTerminating" // ControllerTerminating means that a CRD is being deleted and waits for its objects
)

// maxNote is the API server's limit for an event's note, in bytes.
const maxNote = 1024

func (g *Group) recordEvent(eventType, reason, action, note string) {
	if g.options.events == nil {
		return
	}
	g.options.events.recorder.Eventf(g.options.events.regarding, nil, eventType, reason, action, "%s", g.eventNote(note))
}

func (g *Group) eventNote(text string) string {
	note := fmt.Sprintf("group %s: %s", g.options.name, text)
	return note[:min(len(note), maxNote)] // The API server rejects a longer note, and the event would be lost.
}

type phaseChange struct {
	from, to Phase
	err      error // err is the reason why the activation failed
	at       time.Time
}

// recordPhaseChange records the event about a change, if there is one. hasRun is true if this activation has been
// Running.
func (g *Group) recordPhaseChange(t phaseChange, hasRun bool) {
	condition := g.Status().Condition
	switch {
	case t.to == Running:
		g.recordEvent(corev1.EventTypeNormal, ControllerStarted, "Start", "all runnables have been started: "+condition.Reason)
	case t.to == Stuck:
		g.recordEvent(corev1.EventTypeWarning, ControllerStuck, "Stop",
			fmt.Sprintf("runnables have not returned within %s; the next start waits for them", g.options.drainTimeout))
	case t.from == Failed: // The failure already has its own event.
	case t.to == Failed && !hasRun:
		g.recordEvent(corev1.EventTypeWarning, ControllerStartFailed, "Start", t.err.Error())
	case (t.to == Dormant || t.to == Failed) && hasRun && t.err != nil:
		g.recordEvent(corev1.EventTypeWarning, ControllerStopped, "Stop", t.err.Error())
	case t.to == Dormant && hasRun:
		g.recordEvent(corev1.EventTypeNormal, ControllerStopped, "Stop", "all runnables have returned: "+condition.Reason)
	}
}

func (g *Group) warnDropped(requests int) {
	g.logger().Info("the CRD was deleted, and requests were not reconciled before the stop",
		"dropped", requests, "drainTimeout", g.options.drainTimeout)
	g.recordEvent(corev1.EventTypeWarning, ControllerDropped, "Stop",
		fmt.Sprintf("the CRD was deleted, and %d requests were not reconciled within %s: "+
			"set a longer DrainTimeout", requests, g.options.drainTimeout))
}

// setTerminating records whether the CRD of a kind is being deleted.
func (g *Group) setTerminating(kind string, isTerminating bool) {
	g.mu.Lock()
	_, was := g.terminating[kind]
	switch {
	case isTerminating == was:
	case was:
		delete(g.terminating, kind)
	default:
		if g.terminating == nil {
			g.terminating = map[string]bool{}
		}
		g.terminating[kind] = false
	}
	g.mu.Unlock()
	if isTerminating != was {
		g.wake()
	}
}

// warnTerminating logs each CRD that is being deleted, and records an event, once per deletion.
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
	what := "the controller keeps running until the CRD is gone, because objects may have finalizers"
	if g.stopOnTerminating {
		what = "the controller stops because of StopOnTerminating, and leaves its finalizers on objects"
	}
	for _, kind := range kinds {
		g.logger().Info("a CRD is being deleted", "kind", kind, "then", what)
		g.recordEvent(corev1.EventTypeNormal, ControllerTerminating, "Terminate", "the CRD of "+kind+" is being deleted: "+what)
	}
}
