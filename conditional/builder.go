// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/torpor-dev/torpor/conditional/internal/delegatingmanager"
	"github.com/torpor-dev/torpor/conditional/internal/process"
)

// Builder has the methods of controller-runtime's builder.Builder and records their calls. Each start of the group
// replays the calls on a new builder.Builder.
type Builder struct {
	mgr      manager.Manager
	name     string
	primary  client.Object
	required []client.Object
	optional []client.Object // optional holds the kinds of IfServed
	options  []Option
	skipName *bool // skipName is SkipNameValidation of WithOptions

	forOptions []builder.ForOption // forOptions are the options of For that belong to controller-runtime
	calls      []func(*builder.Builder)
	channels   []*channelSource // channels run until the manager stops
	errs       []error
}

// IfServed makes a kind of Owns, Watches or WatchesMetadata optional: the controller runs whether or not the kind is
// served, and watches it while it is served. While the kind is absent, reads of it return a NoKindMatchError. IfServed
// has no effect in For: the controller runs only while that kind is served. Only the Builder of this package supports
// this option; controller-runtime's builder panics. In a setup function of Setup, list the kind with [Optional].
var IfServed ifServed

// ifServed implements the interfaces of the options of For, Owns, Watches and WatchesMetadata. It cannot declare
// ApplyToWatches, because the parameter of that method has an unexported type. Therefore it embeds a nil pointer to a
// type that has the method, and a call of ApplyToWatches also panics.
type ifServed struct{ *builder.Predicates }

const onlyHere = "expected conditional.NewControllerManagedBy for this option, found controller-runtime's builder: " +
	"in a setup function, replace IfServed with conditional.Optional, and pass other options to conditional.Setup"

// ApplyToFor panics: controller-runtime's builder does not support the option.
func (ifServed) ApplyToFor(*builder.ForInput) { panic(onlyHere) }

// ApplyToOwns panics, as ApplyToFor does.
func (ifServed) ApplyToOwns(*builder.OwnsInput) { panic(onlyHere) }

// NewControllerManagedBy is the counterpart of controller-runtime's function for a controller that runs only while the
// kinds of For, Owns and Watches are all served, except those with [IfServed]. The controller waits for these kinds,
// and is started again when they are served again.
//
// The manager must be created by [NewManager]. The reconciler remains the same object, and may store the manager's
// client in any place. For several controllers in one group use [Setup].
func NewControllerManagedBy(mgr manager.Manager) *Builder { return &Builder{mgr: mgr} }

// For sets the kind to reconcile. opts may include options for the group, for example [Poll].
func (b *Builder) For(object client.Object, opts ...builder.ForOption) *Builder {
	if b.primary != nil {
		return b.addError("expected one kind in For, found %T after %T: watch the other one with Owns or Watches", object, b.primary)
	}
	if object == nil {
		return b.addError("expected an object of the kind in For, found nil: pass one, for example &corev1.Pod{}")
	}
	b.primary = object
	opts, _ = splitIfServed(opts)
	for _, o := range opts {
		if ofGroup, is := o.(Option); is {
			b.options = append(b.options, ofGroup)
			continue
		}
		b.forOptions = append(b.forOptions, o)
	}
	return b.addCall(func(to *builder.Builder) { to.For(object, b.forOptions...) })
}

// Owns adds a kind whose events trigger a reconcile of the owner.
func (b *Builder) Owns(object client.Object, opts ...builder.OwnsOption) *Builder {
	opts, optional := splitIfServed(opts)
	return b.addKind("Owns", object, optional, func(to *builder.Builder) { to.Owns(object, opts...) })
}

// Watches adds a kind whose events the handler maps to requests.
func (b *Builder) Watches(object client.Object, h handler.EventHandler, opts ...builder.WatchesOption) *Builder {
	opts, optional := splitIfServed(opts)
	return b.addKind("Watches", object, optional, func(to *builder.Builder) { to.Watches(object, h, opts...) })
}

// WatchesMetadata is like Watches, with a cache that holds only metadata.
func (b *Builder) WatchesMetadata(object client.Object, h handler.EventHandler, opts ...builder.WatchesOption) *Builder {
	opts, optional := splitIfServed(opts)
	return b.addKind("WatchesMetadata", object, optional, func(to *builder.Builder) { to.WatchesMetadata(object, h, opts...) })
}

