// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/manager"

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
		startBackoff: wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 1 << 30, Cap: 5 * time.Minute},
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
	return g, g.register()
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
