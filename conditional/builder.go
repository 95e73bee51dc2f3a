// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"errors"
	"fmt"
	"reflect"
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
)

// Builder has the methods of controller-runtime's builder.Builder and records their calls; each start of the group
// replays them on a new builder.Builder.
type Builder struct {
	mgr      manager.Manager
	name     string
	primary  client.Object
	required []client.Object
	optional []client.Object // the kinds of IfServed
	options  []Option
	calls    []func(*builder.Builder)
	errs     []error
}

// IfServed makes a kind of Owns, Watches or WatchesMetadata optional: the controller runs whether or not it is served,
// and watches it while it is. Reads of the kind return a NoKindMatchError meanwhile. Only the Builder of this package
// heeds it; in a function of Setup, name the kind with [Optional].
var IfServed ifServed

// ifServed has the methods of the options it passes for, one of which has a type that only their package can name.
type ifServed struct{ builder.Predicates }

// NewControllerManagedBy is controller-runtime's function of that name for a controller that runs only while the kinds
// of For, Owns and Watches are all served, but for those with [IfServed]; it waits for them, and starts anew when they
// come back.
//
// The reconciler stays the same object. Its exported fields that hold mgr, or a client, reader, cache, REST mapper or
// HTTP client of mgr, hold that of the current scope after the first start. Complete refuses a reconciler that has one
// in a field that cannot be set. Clients in closures or behind further pointers are not seen: for these, for field
// indexes and for several controllers in one group use [Setup].
func NewControllerManagedBy(mgr manager.Manager) *Builder { return &Builder{mgr: mgr} }

// For sets the kind that is reconciled.
func (b *Builder) For(object client.Object, opts ...builder.ForOption) *Builder {
	if b.primary != nil {
		return b.addError("expected one kind in For, found %T after %T: watch the other one with Owns or Watches", object, b.primary)
	}
	if object == nil {
		return b.addError("expected an object of the kind in For, found nil: pass one, for example &corev1.Pod{}")
	}
	b.primary = object
	return b.addCall(func(to *builder.Builder) { to.For(object, opts...) })
}

// Owns adds a kind whose objects reconcile their owner.
func (b *Builder) Owns(object client.Object, opts ...builder.OwnsOption) *Builder {
	opts, optional := splitIfServed(opts)
	return b.addKind("Owns", object, optional, func(to *builder.Builder) { to.Owns(object, opts...) })
}

// Watches adds a kind whose events the handler maps to requests.
func (b *Builder) Watches(object client.Object, h handler.EventHandler, opts ...builder.WatchesOption) *Builder {
	opts, optional := splitIfServed(opts)
	return b.addKind("Watches", object, optional, func(to *builder.Builder) { to.Watches(object, h, opts...) })
}

// WatchesMetadata is Watches with a cache of nothing but metadata.
func (b *Builder) WatchesMetadata(object client.Object, h handler.EventHandler, opts ...builder.WatchesOption) *Builder {
	opts, optional := splitIfServed(opts)
	return b.addKind("WatchesMetadata", object, optional, func(to *builder.Builder) { to.WatchesMetadata(object, h, opts...) })
}

// WatchesRawSource adds a source, which has no part in the condition. It must be a source.Func: that runs once per
// start, whereas the sources of controller-runtime cannot be started a second time.
func (b *Builder) WatchesRawSource(src source.Source) *Builder {
	if _, again := src.(source.Func); !again {
		return b.addError("expected a source.Func in WatchesRawSource, found %T, which may not bear a second start: make a new one in "+
			"source.Func(func(ctx, queue) error { return source.Channel(events, handler).Start(ctx, queue) })", src)
	}
	return b.addCall(func(to *builder.Builder) { to.WatchesRawSource(src) })
}

// WithEventFilter adds a predicate for all watches but raw sources.
func (b *Builder) WithEventFilter(p predicate.Predicate) *Builder {
	return b.addCall(func(to *builder.Builder) { to.WithEventFilter(p) })
}

// WithOptions sets the controller's options. With leader election, NeedLeaderElection: false and EnableWarmup have no
// effect: a group starts on the leader only.
func (b *Builder) WithOptions(options controller.Options) *Builder {
	return b.addCall(func(to *builder.Builder) { to.WithOptions(options) })
}

// WithLogConstructor sets how the controller makes its loggers.
func (b *Builder) WithLogConstructor(logConstructor func(*reconcile.Request) logr.Logger) *Builder {
	return b.addCall(func(to *builder.Builder) { to.WithLogConstructor(logConstructor) })
}

// Named sets the name of the controller and its group; the default is the lower-case kind of For.
func (b *Builder) Named(name string) *Builder {
	b.name = name
	return b.addCall(func(to *builder.Builder) { to.Named(name) })
}

// WithGroup sets options of the group. The name of Named, or the default, comes after them.
func (b *Builder) WithGroup(opts ...Option) *Builder {
	b.options = append(b.options, opts...)
	return b
}

// Complete adds the group to the manager. It returns an error for bad use only, and before anything was added: that a
// kind is absent is none.
func (b *Builder) Complete(r reconcile.Reconciler) error {
	_, err := b.Build(r)
	return err
}

