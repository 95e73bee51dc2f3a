// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/process"
	"github.com/torpor-dev/torpor/conditional/internal/scope"
)

// groupHost is a manager's only runnable for groups, and runs all of them. A group has no goroutine while there is no
// event for it.
type groupHost struct {
	registry *process.Registry
	elected  <-chan struct{}
	running  sync.WaitGroup // running waits for the groups

	refusalsMu sync.Mutex
	refusals   map[*detect.Detector]func() // refusals maps a detector to the function that ends followRefusals

	mu     sync.Mutex
	ctx    context.Context // ctx is the manager's context; it is nil before the manager starts
	isOver bool
	groups map[*Group]struct{}
	errs   []error
}

// hostOf returns the host of a manager; the first group of the manager adds the host to it.
func hostOf(mgr manager.Manager, all *process.Registry) (*groupHost, error) {
	elected := mgr.Elected()
	made := &groupHost{registry: all, elected: elected, groups: map[*Group]struct{}{}, refusals: map[*detect.Detector]func(){}}
	return process.HostOf(all, elected, made, func() error { return made.addTo(mgr) })
}

// addTo adds the host to a manager, with the status page of its groups, a healthz check and a readyz check. These run
// the checks of all scopes, because a manager accepts no further checks once it has started.
func (h *groupHost) addTo(mgr manager.Manager) error {
	if err := mgr.AddHealthzCheck("conditional", h.checkScopes((*scope.Manager).HealthzChecks)); err != nil {
		mgr.GetLogger().WithName("conditional").Info("the first group was set up after the manager started: the health checks of its scopes and the status page are not served", "reason", err.Error())
		return mgr.Add(h)
	}
	return errors.Join(
		mgr.AddReadyzCheck("conditional", h.checkScopes((*scope.Manager).ReadyzChecks)),
		mgr.AddMetricsServerExtraHandler("/debug/conditional", h.registry.StatusPage(h.elected)),
		mgr.Add(h),
	)
}

// NeedLeaderElection returns false, because every replica observes conditions, and only the leader starts groups.
func (h *groupHost) NeedLeaderElection() bool { return false }

// Start runs the groups until ctx is cancelled and all groups have ended.
func (h *groupHost) Start(ctx context.Context) error {
	h.mu.Lock()
	h.ctx = ctx
	h.mu.Unlock()
	for _, g := range h.members() {
		g.begin(ctx)
	}
	select {
	case <-h.elected:
		h.wakeAll()
	case <-ctx.Done():
	}
	<-ctx.Done()
	h.mu.Lock()
	h.isOver = true
	h.mu.Unlock()
	h.wakeAll()
	h.running.Wait()
	h.registry.DropHost(h.elected)
	h.ignoreRefusals()
	return errors.Join(h.errs...)
}

// followRefusals wakes the groups whenever a watch of the detector becomes forbidden or allowed.
func (h *groupHost) followRefusals(d *detect.Detector) {
	h.refusalsMu.Lock()
	defer h.refusalsMu.Unlock()
	if h.refusals[d] == nil {
		h.refusals[d] = d.OnRefusal(h.wakeAll)
	}
}

func (h *groupHost) ignoreRefusals() {
	h.refusalsMu.Lock()
	defer h.refusalsMu.Unlock()
	for _, ignore := range h.refusals {
		ignore()
	}
}

func (h *groupHost) wakeAll() {
	for _, g := range h.members() {
		g.wake()
	}
}

func (h *groupHost) members() []*Group {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.groups))
}

// join adds a group, which begins immediately if the manager is running.
func (h *groupHost) join(g *Group) error {
	h.mu.Lock()
	if h.isOver {
		h.mu.Unlock()
		return errors.New("expected a manager that is running or not started yet, found a stopped manager: " +
			"create a new manager")
	}
	h.groups[g] = struct{}{}
	h.running.Add(1)
	ctx := h.ctx
	h.mu.Unlock()
	if ctx != nil {
		g.begin(ctx)
	}
	return nil
}

// leave removes a group that has ended.
func (h *groupHost) leave(g *Group, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, there := h.groups[g]; !there {
		return
	}
	delete(h.groups, g)
	if err != nil {
		h.errs = append(h.errs, err)
	}
	h.running.Done()
}

// isLeader reports whether this replica may start groups.
func (h *groupHost) isLeader() bool {
	select {
	case <-h.elected:
		return true
	default:
		return false
	}
}

// checkScopes returns a check that runs the checks of all scopes.
func (h *groupHost) checkScopes(checksOf func(*scope.Manager) map[string]healthz.Checker) healthz.Checker {
	return func(r *http.Request) error {
		var errs []error
		for _, g := range h.members() {
			live := g.currentScope.Load()
			if live == nil {
				continue
			}
			for name, check := range checksOf(live) {
				if err := check(r); err != nil {
					errs = append(errs, fmt.Errorf("group %s: %s: %w", g.options.name, name, err))
				}
			}
		}
		return errors.Join(errs...)
	}
}
