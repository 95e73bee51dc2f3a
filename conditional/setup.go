// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/delegatingmanager"
	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/process"
	"github.com/torpor-dev/torpor/conditional/internal/scope"
)

// ErrScopeClosed is returned after a group's stop, by the manager that its setup function received and by that
// manager's client and cache.
var ErrScopeClosed = scope.ErrClosed

// SetupFunc adds controllers and other runnables to mgr, like a reconciler's SetupWithManager. It is called once per
// start, each time with a new scope.
type SetupFunc func(mgr manager.Manager) error

// Setup creates a group that runs the runnables of setup while the condition is true, and adds it to mgr, which may
// already be running. It returns an error only for incorrect use; an absent API is not an error.
func Setup(mgr manager.Manager, when Condition, setup SetupFunc, opts ...Option) (*Group, error) {
	if mgr == nil || when == nil || setup == nil {
		return nil, errors.New("conditional.Setup needs a manager, a condition and a setup function, found nil: pass all three")
	}
	if err := requireSwitching(mgr); err != nil {
		return nil, err
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

// requireSwitching returns an error unless conditional.NewManager created the manager. The client of any other manager
// reads from the manager's own cache, which might not contain the object of a group's event yet.
func requireSwitching(mgr manager.Manager) error {
	if delegatingmanager.FromCache(mgr.GetCache()) == nil {
		return errors.New("expected a manager of conditional.NewManager, found another manager, " +
			"whose client does not read from the cache of the group: " +
			"create the manager with conditional.NewManager instead of ctrl.NewManager, in tests too")
	}
	return nil
}

func newGroup(mgr manager.Manager, when Condition, setup SetupFunc, o options) (*Group, error) {
	g := &Group{
		mgr: mgr, condition: when, setup: setup, options: o.groupOptions, optional: o.interest, stopOnTerminating: o.stopOnTerminating,
		status: GroupStatus{Name: o.name, Phase: Dormant, Since: time.Now()},
	}
	src, waitsFor := g.sources(), &namedKinds{}
	src.waitsFor = waitsFor
	if err := src.Validate(when); err != nil {
		return nil, err
	}
	// The scheme must already contain these kinds, because a start would detect a missing kind much later.
	if len(o.optional) > 0 {
		var err error
		if g.optional.Kinds, err = kindsOf(src.Scheme, o.optional); err != nil {
			return nil, fmt.Errorf("kinds of Optional: %w", err)
		}
		waitsFor.add(g.optional.Kinds...)
	}
	if err := o.validate(*waitsFor); err != nil {
		return nil, err
	}
	if g.followsKinds = len(waitsFor.kinds) > 0; g.followsKinds {
		if _, ok := when.(kindsCondition); !ok { // The observer of a kindsCondition already has the kinds.
			g.kinds = waitsFor
		}
	}
	return g, g.joinProcess(o)
}

func (g *Group) sources() Sources {
	return Sources{
		Config: g.mgr.GetConfig(), HTTPClient: g.mgr.GetHTTPClient(), Scheme: g.mgr.GetScheme(), managerCache: delegatingmanager.FromCache(g.mgr.GetCache()),
		interest: g.optional, stopOnTerminating: g.stopOnTerminating, onTerminating: g.setTerminating,
	}
}

// joinProcess registers the group with the process and with its manager. If it fails, it unregisters the group.
func (g *Group) joinProcess(o options) (err error) {
	// SkipNameValidation allows two groups to share a name, as it does for controllers. They then also share their
	// metrics.
	skip := g.mgr.GetControllerOptions().SkipNameValidation
	server, quit, err := process.AcquireState(g.sources().toServer(), g.mgr.GetLogger().WithName("conditional"))
	if err != nil {
		return err
	}
	g.server = server // Once the group is in the registry, scrapes read this field.
	leave, err := server.Registry.AddGroup(&process.GroupEntry{
		Name: o.name, Shared: o.sharesName || skip != nil && *skip, Elected: g.mgr.Elected(),
		Show: g.show, States: shownStates, Holds: holdReasons,
	})
	if err != nil {
		quit()
		return err
	}
	g.release = func() { quit(); leave() }
	if g.host, err = hostOf(g.mgr, server.Registry); err == nil {
		g.host.followRefusals(server.Detector)
		err = g.host.join(g)
	}
	if err != nil {
		g.release()
	}
	return err
}

// NewManager is the counterpart of controller-runtime's manager.New (ctrl.NewManager) for a manager with groups:
//
//	mgr, err := conditional.NewManager(cfg, ctrl.Options{…})
//
// The manager's client, cache, API reader and field indexer select their target by the context of each call. A call
// with the context of a reconcile, of a handler or of another runnable of a group is served by the client, cache, API
// reader or field indexer of the group's current activation. After the end of that activation, such a call returns
// [ErrScopeClosed]. A call with any other context behaves as in controller-runtime. For an absent kind that a group
// waits for, it returns a meta.NoKindMatchError. Therefore a reconciler, with the helpers, closures and wrappers that
// it uses, may keep clients that were taken from the manager before any group started.
//
// Groups inherit the Cache and Client options, MapperProvider and NewClient. Client.Cache.Reader must be empty.
// ByObject may contain kinds that are not served yet.
func NewManager(cfg *rest.Config, o manager.Options, opts ...ManagerOption) (manager.Manager, error) {
	var all managerOptions
	for _, opt := range opts {
		opt(&all)
	}
	return delegatingmanager.NewManager(cfg, o, all.metricsPrefix)
}

// ManagerOption is an option of NewManager.
type ManagerOption func(*managerOptions)

type managerOptions struct{ metricsPrefix string }

// MetricsPrefix sets the prefix of the metric names of the manager's groups. With the prefix torpor_gate, for example,
// the metric of a group's state is torpor_gate_state. The default is conditional.
func MetricsPrefix(prefix string) ManagerOption {
	return func(o *managerOptions) { o.metricsPrefix = prefix }
}

// Option configures a group. It may also be passed to For of this package's Builder.
type Option func(*options)

// ApplyToFor panics: controller-runtime's builder does not support the option.
func (Option) ApplyToFor(*builder.ForInput) { panic(onlyHere) }

type options struct {
	groupOptions

	sharesName        bool // sharesName allows other groups to have the same name
	interest          detect.Interest
	stopOnTerminating bool
	optional          []client.Object
	errs              []error
}

// groupOptions are the options that a group needs after setup.
type groupOptions struct {
	name         string
	drainTimeout time.Duration
	startBackoff *wait.Backoff // startBackoff is nil for the default
	restartBurst int
	restartPause *wait.Backoff // restartPause is nil for the default
	events       *eventTarget  // events is nil if no events are recorded
	cacheOptions func(*cache.Options)
}

func (o *groupOptions) readStartBackoff() wait.Backoff {
	if o.startBackoff == nil {
		return defaultBackoff()
	}
	return *o.startBackoff
}

func (o *groupOptions) readRestartPause() wait.Backoff {
	if o.restartPause == nil {
		return wait.Backoff{Duration: 10 * time.Second, Factor: 2, Steps: 1 << 30, Cap: time.Minute}
	}
	return *o.restartPause
}

type eventTarget struct {
	recorder  events.EventRecorder
	regarding runtime.Object
}

func defaultOptions(when Condition) options {
	return options{groupOptions: groupOptions{
		name:         when.String(),
		drainTimeout: 30 * time.Second,
		restartBurst: 5,
	}}
}

func (o *options) addErrorUnless(ok bool, format string, args ...any) {
	if !ok {
		o.errs = append(o.errs, fmt.Errorf(format, args...))
	}
}

// validate returns the errors of single options, and checks the options in combination with each other and with the
// kinds that the group waits for.
func (o *options) validate(waitsFor namedKinds) error {
	for _, crd := range o.interest.CRDs {
		_, group, _ := strings.Cut(crd, ".")
		o.addErrorUnless(waitsFor.hasOthers || slices.ContainsFunc(waitsFor.kinds, func(gvk schema.GroupVersionKind) bool { return gvk.Group == group }),
			"expected WatchNamed to list the CRD of a kind that the group waits for, found %q, "+
				"but the group waits for no kind of the API group %q: correct the name", crd, group)
	}
	o.addErrorUnless(o.name != "" && !strings.Contains(o.name, " "),
		"expected a group's name without a space, found %q: set one with conditional.Name", o.name)
	o.addErrorUnless(o.interest.Poll == 0 || len(o.interest.CRDs) == 0,
		"expected Poll or WatchNamed, found both: drop WatchNamed, because a group with Poll does not watch CRDs")
	return errors.Join(o.errs...)
}

// Name sets the group's name in logs, metrics and checks. The default is the condition's String.
func Name(name string) Option { return func(o *options) { o.name = name } }

// DrainTimeout sets how long a stop waits for the runnables before the group is Stuck. The default is 30 s.
func DrainTimeout(d time.Duration) Option {
	return func(o *options) {
		o.addErrorUnless(d > 0, "expected a DrainTimeout longer than 0, found %s: correct it", d)
		o.drainTimeout = d
	}
}

// StartBackoff sets the pauses between failed starts. The default grows from 1 s to 5 min. The back-off is reset when
// the condition changes, and if the failed activation lasted longer than the Cap.
func StartBackoff(b wait.Backoff) Option {
	return func(o *options) {
		o.addErrorUnless(b.Duration > 0, "expected a StartBackoff whose Duration is longer than 0, found %s: correct it", b.Duration)
		o.startBackoff = &b
	}
}

// RestartLimit limits how often a flapping condition restarts the group. The first starts, up to burst, are not
// delayed; each later start waits for a pause after the start before it. The default is 5 starts, and pauses from 10 s
// to 1 min. Stops are never delayed. While a start is held back, the group is Dormant, and GroupStatus.HeldUntil is the
// end of the pause. At the end of the pause, the group starts if its condition is true. The limit is reset when the
// group was Running for a minute, or when its condition was False for a minute. If the pause has grown longer than a
// minute, a period of that length is needed instead.
func RestartLimit(burst int, pause wait.Backoff) Option {
	return func(o *options) {
		o.addErrorUnless(burst > 0, "expected a RestartLimit of at least 1 start, found %d: correct it", burst)
		o.addErrorUnless(pause.Duration > 0, "expected a RestartLimit with a pause longer than 0, found %s: correct its Duration", pause.Duration)
		o.restartBurst, o.restartPause = burst, &pause
	}
}

// Events records the group's phase changes, and the reasons why the group is held back (see [Hold]), as events about an
// object, for example the operator's Deployment. The constants list the reasons of these events. mgr.GetEventRecorder
// returns a recorder. Without this option, events are recorded only about a Hold. They regard the group's CRD, and the
// process needs the right to record events in the namespace default.
func Events(rec events.EventRecorder, regarding runtime.Object) Option {
	return func(o *options) {
		o.addErrorUnless(rec != nil && regarding != nil, "expected a recorder and an object in Events, found nil: pass both")
		o.events = &eventTarget{rec, regarding}
	}
}

// Poll queries discovery at this interval instead of watching CRDs, so the right to watch CRDs is not needed. Starts
// are delayed by up to one interval, and stops by up to three.
func Poll(interval time.Duration) Option {
	return func(o *options) {
		o.addErrorUnless(interval > 0, "expected an interval longer than 0 in Poll, found %s: correct it", interval)
		o.interest.Poll = interval
	}
}

// WatchNamed watches only the CRDs with these names. It needs the rights to list and watch only these CRDs
// (resourceNames). A name has the form <plural>.<group>.
func WatchNamed(crdNames ...string) Option {
	return func(o *options) {
		o.addErrorUnless(len(crdNames) > 0, "expected names of CRDs in WatchNamed, found none: pass at least one, for example widgets.example.com")
		for _, name := range crdNames {
			plural, group, _ := strings.Cut(name, ".")
			o.addErrorUnless(plural != "" && group != "" && !strings.ContainsAny(name, "/ "),
				"expected <plural>.<group> in WatchNamed, found %q: pass the CRD's name, for example widgets.example.com", name)
		}
		o.interest.CRDs = crdNames
	}
}

// APIServices also watches APIServices, to detect changes to the kinds of aggregated API servers. It needs the right to
// list and watch apiservices.apiregistration.k8s.io.
func APIServices() Option { return func(o *options) { o.interest.APIServices = true } }

// StopOnTerminating stops the group when the deletion of a CRD is requested, instead of when the CRD is deleted.
// Finalizers of the group's controllers then remain, and with them the objects and the CRD, until users remove the
// finalizers.
func StopOnTerminating() Option { return func(o *options) { o.stopOnTerminating = true } }

// Optional lists kinds that the group's controllers may watch even though they are not served. The manager's scheme
// must contain them.
func Optional(objs ...client.Object) Option {
	return func(o *options) {
		o.addErrorUnless(len(objs) > 0, "expected objects in Optional, found none: pass at least one, for example &corev1.Pod{}")
		o.optional = append(o.optional, objs...)
	}
}

// CacheOptions changes the options of the group's cache, for example its namespaces or selectors. adjust is called at
// every start with the options that the group would have otherwise, so Restart applies new options. A group with this
// option does not share informers with other groups.
func CacheOptions(adjust func(*cache.Options)) Option {
	return func(o *options) {
		o.addErrorUnless(adjust != nil, "expected a function in CacheOptions, found nil: pass one, or leave the option out")
		o.cacheOptions = adjust
	}
}
