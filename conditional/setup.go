// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/torpor-dev/torpor/conditional/internal/hub"
	"github.com/torpor-dev/torpor/conditional/internal/logic"
	"github.com/torpor-dev/torpor/conditional/internal/scope"
)

// ErrScopeClosed is what the manager given to a setup function, its client and its cache answer after the stop.
var ErrScopeClosed = scope.ErrClosed

// SetupFunc adds controllers and other runnables to mgr, as a reconciler's SetupWithManager does. It is called
// once per start, each time with a new scope.
type SetupFunc func(mgr manager.Manager) error

// Option adjusts a group.
type Option func(*options)

type options struct {
	name         string
	drainTimeout time.Duration
	startBackoff wait.Backoff
}

// Name sets the group's name in logs, metrics and checks; the default is the condition's String.
func Name(name string) Option { return func(o *options) { o.name = name } }

// DrainTimeout sets how long a stop waits for the runnables before the group is Stuck; the default is 30 s.
func DrainTimeout(d time.Duration) Option { return func(o *options) { o.drainTimeout = d } }

// StartBackoff sets the pauses between failed starts; the default grows from 1 s to 5 min. It begins anew when the
// condition changes, and after a start that lasted longer than its Cap.
func StartBackoff(b wait.Backoff) Option { return func(o *options) { o.startBackoff = b } }

// Setup makes a group that runs what setup adds while the condition holds, and adds it to mgr, which must not have
// been started. It returns an error for bad use only: an absent API is none.
func Setup(mgr manager.Manager, when Condition, setup SetupFunc, opts ...Option) (*Group, error) {
	if mgr == nil || when == nil || setup == nil {
		return nil, errors.New("conditional.Setup needs a manager, a condition and a setup function, found nil: pass all three")
	}
	o := options{
		name:         when.String(),
		drainTimeout: 30 * time.Second,
		startBackoff: logic.Backoff(),
	}
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
	if o.drainTimeout <= 0 || o.startBackoff.Duration <= 0 {
		return nil, errors.New("the drain timeout and the first start back-off must be longer than 0: correct the option")
	}
	g := &Group{
		mgr: mgr, when: when, setup: setup, options: o,
		src:    Sources{Config: mgr.GetConfig(), HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme()},
		log:    mgr.GetLogger().WithName("conditional").WithValues("group", o.name),
		mail:   make(chan struct{}, 1),
		moved:  make(chan struct{}),
		status: GroupStatus{Name: o.name, Phase: Dormant, Since: time.Now()},
	}
	g.src.Logger = g.log
	if v, ok := when.(validator); ok {
		if err := v.validate(g.src); err != nil {
			return nil, err
		}
	}
	if o.name == "" || strings.ContainsAny(o.name, "/ ") {
		return nil, errors.New("a group's name must not be empty nor have a slash or a space: set one with conditional.Name")
	}
	var err error
	if g.gauges, err = newGauges(); err != nil {
		return nil, err
	}
	leave, err := claimName(o.name, mgr.GetControllerOptions())
	if err != nil {
		return nil, err
	}
	g.release = leave
	h, quit, err := hub.Of(g.src.Config, g.src.HTTPClient, g.src.Scheme, g.log)
	if err != nil {
		g.release()
		return nil, err
	}
	g.hub, g.release = h, func() { quit(); leave() }
	if err := g.register(); err != nil {
		g.release()
		return nil, err
	}
	return g, nil
}

// nameClaim holds a group's name in the process's registry, which takes no two of them; it collects nothing.
type nameClaim struct{ desc *prometheus.Desc }

// Describe names the group.
func (c nameClaim) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect has nothing to tell.
func (nameClaim) Collect(chan<- prometheus.Metric) {}

// claimName keeps two groups from sharing a name, and with it their metrics, until release is called. As with the
// names of controllers, SkipNameValidation of the manager's controllers switches that off.
func claimName(name string, opts config.Controller) (release func(), err error) {
	if opts.SkipNameValidation != nil && *opts.SkipNameValidation {
		return func() {}, nil
	}
	claim := nameClaim{prometheus.NewDesc("conditional_group_name", "Never collected.", nil, prometheus.Labels{"group": name})}
	if err := metrics.Registry.Register(claim); err != nil {
		return nil, fmt.Errorf("expected a name of its own, found another group of this name: set one with conditional.Name, or with Named of the builder: %w", err)
	}
	return func() { metrics.Registry.Unregister(claim) }, nil
}

// register adds the group and, while the manager still accepts them, the aggregates for what scopes add later.
func (g *Group) register() error {
	prefix := "/debug/conditional/" + g.options.name
	return errors.Join(
		g.mgr.AddHealthzCheck("conditional-"+g.options.name, g.checkHealth),
		g.mgr.AddReadyzCheck("conditional-"+g.options.name, g.checkReady),
		g.mgr.AddMetricsServerExtraHandler(prefix+"/", http.StripPrefix(prefix, http.HandlerFunc(g.serveExtra))),
		g.mgr.Add(g),
	)
}
