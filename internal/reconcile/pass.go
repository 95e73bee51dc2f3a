// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile/priority"
	reconcilestatus "github.com/torpor-dev/torpor/internal/reconcile/status"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
)

// KeyRule is the log key for the name of the rule that matched.
const KeyRule = "rule"

// ErrStale is returned by Observe and Act when the cache is behind the API server. Nothing is reported, and the pass
// runs again soon. If all passes of an object return ErrStale for staleCacheLimit, the pass fails.
var ErrStale = errors.New("the cache is behind the API server")

// ErrPending is returned by Observe while a background call has no result yet. The result enqueues the object. Nothing
// is reported.
var ErrPending = errors.New("a background call has no result yet")

// pendingLimit is the delay before the next pass if no result enqueues the object earlier.
const pendingLimit = 2 * time.Minute

// RefusedError is an error of Act for an action that was rejected, for example because of a quota. The pass reports it
// and returns no error; Report returns when to retry.
type RefusedError struct {
	// Class is a name that the feature defines for this kind of refusal; it may be empty.
	Class string
	// Message is for users. It contains the expected state, the observed state and the next step.
	Message string
	// Err is the cause, for errors.Is and errors.As; it may be nil.
	Err error
}

// Error implements error.
func (r *RefusedError) Error() string {
	if r.Message == "" && r.Err != nil {
		return r.Err.Error()
	}
	return r.Message
}

// Unwrap implements the interface of errors.Is and errors.As.
func (r *RefusedError) Unwrap() error { return r.Err }

// FollowUp is the part of a report that takes effect after the status is saved.
type FollowUp struct {
	// Rule is the name of the rule that matched, for the log.
	Rule string
	// RequeueAfter is the delay before the next pass; zero waits for an event.
	RequeueAfter time.Duration
	// IsUrgent gives the next pass priority over passes that are not urgent.
	IsUrgent bool
	// Events are emitted and logged after the status is saved.
	Events []decision.Event
	// Changes are logged after the status is saved.
	Changes []decision.Change
	// Request is logged with each event: the requester of the object's state, the reason, and the end.
	Request decision.Request
	// AfterSave runs after the status is saved, for example to increment counters.
	AfterSave func()
	// IsTransient is true for a report of an operation in progress. It is saved only if the operation is still in
	// progress after statusDebounce, and then at most once per statusDebounce. The progress of shorter operations is
	// never written. A report with events is saved at once, unless EventsRecur.
	IsTransient bool
	// EventsRecur is true if every event follows from a difference between the report and the stored status. A later
	// pass then emits the events of a report whose write was delayed.
	EventsRecur bool
	// RemembersLater leaves the write of the annotation with remembered fields (Storage.Remember) to a later pass, as
	// long as the status keeps these fields. That pass must be certain to run. This avoids a second write while a stop
	// or start is urgent.
	RemembersLater bool
}

// DelayUntil returns the RequeueAfter of a pass at a given time. It is not zero if that time has passed.
func DelayUntil(at, now time.Time) time.Duration { return max(at.Sub(now), time.Millisecond) }

// Hub gives a controller access to the API server of the hub, the cluster whose objects Torpor reconciles.
type Hub struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Recorder emits events.
	Recorder events.EventRecorder
	// Clock is the source of the current time.
	Clock clock.PassiveClock
	// Owner is the field manager of the controller's own writes; if empty, the client's default applies.
	Owner string
}

// HubOf returns the Hub of the named controller.
func HubOf(mgr manager.Manager, name string, now clock.PassiveClock) Hub {
	return Hub{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(name), Clock: now, Owner: name}
}

// Pass is the reconciler of a feature for one kind. It implements reconcile.Reconciler of controller-runtime. A field
// is added only if at least two controllers need it.
type Pass[T client.Object, S, P any] struct {
	Hub
	// New returns an empty object.
	New func() T
	// Status defines how the status is stored.
	Status reconcilestatus.Storage[T]

	// Guard, if set, makes the Pass skip objects that the controller of another project, such as Hive or MOCO, writes.
	Guard *WriterGuard
	// Finalizer, if set, keeps an object that is being deleted until Finalize is done.
	Finalizer *Finalizer[T]
	// Ends, if set, gives passes that end an overdue stop priority over other passes of the process, and delays events
	// until no stop is overdue.
	Ends *priority.EndTracker[T]
	// Forget, if set, is called after the object was deleted, to free the memory that is held for it.
	Forget func(name types.NamespacedName)

	// Observe reads everything that the decision may use. It only reads, and may return ErrStale or ErrPending.
	Observe func(ctx context.Context, obj T) (S, error)
	// Decide returns the plan. It has no side effects, and handles every observation.
	Decide func(seen S) P
	// Act, if set, carries out the plan. It is idempotent, limited in time, and does not wait until its requests
	// have taken effect. An error other than ErrStale and *RefusedError is reported as a *RefusedError too, and then
	// returned, so that the queue backs off.
	Act func(ctx context.Context, seen S, plan P) error
	// Report changes the status of obj in memory; the Pass then writes it.
	Report func(obj T, seen S, plan P, refused *RefusedError) FollowUp

	versions   versionTracker
	transients sync.Map
}

