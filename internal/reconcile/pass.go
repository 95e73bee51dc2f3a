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
	reconcilestatus "github.com/torpor-dev/torpor/internal/reconcile/status"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
	"github.com/torpor-dev/torpor/internal/reconcile/urgency"
)

// KeyRule is the key of structured log lines that holds the name of the rule that was followed.
const KeyRule = "rule"

// ErrStale is returned by Observe and Act when the cache is behind the API server. Nothing is reported, and the pass
// runs again soon. If the cache does not catch up in time, the pass fails.
var ErrStale = errors.New("the cache is behind the API server")

// ErrPending is returned by Observe when a needed answer is still missing; the object is enqueued when the answer
// arrives. Nothing is reported.
var ErrPending = errors.New("an answer that the pass needs is still missing")

// pendingLimit is the delay of the next pass if no answer enqueues it earlier.
const pendingLimit = 2 * time.Minute

// RefusedError is an action that was rejected. The pass reports it and ends normally; the report defines when to try
// again.
type RefusedError struct {
	// Class is the feature's own name for the kind of refusal; empty if it has none.
	Class string
	// Message is for users: expected, found, next step.
	Message string
	// Err is the error that Act returned.
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
	// Rule names the decision in the log.
	Rule string
	// RequeueAfter is the delay of the next pass; zero waits for an event.
	RequeueAfter time.Duration
	// IsUrgent gives that pass priority over passes that are not urgent.
	IsUrgent bool
	// Events are emitted and logged after the status is saved.
	Events []decision.Event
	// Changes are logged after the status is saved.
	Changes []decision.Change
	// Request is what the log adds to each event: who requested the state of the object, why and until when.
	Request decision.Request
	// AfterSave runs after the status is saved, for counters.
	AfterSave func()
	// IsTransient is true for a report of an operation in progress. It is saved only if an operation is still in
	// progress after statusDebounce, and then once in each such interval. Shorter operations are never written. A
	// report with events is saved at once, unless EventsRecur.
	IsTransient bool
	// EventsRecur is true if all events follow from a difference to the stored status, so that a later pass emits those
	// of a report that is held back.
	EventsRecur bool
	// RemembersLater allows a later pass, which is sure to come, to write the annotation of remembered fields, as
	// long as the status keeps them. It avoids that write while a stop or start is urgent.
	RemembersLater bool
}

// Hub is the access of a controller to the hub's API server.
type Hub struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Recorder emits events.
	Recorder events.EventRecorder
	// Clock is the source of the current time.
	Clock clock.PassiveClock
	// Owner is the field manager of the controller's own writes; empty leaves it to the client.
	Owner string
}

// HubOf returns the access of the controller with a name.
func HubOf(mgr manager.Manager, name string, now clock.PassiveClock) Hub {
	return Hub{Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(name), Clock: now, Owner: name}
}

// Pass is one feature's reconciler of one kind. It implements the Reconciler of controller-runtime. An option exists
// only if two controllers need it.
type Pass[T client.Object, S, P any] struct {
	Hub
	// New returns an empty object.
	New func() T
	// Status defines how the status is stored.
	Status reconcilestatus.Storage[T]

	// Guard, if set, keeps the pass away from objects that another project writes.
	Guard *WriterGuard
	// Finalizer, if set, keeps a deleted object until its Finalize is done.
	Finalizer *Finalizer[T]
	// Ends, if set, gives passes that end an overdue stop priority over other passes of the process; events come
	// after them.
	Ends *urgency.EndTracker[T]
	// Forget, if set, is called when the object is gone, to free what is held of it in memory.
	Forget func(name types.NamespacedName)

	// Observe reads everything that the decision may use. It only reads, and may return ErrStale or ErrPending.
	Observe func(ctx context.Context, obj T) (S, error)
	// Decide returns the plan. It has no side effects, and handles every observation.
	Decide func(seen S) P
	// Act, if set, carries out the plan. It is idempotent, limited in time, and does not wait for effects. It returns
	// ErrStale, a *RefusedError, or another error, which is also reported as a *RefusedError and then returned, so
	// that the queue backs off.
	Act func(ctx context.Context, seen S, plan P) error
	// Report writes into the status of obj.
	Report func(obj T, seen S, plan P, refused *RefusedError) FollowUp

	versions   versionTracker
	transients sync.Map
}

