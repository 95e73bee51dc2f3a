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
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/hub"
	"github.com/torpor-dev/torpor/conditional/internal/scope"
)

// Group is a set of runnables that live and end together. It is a runnable of its manager.
type Group struct {
	mgr     manager.Manager
	when    Condition
	setup   SetupFunc
	options options
	src     Sources
	log     logr.Logger
	gauges  gauges
	hub     *hub.Hub
	release func() // frees the name and the hub

	mail  chan struct{}                 // holds a token when a new report waits
	scope atomic.Pointer[scope.Manager] // of the present life

	mu     sync.Mutex
	status GroupStatus
	asked  Status        // last report that was not Unknown
	moved  chan struct{} // closed and replaced on every change
	leads  bool
}

// GroupStatus is a snapshot of a group.
type GroupStatus struct {
	Name  string    `json:"name"`
	Phase Phase     `json:"phase"`
	Since time.Time `json:"since"` // when the phase began
	// Condition is the last report; its zero value means that there was none.
	Condition Status `json:"condition"`
	// Error is why the group failed last; it is empty again when the group runs.
	Error string `json:"error,omitempty"`
}

// Status returns where the group is now.
func (g *Group) Status() GroupStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.status
}

// Wait returns nil as soon as the group is in the phase, or the error of ctx. A phase that is left at once may be
// missed.
func (g *Group) Wait(ctx context.Context, phase Phase) error {
	for {
		g.mu.Lock()
		now, moved := g.status.Phase, g.moved
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
		case policy == RequireResolved && g.asked.State == Unknown:
			return fmt.Errorf("group %s: the condition is not known yet: %s", g.options.name, g.status.Condition.Message)
		case policy == RequireRunning && g.leads && g.status.Phase != Running:
			return fmt.Errorf("group %s is %s, expected Running: %s", g.options.name, g.status.Phase, g.status.Error)
		}
		return nil
	}
}

// NeedLeaderElection is false: every replica detects, only the leader activates.
func (g *Group) NeedLeaderElection() bool { return false }

// report takes one status of the condition and wakes the loop.
func (g *Group) report(s Status) {
	g.mu.Lock()
	if s != g.status.Condition {
		g.status.Condition = s
		g.announceLocked()
	}
	if s.State != Unknown {
		g.asked = s
	}
	g.mu.Unlock()
	select {
	case g.mail <- struct{}{}:
	default:
	}
}

// enter notes a move, then tells log, metrics and waiters.
func (g *Group) enter(to Phase, why fact, err error) {
	g.mu.Lock()
	from := g.status.Phase
	g.status.Phase, g.status.Since = to, time.Now()
	if err != nil {
		g.status.Error = err.Error()
	} else if to == Running {
		g.status.Error = ""
	}
	condition := g.status.Condition
	g.announceLocked()
	g.mu.Unlock()
	g.gauges.show(g.options.name, to)
	g.gauges.count(g.options.name, to, why)
	log := g.log.WithValues("from", from, "to", to, "fact", why, "condition", condition.State.String(), "reason", condition.Reason)
	if err != nil {
		log.Error(err, "phase changed")
		return
	}
	log.Info("phase changed")
}

func (g *Group) announceLocked() {
	close(g.moved)
	g.moved = make(chan struct{})
}

func (g *Group) checkHealth(r *http.Request) error {
	return g.checkScope(r, (*scope.Manager).HealthzChecks)
}

func (g *Group) checkReady(r *http.Request) error {
	return g.checkScope(r, (*scope.Manager).ReadyzChecks)
}

func (g *Group) checkScope(r *http.Request, of func(*scope.Manager) map[string]healthz.Checker) error {
	live := g.scope.Load()
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

func (g *Group) serveExtra(w http.ResponseWriter, r *http.Request) {
	if live := g.scope.Load(); live != nil {
		live.ServeExtra(w, r)
		return
	}
	http.NotFound(w, r)
}