// Finalizer keeps an object that is being deleted until its dependents are gone.
type Finalizer[T client.Object] struct {
	Name string
	// Prepare, if set, adds the finalizer together with the defaults that a webhook would set, and reports whether it
	// changed anything. Prepare may decide not to add the finalizer. If Prepare is nil, only the finalizer is added.
	Prepare func(obj T) (changed bool)
	// Finalize deletes the dependents of obj and returns the delay before the next attempt, or zero when the
	// finalizer can be removed. While the finalizer remains, changes that Finalize makes to the status of obj are saved.
	Finalize func(ctx context.Context, obj T) (lookAgainAfter time.Duration, err error)
}

// Reconcile implements reconcile.Reconciler. The report is saved even if the action failed.
func (p *Pass[T, S, P]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := p.New()
	if err := p.Client.Get(ctx, req.NamespacedName, obj); err != nil {
		if k8serrors.IsNotFound(err) {
			p.forget(req)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// The status write of a pass on an outdated version would only cause a conflict.
	if wait := p.versions.awaitNewer(req, obj.GetResourceVersion(), p.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if yields, result, err := p.yield(ctx, obj); yields || err != nil {
		p.Ends.Forget(req.NamespacedName)
		return result, err
	}
	before, _ := obj.DeepCopyObject().(T)
	statusannotation.RestoreStatus(obj)
	// This controller must not write the remembered fields of other controllers.
	statusannotation.RestoreStatus(before, statusannotation.KeyOf(p.Owner))
	if wait := p.Ends.AwaitTurn(ctx, req.NamespacedName, obj); wait > 0 {
		return ctrl.Result{RequeueAfter: wait, Priority: new(priority.Usual)}, nil
	}
	if done, result, err := p.prepareOrFinalize(ctx, req, before, obj); done {
		return result, err
	}
	out, failure := p.observeAndAct(ctx, obj)
	if errors.Is(failure, ErrStale) {
		return p.awaitCache(req, failure)
	}
	p.versions.noteFresh(req)
	if errors.Is(failure, ErrPending) {
		p.Ends.Forget(req.NamespacedName) // Other passes do not wait for a background call.
		return ctrl.Result{RequeueAfter: pendingLimit}, nil
	}
	result, err := p.save(ctx, req, versions[T]{before, obj}, out, failure)
	if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > goesOnWithin || !p.Ends.HasOverdue(obj) {
		p.Ends.Forget(req.NamespacedName) // The stop has ended, or waits for something for which other passes must not wait.
	}
	return result, err
}

// goesOnWithin is the longest requeue interval at which an overdue stop still delays other passes.
const goesOnWithin = time.Second

// versions contains an object as it was read, and as the pass changed it.
type versions[T client.Object] struct{ before, after T }

func (v versions[T]) isReplaced() bool {
	return v.before.GetResourceVersion() != v.after.GetResourceVersion()
}

// observeAndAct calls Observe, Decide, Act and Report, and returns the report and the error of the action.
func (p *Pass[T, S, P]) observeAndAct(ctx context.Context, obj T) (FollowUp, error) {
	seen, err := p.Observe(ctx, obj)
	if err != nil {
		return FollowUp{}, &unreportedError{err}
	}
	plan := p.Decide(seen)
	if p.Act != nil {
		err = p.Act(ctx, seen, plan)
	}
	if errors.Is(err, ErrStale) {
		return FollowUp{}, err
	}
	if ended := ctx.Err(); ended != nil {
		// An error of an interrupted action describes the interruption, not the action.
		return FollowUp{}, &unreportedError{fmt.Errorf("pass ended early: %w", ended)}
	}
	if err == nil {
		return p.Report(obj, seen, plan, nil), nil
	}
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return p.Report(obj, seen, plan, refused), nil
	}
	return p.Report(obj, seen, plan, &RefusedError{Message: err.Error(), Err: err}), err
}

// goneRetry is the delay before the next pass if the status write returned NotFound.
const goneRetry = time.Second

// unreportedError is an error of a pass that ended before Report was called.
type unreportedError struct{ error }

// Unwrap implements the interface of errors.Is and errors.As.
func (u *unreportedError) Unwrap() error { return u.error }

// save writes the status once, then emits events and updates counters.
func (p *Pass[T, S, P]) save(ctx context.Context, req ctrl.Request, obj versions[T], out FollowUp, failure error) (ctrl.Result, error) {
	if u, ok := errors.AsType[*unreportedError](failure); ok {
		return ctrl.Result{}, u.error
	}
	if obj.isReplaced() {
		// The action has changed the object itself, so a status write with its earlier version would be a conflict.
		p.noteWritten(req, obj)
		return ctrl.Result{RequeueAfter: retryUnless(failure)}, failure
	}
	if failure == nil {
		if wait := p.debounce(req, out.IsTransient && (len(out.Events) == 0 || out.EventsRecur)); wait > 0 {
			return ctrl.Result{RequeueAfter: minNonZero(wait, out.RequeueAfter)}, nil
		}
	}
	writer := reconcilestatus.Writer[T]{Client: p.Client, Clock: p.Clock, Owner: p.Owner, New: p.New}
	written, err := p.Status.Write(ctx, writer, obj.before, obj.after, out.RemembersLater)
	// Once the status is stored, the next pass finds no difference, so the events must be emitted now.
	if err == nil || written.IsStored {
		p.tell(ctx, obj.after, out, written)
	}
	switch {
	case k8serrors.IsConflict(err):
		return p.loseRace(req, obj.before, err)
	case k8serrors.IsNotFound(err): // The object is gone, or the API server briefly does not serve its kind.
		return ctrl.Result{RequeueAfter: goneRetry}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("save status: %w", err)
	case written.HasChanged:
		log.FromContext(ctx).V(1).Info("Status changed", KeyRule, out.Rule)
	}
	if obj.isReplaced() {
		p.noteWritten(req, obj)
	}
	if failure != nil {
		return ctrl.Result{}, failure
	}
	if out.RequeueAfter = p.Status.Backoff(req, out.Rule, out.RequeueAfter, written); out.RequeueAfter == 0 {
		return ctrl.Result{}, nil
	}
	out.IsUrgent = out.IsUrgent || p.Ends.HasOverdue(obj.after)
	return ctrl.Result{RequeueAfter: out.RequeueAfter, Priority: new(priority.Of(out.IsUrgent))}, nil
}

// tell logs the changes and events, emits the events once no overdue stop delays them, and calls AfterSave.
func (p *Pass[T, S, P]) tell(ctx context.Context, obj T, out FollowUp, written reconcilestatus.Written) {
	LogChanges(log.FromContext(ctx), out.Changes)
	if events := append(out.Events, written.Events()...); len(events) > 0 {
		logEvents(log.FromContext(ctx), events, out.Request)
		p.Ends.Tell(func() { EmitEvents(p.Recorder, obj, events) })
	}
	if out.AfterSave != nil {
		out.AfterSave()
	}
}

// loseRace handles a conflict: the next pass waits until the cache contains a newer version. A second conflict on the
// same version is an error, because no newer version has arrived in time.
func (p *Pass[T, S, P]) loseRace(req ctrl.Request, obj T, conflict error) (ctrl.Result, error) {
	if isFirst := p.versions.noteLost(req, obj.GetResourceVersion(), p.Clock.Now()); isFirst {
		return ctrl.Result{RequeueAfter: StaleCacheRetry}, nil
	}
	return ctrl.Result{}, fmt.Errorf("write %s: expected the API server to accept a write to the resource version %s, which has been the newest for %s, "+
		"found a second conflict; check for an admission webhook that returns conflicts, or a delayed watch: %w",
		req, obj.GetResourceVersion(), staleCacheLimit, conflict)
}

// awaitCache requeues the object soon after ErrStale, or returns an error if passes have returned ErrStale for
// staleCacheLimit.
func (p *Pass[T, S, P]) awaitCache(req ctrl.Request, stale error) (ctrl.Result, error) {
	waited := p.versions.noteStale(req, p.Clock.Now())
	if waited < staleCacheLimit {
		return ctrl.Result{RequeueAfter: staleRetry(waited)}, nil
	}
	return ctrl.Result{}, fmt.Errorf("expected the cache to catch up with the API server within %s, found another outdated read or write; "+
		"check for an admission webhook that returns conflicts, or a delayed watch: %w", staleCacheLimit, stale)
}

func (p *Pass[T, S, P]) noteWritten(req ctrl.Request, obj versions[T]) {
	p.versions.noteWritten(req, obj.before.GetResourceVersion(), obj.after.GetResourceVersion(), p.Clock.Now())
}

func (p *Pass[T, S, P]) forget(req ctrl.Request) {
	p.versions.forget(req)
	p.transients.Delete(req)
	p.Status.Forget(req)
	p.Ends.Forget(req.NamespacedName)
	if p.Forget != nil {
		p.Forget(req.NamespacedName)
	}
}

// retryUnless returns the delay before the next pass after a write of the object itself: StaleCacheRetry, or zero after
// a failure, because the queue's back-off applies.
func retryUnless(failure error) time.Duration {
	if failure != nil {
		return 0
	}
	return StaleCacheRetry
}