// Finalizer keeps a deleted object until its dependents are gone.
type Finalizer[T client.Object] struct {
	Name string
	// Prepare, if set, adds the finalizer together with the defaults that a webhook would set, and reports whether it
	// changed anything. It may leave an object alone. Without Prepare, only the finalizer is added.
	Prepare func(obj T) (changed bool)
	// Finalize deletes the dependents of obj and returns when to try again; the finalizer is removed when that is
	// zero. Its changes to the status of obj are saved while the finalizer stays.
	Finalize func(ctx context.Context, obj T) (lookAgainAfter time.Duration, err error)
}

// Reconcile implements reconcile.Reconciler. A failed action does not prevent its report from being saved.
func (p *Pass[T, S, P]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := p.New()
	if err := p.Client.Get(ctx, req.NamespacedName, obj); err != nil {
		if k8serrors.IsNotFound(err) {
			p.forget(req)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// A pass on an outdated version would lose the race for the write.
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
		return ctrl.Result{RequeueAfter: wait, Priority: new(urgency.UsualPriority)}, nil
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
		p.Ends.Forget(req.NamespacedName) // The answer may take long.
		return ctrl.Result{RequeueAfter: pendingLimit}, nil
	}
	result, err := p.save(ctx, req, versions[T]{before, obj}, out, failure)
	if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > goesOnWithin || !p.Ends.HasOverdue(obj) {
		p.Ends.Forget(req.NamespacedName) // The stop has ended, or waits for something that must not delay others.
	}
	return result, err
}

// goesOnWithin is the longest interval after which a pass counts as continuing at once.
const goesOnWithin = time.Second

// versions are an object as it was read, and as the pass has left it.
type versions[T client.Object] struct{ before, after T }

func (v versions[T]) isReplaced() bool {
	return v.before.GetResourceVersion() != v.after.GetResourceVersion()
}

// observeAndAct is the part of the pass between the read of the object and the write of its status.
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

// goneRetry is the delay before an object is read again that was not found when it was written.
const goneRetry = time.Second

// unreportedError is an error from before there was a report.
type unreportedError struct{ error }

// Unwrap implements the interface of errors.Is and errors.As.
func (u *unreportedError) Unwrap() error { return u.error }

// save writes the status once, then emits events and updates counters.
func (p *Pass[T, S, P]) save(ctx context.Context, req ctrl.Request, obj versions[T], out FollowUp, failure error) (ctrl.Result, error) {
	if u, ok := errors.AsType[*unreportedError](failure); ok {
		return ctrl.Result{}, u.error
	}
	if obj.isReplaced() {
		// The action has changed the object itself, so a report on its earlier version would be refused.
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
	if err == nil || written.IsStored { // The next pass finds no difference to the stored status.
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
	return ctrl.Result{RequeueAfter: out.RequeueAfter, Priority: new(urgency.PriorityOf(out.IsUrgent))}, nil
}

// tell emits events, after all overdue ends, and updates counters.
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

// loseRace waits for the version that has won. If the same version is refused a second time while it is still the
// newest, it has not lost to another.
func (p *Pass[T, S, P]) loseRace(req ctrl.Request, obj T, conflict error) (ctrl.Result, error) {
	if isFirst := p.versions.noteLost(req, obj.GetResourceVersion(), p.Clock.Now()); isFirst {
		return ctrl.Result{RequeueAfter: StaleCacheRetry}, nil
	}
	return ctrl.Result{}, fmt.Errorf("write %s: expected the API server to accept a write to the resource version %s, which has been the newest for %s, "+
		"found a second refusal as a conflict; look for an admission webhook that answers with conflicts, or a watch that is late: %w",
		req, obj.GetResourceVersion(), staleCacheLimit, conflict)
}

// awaitCache runs the pass again soon, until the limit for a late cache is reached.
func (p *Pass[T, S, P]) awaitCache(req ctrl.Request, stale error) (ctrl.Result, error) {
	waited := p.versions.noteStale(req, p.Clock.Now())
	if waited < staleCacheLimit {
		return ctrl.Result{RequeueAfter: staleRetry(waited)}, nil
	}
	return ctrl.Result{}, fmt.Errorf("expected the cache to catch up with the API server within %s, found another write refused as outdated; "+
		"look for an admission webhook that answers with conflicts, or a watch that is late: %w", staleCacheLimit, stale)
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

// retryUnless returns the interval after a write of the object itself; after an error, the queue's back-off applies.
func retryUnless(failure error) time.Duration {
	if failure != nil {
		return 0
	}
	return StaleCacheRetry
}