// Build is Complete, and returns the group. controller-runtime's Build returns the Controller; here there is one per
// start, and none while the group is dormant, so whatever were returned would be dead after the first stop.
func (b *Builder) Build(r reconcile.Reconciler) (*Group, error) {
	if err := b.validate(r); err != nil {
		return nil, fmt.Errorf("build conditional controller: %w", err)
	}
	kinds, err := servedCondition{objs: b.requiredObjects()}.resolveKinds(b.mgr.GetScheme())
	if err != nil {
		return nil, fmt.Errorf("build conditional controller: %w", err)
	}
	name := b.name
	if name == "" {
		name = strings.ToLower(kinds[0].Kind)
	}
	fields, err := findClientFields(r, b.mgr)
	if err != nil {
		return nil, fmt.Errorf("build conditional controller %q: %w", name, err)
	}
	calls := slices.Clone(b.calls)
	// The real build comes with the first start, perhaps months later: its errors must come now, at Complete.
	if err := buildController(dryRunManager{b.mgr}, calls, r); err != nil {
		return nil, fmt.Errorf("build conditional controller %q: %w", name, err)
	}
	options := slices.Concat(b.options, []Option{Name(name)})
	if len(b.optional) > 0 {
		options = append(options, Optional(b.optional...))
	}
	return Setup(b.mgr, Served(kinds...), func(mgr manager.Manager) error {
		if err := fields.bindTo(mgr); err != nil {
			return err
		}
		return buildController(mgr, calls, r)
	}, options...)
}

// validate finds the errors that need no look at the scheme.
func (b *Builder) validate(r reconcile.Reconciler) error {
	errs := slices.Clone(b.errs)
	if b.mgr == nil {
		errs = append(errs, errors.New("expected a manager in NewControllerManagedBy, found nil: pass the one of ctrl.NewManager"))
	}
	if r == nil {
		errs = append(errs, errors.New("expected a reconciler, found nil: pass one to Complete"))
	}
	if len(errs) == 0 && b.primary == nil && (b.name == "" || len(b.required) == 0) { // Without a kind there is nothing to wait for.
		errs = append(errs, errors.New("expected a kind to reconcile, found no For: call it, or Named and Watches; for a controller that waits for no kind use conditional.Setup"))
	}
	if strings.Contains(b.name, " ") {
		errs = append(errs, fmt.Errorf("expected a name without a space in Named, found %q: use letters, digits, - and /", b.name))
	}
	return errors.Join(errs...)
}

// requiredObjects begins with the one of For, if there is one.
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

// splitIfServed takes IfServed out of the options and reports whether it was there: controller-runtime would treat it as
// an empty set of predicates.
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

// dryRunManager drops what is added to it: a build on it returns the errors that controller-runtime finds.
type dryRunManager struct{ manager.Manager }

func (dryRunManager) Add(manager.Runnable) error { return nil }

func (r dryRunManager) GetControllerOptions() config.Controller {
	opts := r.Manager.GetControllerOptions()
	// controller-runtime never frees a name: without this the first real start would find its own name taken.
	opts.SkipNameValidation = new(true)
	return opts
}

// clientFields are the fields of a reconciler that hold a part of a manager. A reconciler that was made with the client of
// the outer manager must read from the cache whose events it gets, which is that of the present scope; otherwise it misses
// objects that the other cache has not seen yet.
type clientFields []clientField

type clientField struct {
	name  string
	place reflect.Value
	take  func(manager.Manager) any
}

// managerParts are the parts of a manager that a scope has of its own.
func managerParts() []func(manager.Manager) any {
	return []func(manager.Manager) any{
		func(m manager.Manager) any { return m },
		func(m manager.Manager) any { return m.GetClient() },
		func(m manager.Manager) any { return m.GetAPIReader() },
		func(m manager.Manager) any { return m.GetCache() },
		func(m manager.Manager) any { return m.GetRESTMapper() },
		func(m manager.Manager) any { return m.GetHTTPClient() },
	}
}

// findClientFields returns the fields of r, and of the structs in it, that hold mgr or something that mgr hands out. It returns an
// error when one of them cannot be set. What is behind further pointers or in closures is not seen.
func findClientFields(r any, mgr manager.Manager) (clientFields, error) {
	top := reflect.ValueOf(r)
	if top.Kind() == reflect.Pointer {
		top = top.Elem()
	}
	if top.Kind() != reflect.Struct {
		return nil, nil
	}
	found := findInStruct(top, "", mgr)
	for _, f := range found {
		if !f.place.CanSet() {
			return nil, fmt.Errorf("expected a pointer to a reconciler whose clients are in exported fields, found %T with the manager's %T in %s, "+
				"which cannot be replaced at every start: export the field, or make the reconciler in the function of conditional.Setup",
				r, f.take(mgr), f.name)
		}
	}
	return found, nil
}

func findInStruct(in reflect.Value, path string, mgr manager.Manager) clientFields {
	var found clientFields
	for meta, place := range in.Fields() {
		name := path + meta.Name
		if place.Kind() == reflect.Struct {
			found = append(found, findInStruct(place, name+".", mgr)...)
			continue
		}
		for _, take := range managerParts() {
			if holdsPart(place, take(mgr)) {
				found = append(found, clientField{name, place, take})
				break
			}
		}
	}
	return found
}

// holdsPart compares identities: what a manager hands out are pointers.
func holdsPart(place reflect.Value, part any) bool {
	// A field has the type of an interface as a rule; what counts is the pointer in it.
	if place.Kind() == reflect.Interface {
		place = place.Elem()
	}
	want := reflect.ValueOf(part)
	return place.Kind() == reflect.Pointer && want.Kind() == reflect.Pointer &&
		place.Type() == want.Type() && !place.IsNil() && place.Pointer() == want.Pointer()
}

// bindTo puts into every field what mgr has in its place.
func (fs clientFields) bindTo(mgr manager.Manager) error {
	for _, f := range fs {
		part := reflect.ValueOf(f.take(mgr))
		if !part.Type().AssignableTo(f.place.Type()) {
			return fmt.Errorf("expected field %s of the reconciler to take a %s, found type %s: give it an interface type of controller-runtime", f.name, part.Type(), f.place.Type())
		}
		f.place.Set(part)
	}
	return nil
}
