// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/managercache"
	"github.com/torpor-dev/torpor/conditional/internal/process"
	"github.com/torpor-dev/torpor/conditional/internal/scope"
)

// ErrScopeClosed is what the manager given to a setup function, its client and its cache answer after the stop.
var ErrScopeClosed = scope.ErrClosed

// SetupFunc adds controllers and other runnables to mgr, as a reconciler's SetupWithManager does. It is called
// once per start, each time with a new scope.
type SetupFunc func(mgr manager.Manager) error

// Setup makes a group that runs what setup adds while the condition holds, and adds it to mgr, which may run already. It returns
// an error for bad use only: an absent API is none.
func Setup(mgr manager.Manager, when Condition, setup SetupFunc, opts ...Option) (*Group, error) {
	if mgr == nil || when == nil || setup == nil {
		return nil, errors.New("conditional.Setup needs a manager, a condition and a setup function, found nil: pass all three")
	}
	o := defaultOptions(when)
	for _, opt := range opts {
		opt(&o)
	}
	g, err := newGroup(mgr, when, setup, o)
	if err != nil {
		return nil, fmt.Errorf("set up conditional group %q: %w", o.name, err)
	}
	return g, nil
}

func newGroup(mgr manager.Manager, when Condition, setup SetupFunc, o options) (*Group, error) {
	g := &Group{
		mgr: mgr, condition: when, setup: setup, options: o,
		src:    Sources{Config: mgr.GetConfig(), HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), managerCache: managercache.FromCache(mgr.GetCache())},
		status: GroupStatus{Name: o.name, Phase: Dormant, Since: time.Now()},
	}
	g.src.interest, g.src.stopOnTerminating, g.src.onTerminating = o.interest, o.stopOnTerminating, g.setTerminating
	src, waitsFor := g.src, &namedKinds{}
	src.waitsFor = waitsFor
	if err := validateOne(when, src); err != nil {
		return nil, err
	}
	// The scheme must know these kinds now: a start would find that out much later.
	if len(o.optional) > 0 {
		var err error
		if g.optionalKinds, err = kindsOf(src.Scheme, o.optional); err != nil {
			return nil, fmt.Errorf("kinds of Optional: %w", err)
		}
		waitsFor.add(g.optionalKinds...)
	}
	if err := o.validate(*waitsFor); err != nil {
		return nil, err
	}
	return g, g.joinProcess()
}

// joinProcess registers the group with its process and its manager; an error leaves nothing behind.
func (g *Group) joinProcess() (err error) {
	// As with the names of controllers, SkipNameValidation lets two groups share a name, and with it their metrics.
	skip := g.mgr.GetControllerOptions().SkipNameValidation
	if g.registry, err = process.RegistryOf(g.src.managerCache); err != nil {
		return err
	}
	leave, err := g.registry.AddGroup(&process.GroupEntry{
		Name: g.options.name, Shared: g.options.sharesName || skip != nil && *skip, Elected: g.mgr.Elected(),
		Status: g.pageStatus, State: g.shownState, States: shownStates, Places: g.options.places,
	})
	if err != nil {
		return err
	}
	g.release = leave
	h, quit, err := process.AcquireState(g.src.toServer(), g.mgr.GetLogger().WithName("conditional"))
	if err != nil {
		g.release()
		return err
	}
	g.server, g.release = h, func() { quit(); leave() }
	if g.host, err = hostOf(g.mgr, g.registry); err == nil {
		err = g.host.join(g)
	}
	if err != nil {
		g.release()
	}
	return err
}

// ManagerOptions makes what the groups of a manager run take over its options:
//
//	mgr, err := ctrl.NewManager(cfg, conditional.ManagerOptions(ctrl.Options{…}))
//
// The caches of scopes have its Cache options (namespaces, selectors, transforms, ByObject, SyncPeriod and so on), and
// their clients its Client options, MapperProvider and NewClient. Without it they have controller-runtime's defaults.
// What a NewCache of your own adds to its options is not seen; Client.Cache.Reader must be empty.
//
// ByObject may name kinds that are not served: NewManager does not fail, and groups heed the entry when the kind comes.
// The manager's own cache could not; so for the rest of the process it refuses the kind to plain controllers and
// reads, rather than to watch more than was configured.
//
// The manager's own client and cache, which code outside of groups uses, follow the kinds that groups wait for: while
// one is absent, the cache refuses it with a NoKindMatchError, and informers that exist only because of reads end; when
// it comes back with another scope or plural, the client finds it. The manager's API reader does not.
func ManagerOptions(o manager.Options, opts ...ManagerOption) manager.Options {
	var all managerOptions
	for _, opt := range opts {
		opt(&all)
	}
	return managercache.WrapOptions(o, all.metricsPrefix)
}

// ManagerOption is an option of ManagerOptions.
type ManagerOption func(*managerOptions)

type managerOptions struct{ metricsPrefix string }

// MetricsPrefix is what the names of the metrics of the manager's groups begin with, as in torpor_gate_state; the default is conditional.
func MetricsPrefix(prefix string) ManagerOption {
	return func(o *managerOptions) { o.metricsPrefix = prefix }
}
