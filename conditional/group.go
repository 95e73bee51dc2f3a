// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
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
	"github.com/torpor-dev/torpor/conditional/internal/statemachine"
)

// Phase is where a group is.
type Phase = statemachine.Phase

// The phases of a group.
const (
	Dormant  = statemachine.Dormant  // nothing of the group exists
	Starting = statemachine.Starting // setup runs, the informers that it asked for sync
	Running  = statemachine.Running  // setup is done and every runnable has been started; controllers sync what they watch by themselves
	Draining = statemachine.Draining // stopped, runnables are returning
	Stuck    = statemachine.Stuck    // a runnable has not returned within the drain timeout; nothing starts before it does
	Failed   = statemachine.Failed   // setup or a runnable failed; the next try waits for the back-off
)

// Group is a set of runnables that start and stop together. It is a runnable of its manager.
type Group struct {
	mgr           manager.Manager
	condition     Condition
	setup         SetupFunc
	options       options
	optionalKinds []schema.GroupVersionKind
	standbyKinds  []schema.GroupVersionKind // of the options' objects
	src           Sources
	log           logr.Logger
	metrics       *process.GroupMetrics
	server        *process.SharedState
	release       func() // frees the name and the server state

	wakeup       chan struct{}                 // holds a token when a new report waits
	currentScope atomic.Pointer[scope.Manager] // nil while the group is dormant

	mu              sync.Mutex
	status          GroupStatus
	lastKnown       Status          // last report that was not Unknown
	terminating     map[string]bool // kinds whose CRD waits for its deletion, and whether that was logged
	loggedForbidden string          // the right whose absence was logged last
	changed         chan struct{}   // closed and replaced on every change
	isLeader        bool
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
	// Error is why the group failed last, or what AfterStop returned; it is empty again when the group runs.
	Error string `json:"error,omitempty"`
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
		now, moved := g.status.Phase, g.changed
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

// ReadyPolicy says when a group counts as ready.
type ReadyPolicy string

// The policies of Group.Checker.
const (
	Ignore          ReadyPolicy = "Ignore"          // always
	RequireResolved ReadyPolicy = "RequireResolved" // once the condition was found True or False
	RequireRunning  ReadyPolicy = "RequireRunning"  // while the group is Running, or another replica leads
)

// Checker returns a check for manager.AddReadyzCheck.
func (g *Group) Checker(policy ReadyPolicy) healthz.Checker {
	return func(*http.Request) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		switch {
		case policy == RequireResolved && g.lastKnown.State == Unknown:
			return fmt.Errorf("group %s: the condition is not known yet: %s", g.options.name, g.status.Condition.Message)
		case policy == RequireRunning && g.isLeader && !g.status.HeldUntil.IsZero():
			return fmt.Errorf("group %s is Dormant, expected Running: its restart limit holds it back until %s", g.options.name, g.status.HeldUntil.Format(time.RFC3339))
		case policy == RequireRunning && g.isLeader && g.status.Phase != Running:
			return fmt.Errorf("group %s is %s, expected Running: %s", g.options.name, g.status.Phase, g.status.Error)
		}
		return nil
	}
}

// NeedLeaderElection is false: every replica detects, only the leader activates.
func (g *Group) NeedLeaderElection() bool { return false }

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
	g.showState()
	g.wakeLoop()
}

func (g *Group) wakeLoop() {
	select {
	case g.wakeup <- struct{}{}:
	default: // A token is there already: the loop reads the latest status, not each one.
	}
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

// enterPhase publishes a transition to waiters, metrics and the log.
func (g *Group) enterPhase(to Phase, fact statemachine.Fact, err error) Transition {
	t, condition := g.setPhase(to, fact, err)
	g.showState()
	g.metrics.CountTransition(t.Group, to, fact)
	log := g.log.WithValues("from", t.From, "to", to, "fact", fact, "condition", condition.State.String(), "reason", condition.Reason)
	if err != nil {
		log.Error(err, "phase changed")
	} else {
		log.Info("phase changed")
	}
	return t
}

func (g *Group) setPhase(to Phase, fact statemachine.Fact, err error) (Transition, Status) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := Transition{Group: g.options.name, From: g.status.Phase, To: to, Reason: string(fact), Err: err, At: time.Now()}
	g.status.Phase, g.status.Since, g.status.Reason, g.status.HeldUntil = to, t.At, t.Reason, time.Time{}
	if err != nil {
		g.status.Error = err.Error()
	} else if to == Running {
		g.status.Error = ""
	}
	g.notifyWaitersLocked()
	return t, g.status.Condition
}

// showState sets the metric to the phase, or to why the group is dormant, and logs a right that is missing.
func (g *Group) showState() {
	g.mu.Lock()
	defer g.mu.Unlock()
	state := string(g.status.Phase)
	if r := g.lastKnown.Reason; g.status.Phase == Dormant && g.lastKnown.State == False && (r == DisabledReason || r == ForbiddenReason) {
		state = r
	}
	g.metrics.SetState(g.options.name, state, DisabledReason, ForbiddenReason)
	if message := g.lastKnown.Message; state == ForbiddenReason && message != g.loggedForbidden {
		g.loggedForbidden = message
		g.log.Info("the group waits for its rights", "missing", message)
	}
	if state == string(Running) {
		g.loggedForbidden = ""
	}
}

func (g *Group) notifyWaitersLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *Group) checkHealth(r *http.Request) error {
	return g.runScopeChecks(r, (*scope.Manager).HealthzChecks)
}

func (g *Group) checkReady(r *http.Request) error {
	return g.runScopeChecks(r, (*scope.Manager).ReadyzChecks)
}

func (g *Group) runScopeChecks(r *http.Request, of func(*scope.Manager) map[string]healthz.Checker) error {
	live := g.currentScope.Load()
	if live == nil {
		return nil
	}
	var errs []error
	for name, check := range of(live) {
		if err := check(r); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (g *Group) serveScopeHandler(w http.ResponseWriter, r *http.Request) {
	if live := g.currentScope.Load(); live != nil {
		live.ServeExtra(w, r)
		return
	}
	http.NotFound(w, r)
}
