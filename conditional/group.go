// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/process"
	"github.com/torpor-dev/torpor/conditional/internal/scope"
)

// Group is a set of runnables that start and stop together. It is a runnable of its manager.
type Group struct {
	mgr           manager.Manager
	condition     Condition
	setup         SetupFunc
	options       options
	optionalKinds []schema.GroupVersionKind
	src           Sources
	host          *groupHost
	registry      *process.Registry
	server        *process.SharedState
	release       func() // frees the name and the server state

	loop         groupLoop                     // of the goroutine that is awake
	currentScope atomic.Pointer[scope.Manager] // nil while the group is dormant

	watchesMu sync.Mutex
	watches   map[string]*groupWatch // by id
	queue     *scope.ControllerQueue // of the last start

	mu              sync.Mutex
	status          GroupStatus
	lastKnown       Status              // last report that was not Unknown
	terminating     map[string]bool     // kinds whose CRD waits for its deletion, and whether that was logged
	loggedForbidden string              // the right whose absence was logged last
	changed         chan struct{}       // closed at the next change; nil while nobody waits for it
	controllers     map[string]struct{} // the names of those that have had a queue
	isAwake         bool                // a goroutine acts on what has happened
	hasNews         bool                // something has happened since it looked
	isPaused        bool                // by Stop
	restarts        int                 // that were asked for
	isRemoved       bool                // by Remove
	isEnded         bool                // nothing is left of it
}

// GroupStatus is a snapshot of a group.
type GroupStatus struct {
	Name  string    `json:"name"`
	Phase Phase     `json:"phase"`
	Since time.Time `json:"since"` // when the phase began
	// Reason is what led to the phase: Wanted, Unwanted, Changed, Up, …; it is empty before the first change.
	Reason string `json:"reason,omitempty"`
	// HeldUntil is when a start that is wanted now will be allowed by the restart limit; zero when nothing is held back.
	HeldUntil time.Time `json:"heldUntil,omitzero"`
	// Condition is the last report; its zero value means that there was none.
	Condition Status `json:"condition"`
	// Error is why the group failed last; it is empty again when the group runs.
	Error string `json:"error,omitempty"`
}

// logger is made when there is something to log: a group that sleeps keeps none.
func (g *Group) logger() logr.Logger {
	return g.mgr.GetLogger().WithName("conditional").WithValues("group", g.options.name)
}

// Status returns where the group is now.
func (g *Group) Status() GroupStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.status
}

// pageStatus is the status as the debug page has it.
func (g *Group) pageStatus() any {
	s := g.Status()
	s.Since, s.HeldUntil = s.Since.UTC(), s.HeldUntil.UTC()
	return s
}

// Wait returns nil as soon as the group is in the phase, or the error of ctx. A phase that is left at once may be
// missed.
func (g *Group) Wait(ctx context.Context, phase Phase) error {
	for {
		g.mu.Lock()
		now, moved := g.status.Phase, g.nextChangeLocked()
		g.mu.Unlock()
		if now == phase {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("wait for group %s to be %s, it is %s: %w", g.options.name, phase, now, context.Cause(ctx))
		}
	}
}

// ReadyPolicy says when a group counts as ready. It is no string, so that a misspelt one does not compile.
type ReadyPolicy int8

// The policies of Group.Checker.
const (
	Ignore          ReadyPolicy = iota // always
	RequireResolved                    // once the condition was found True or False
	RequireRunning                     // while the group is Running, or another replica leads
)

// Checker returns a check for manager.AddReadyzCheck.
func (g *Group) Checker(policy ReadyPolicy) healthz.Checker {
	return func(*http.Request) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		switch {
		case policy < Ignore || policy > RequireRunning:
			return fmt.Errorf("group %s: expected a policy of conditional.ReadyPolicy, found %d: pass one of its constants", g.options.name, policy)
		case policy == RequireResolved && g.lastKnown.State == Unknown:
			return fmt.Errorf("group %s: the condition is not known yet: %s", g.options.name, g.status.Condition.Message)
		case policy == RequireRunning && g.host.isLeader() && !g.status.HeldUntil.IsZero():
			return fmt.Errorf("group %s is Dormant, expected Running: its restart limit holds it back until %s: %s", g.options.name, g.status.HeldUntil.Format(time.RFC3339), g.status.Error)
		case policy == RequireRunning && g.host.isLeader() && g.status.Phase != Running:
			return fmt.Errorf("group %s is %s, expected Running: %s", g.options.name, g.status.Phase, g.status.Error)
		}
		return nil
	}
}