// WatchesRawSource adds a source. The condition does not depend on it. The source must be a [Kind], a source.Channel or
// a source.Func. The events of a source.Channel are dropped while the controller does not run. A source.Func runs once
// per start. Other sources of controller-runtime cannot be started a second time.
func (b *Builder) WatchesRawSource(src source.Source) *Builder {
	_, isFunc := src.(source.Func)
	_, isRestartable := src.(restartableSource)
	switch {
	case isFunc || isRestartable:
	case isChannel(src):
		forwarding := &channelSource{source: src}
		b.channels = append(b.channels, forwarding)
		src = forwarding
	default:
		return b.addError("expected a source.Func, source.Channel or conditional.Kind in WatchesRawSource, found %T, "+
			"which may not support a second start: "+
			"instead of source.Kind(cluster.GetCache(), …) use conditional.Kind(cluster, …), and create another source in "+
			"source.Func(func(ctx, queue) error { return newSource().Start(ctx, queue) })", src)
	}
	return b.addCall(func(to *builder.Builder) { to.WatchesRawSource(src) })
}

// WithEventFilter adds a predicate for all watches except raw sources.
func (b *Builder) WithEventFilter(p predicate.Predicate) *Builder {
	return b.addCall(func(to *builder.Builder) { to.WithEventFilter(p) })
}

// WithOptions sets the controller's options. A group runs only on the leader, so NeedLeaderElection must not be false,
// and EnableWarmup must not be true. Each stop clears the failure counts of the RateLimiter.
func (b *Builder) WithOptions(options controller.Options) *Builder {
	if need := options.NeedLeaderElection; need != nil && !*need {
		b.addError("expected no NeedLeaderElection: false in WithOptions, found it: leave the option out, " +
			"because a conditional controller runs on the leader only")
	}
	if warm := options.EnableWarmup; warm != nil && *warm {
		b.addError("expected no EnableWarmup in WithOptions, found it: leave the option out, " +
			"because a conditional controller starts on the leader only")
	}
	b.skipName = options.SkipNameValidation
	return b.addCall(func(to *builder.Builder) { to.WithOptions(options) })
}

// WithLogConstructor sets the function that creates the controller's loggers.
func (b *Builder) WithLogConstructor(logConstructor func(*reconcile.Request) logr.Logger) *Builder {
	return b.addCall(func(to *builder.Builder) { to.WithLogConstructor(logConstructor) })
}

// Named sets the name of the controller and its group; the default is the lower-case kind of For.
func (b *Builder) Named(name string) *Builder {
	b.name = name
	return b.addCall(func(to *builder.Builder) { to.Named(name) })
}

// WithGroup sets options for the group. The name from Named, or the default name, is applied after them.
func (b *Builder) WithGroup(opts ...Option) *Builder {
	b.options = append(b.options, opts...)
	return b
}

// Complete adds the group to the manager. It returns an error only for incorrect use, and before anything is added. An
// absent kind is not an error.
func (b *Builder) Complete(r reconcile.Reconciler) error {
	_, err := b.Build(r)
	return err
}

// Build is like Complete, and returns the group. controller-runtime's Build returns the Controller. Here there is one
// controller per start, and none while the group is dormant, so a returned Controller would be unusable after the first
// stop.
func (b *Builder) Build(r reconcile.Reconciler) (*Group, error) {
	if err := b.validate(r); err != nil {
		return nil, fmt.Errorf("build conditional controller: %w", err)
	}
	kinds, err := kindsOf(b.mgr.GetScheme(), b.requiredObjects())
	if err != nil {
		return nil, fmt.Errorf("build conditional controller: %w", err)
	}
	name := b.name
	if name == "" {
		name = strings.ToLower(kinds[0].Kind)
	}
	sharesName, err := b.reserveName(name)
	if err != nil {
		return nil, fmt.Errorf("build conditional controller %q: %w", name, err)
	}
	calls := slices.Clone(b.calls)
	// The actual build runs at the first start, which may be months later. Complete must return its errors now.
	if err := buildController(dryRunManager{b.mgr}, calls, r); err != nil {
		return nil, fmt.Errorf("build conditional controller %q: %w", name, err)
	}
	options := slices.Concat(b.options, []Option{Name(name), func(o *options) { o.sharesName = sharesName }})
	if len(b.optional) > 0 {
		options = append(options, Optional(b.optional...))
	}
	g, err := Setup(b.mgr, Served(kinds...), func(mgr manager.Manager) error { return buildController(mgr, calls, r) }, options...)
	if err != nil {
		return nil, err
	}
	for _, c := range b.channels {
		if err := b.mgr.Add(manager.RunnableFunc(c.run)); err != nil {
			return nil, fmt.Errorf("build conditional controller %q: add %v: %w", name, c.source, err)
		}
	}
	return g, nil
}