// reportCondition stores one status of the condition and wakes the loop.
func (g *Group) reportCondition(s Status) {
	g.mu.Lock()
	// A report that repeats the last one must not wake everyone in Wait.
	if s != g.status.Condition {
		g.status.Condition = s
		g.notifyWaitersLocked()
	}
	if s.State != Unknown {
		g.lastKnown = s
	}
	g.mu.Unlock()
	g.logForbidden()
	g.wake()
}

// setHeldUntil publishes until when the restart limit holds the group back; the zero time means that it does not.
func (g *Group) setHeldUntil(until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.status.HeldUntil != until {
		g.status.HeldUntil = until
		g.notifyWaitersLocked()
	}
}

// enterPhase publishes a change to waiters, metrics and the log.
func (g *Group) enterPhase(to Phase, fact groupFact, err error) phaseChange {
	// Who waits for the phase finds it counted.
	g.registry.CountTransition(g.options.name, string(to), string(fact))
	if to == Stuck {
		g.registry.CountOverdueDrain(g.options.name)
	}
	t, condition := g.setPhase(to, fact, err)
	g.logForbidden()
	log := g.logger().WithValues("from", t.from, "to", to, "fact", fact, "condition", condition.State.String(), "reason", condition.Reason)
	if err != nil {
		log.Error(err, "phase changed")
	} else {
		log.Info("phase changed")
	}
	return t
}

func (g *Group) setPhase(to Phase, fact groupFact, err error) (phaseChange, Status) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := phaseChange{from: g.status.Phase, to: to, err: err, at: time.Now()}
	g.status.Phase, g.status.Since, g.status.Reason, g.status.HeldUntil = to, t.at, string(fact), time.Time{}
	if err != nil {
		g.status.Error = err.Error()
	} else if to == Running {
		g.status.Error = ""
	}
	g.notifyWaitersLocked()
	return t, g.status.Condition
}

// shownState returns the phase, or why the group is dormant.
func (g *Group) shownState() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stateLocked()
}

func (g *Group) stateLocked() string {
	if r := g.lastKnown.Reason; g.status.Phase == Dormant && g.lastKnown.State == False && (r == DisabledReason || r == ForbiddenReason) {
		return r
	}
	return string(g.status.Phase)
}

// logForbidden logs a right that is missing once.
func (g *Group) logForbidden() {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch state, message := g.stateLocked(), g.lastKnown.Message; {
	case state == ForbiddenReason && message != g.loggedForbidden:
		g.loggedForbidden = message
		g.logger().Info("the group waits for its rights", "missing", message)
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

// nextChangeLocked returns a channel that is closed at the next change.
func (g *Group) nextChangeLocked() <-chan struct{} {
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	return g.changed
}

// Stop stops the group, whatever its condition says, and returns when it is Dormant, or with the error of ctx. It stays so until
// Start.
func (g *Group) Stop(ctx context.Context) error {
	g.setPaused(true)
	return g.Wait(ctx, Dormant)
}

// Start lets a group run again after Stop, while its condition holds.
func (g *Group) Start() { g.setPaused(false) }

func (g *Group) setPaused(isPaused bool) {
	g.mu.Lock()
	g.isPaused = isPaused
	g.mu.Unlock()
	g.wake()
}

// Restart stops the group and starts it anew, for example with other CacheOptions. A group that is Dormant stays so.
func (g *Group) Restart() {
	g.mu.Lock()
	g.restarts++
	g.mu.Unlock()
	g.wake()
}

func (g *Group) restartsAsked() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.restarts
}

// Remove stops the group for ever and takes it out of its manager, with its name and its metrics and those of its controllers. It
// returns when nothing of it is left, or with the error of ctx.
func (g *Group) Remove(ctx context.Context) error {
	g.mu.Lock()
	g.isRemoved = true
	g.mu.Unlock()
	g.begin(ctx) // If the manager has not started, the group ends before it does anything.
	g.wake()
	for {
		g.mu.Lock()
		isEnded, moved, phase := g.isEnded, g.nextChangeLocked(), g.status.Phase
		g.mu.Unlock()
		if isEnded {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of group %s, it is %s: %w", g.options.name, phase, context.Cause(ctx))
		}
	}
}

// isLeaving reports whether Remove was called.
func (g *Group) isLeaving() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isRemoved
}

// isStopped reports whether Stop was called.
func (g *Group) isStopped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.isPaused
}

// noteControllers records whose metrics are to go with the group.
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