// validate returns the errors that do not depend on the scheme.
func (b *Builder) validate(r reconcile.Reconciler) error {
	errs := slices.Clone(b.errs)
	if b.mgr == nil {
		errs = append(errs, errors.New("expected a manager in NewControllerManagedBy, found nil: "+
			"pass a manager that conditional.NewManager returned"))
	} else {
		errs = append(errs, requireSwitching(b.mgr))
	}
	if r == nil {
		errs = append(errs, errors.New("expected a reconciler, found nil: pass one to Complete"))
	}
	if errors.Join(errs...) == nil && b.primary == nil && (b.name == "" || len(b.required) == 0) { // Without a kind there is nothing to wait for.
		errs = append(errs, errors.New("expected a kind to reconcile, found no For: call For, or Named and Watches; "+
			"for a controller that waits for no kind, use conditional.Setup"))
	}
	return errors.Join(errs...)
}

// reserveName reserves the name. It returns an error if a plain controller has the name, because both would share
// metrics. If SkipNameValidation allows shared names, it reserves nothing and returns true.
func (b *Builder) reserveName(name string) (isShared bool, err error) {
	skip := b.skipName
	if skip == nil {
		skip = b.mgr.GetControllerOptions().SkipNameValidation
	}
	if skip != nil && *skip {
		return true, nil
	}
	all, err := process.RegistryOf(delegatingmanager.FromCache(b.mgr.GetCache()))
	if err != nil {
		return false, err
	}
	return false, all.ReserveControllerName(name)
}

func (b *Builder) requiredObjects() []client.Object {
	if b.primary == nil {
		return b.required
	}
	return append([]client.Object{b.primary}, b.required...)
}

func (b *Builder) addKind(method string, object client.Object, optional bool, call func(*builder.Builder)) *Builder {
	if object == nil {
		return b.addError("expected an object of the kind in %s, found nil: pass one, for example &corev1.Pod{}", method)
	}
	if optional {
		b.optional = append(b.optional, object)
	} else {
		b.required = append(b.required, object)
	}
	return b.addCall(call)
}

// splitIfServed removes IfServed from the options and reports whether it was present. controller-runtime would treat it
// as an empty set of predicates.
func splitIfServed[O any](opts []O) (rest []O, found bool) {
	for _, o := range opts {
		if _, is := any(o).(ifServed); is {
			found = true
			continue
		}
		rest = append(rest, o)
	}
	return rest, found
}

func (b *Builder) addCall(call func(*builder.Builder)) *Builder {
	b.calls = append(b.calls, call)
	return b
}

func (b *Builder) addError(format string, args ...any) *Builder {
	b.errs = append(b.errs, fmt.Errorf(format, args...))
	return b
}

func buildController(mgr manager.Manager, calls []func(*builder.Builder), r reconcile.Reconciler) error {
	to := builder.ControllerManagedBy(mgr)
	for _, call := range calls {
		call(to)
	}
	return to.Complete(r)
}

// dryRunManager discards everything that is added to it. A build with it returns the errors that controller-runtime
// detects.
type dryRunManager struct{ manager.Manager }

func (dryRunManager) Add(manager.Runnable) error { return nil }

func (r dryRunManager) GetControllerOptions() config.Controller {
	opts := r.Manager.GetControllerOptions()
	// reserveName has reserved the name, and controller-runtime never frees a name. Without this option, the dry run
	// would fail because the name is already in use.
	opts.SkipNameValidation = new(true)
	return opts
}
