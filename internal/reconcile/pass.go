// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/statusannotation"
)

// KeyRule is the key of structured log lines under which the rule stands that was followed.
const KeyRule = "rule"

// ErrStale is returned by Observe and Act when the cache is behind what the API server knows. Nothing is reported, and
// the pass is run again soon. What a cache does not mend in time is an error.
var ErrStale = errors.New("the cache is behind the API server")

// ErrPending is returned by Observe when what it needs is not known yet, and the object is enqueued once it is. Nothing is reported.
var ErrPending = errors.New("what the pass needs is not known yet")

// pendingLimit is when a pass runs again that was not enqueued.
const pendingLimit = 2 * time.Minute

// RefusedError is an effect that was refused. The pass reports it and ends normally; the report says when to try again.
type RefusedError struct {
	// Class is the feature's own word for the kind of refusal; empty if it has none.
	Class string
	// Message is for people: what was expected, what was found, what to do.
	Message string
	// Err is what was returned by Act.
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

// FollowUp is what a report asks for beside the status: what happens after it is saved.
type FollowUp struct {
	// Rule names the decision, for the log.
	Rule string
	// RequeueAfter is when to look again; zero waits for an event.
	RequeueAfter time.Duration
	// IsUrgent has that look come before those of objects that are not.
	IsUrgent bool
	// Events are emitted after the status is saved.
	Events []decision.Event
	// AfterSave runs after the status is saved, for counters.
	AfterSave func()
	// IsTransient says that the report is of something that goes on. It is saved only if something still goes on after
	// statusDebounce, and then once in each; what is over sooner is never written. A report with events is saved at once.
	IsTransient bool
	// RemembersLater says that a later pass, which comes by itself, may write the annotation of what is remembered, as long as the status
	// keeps it: the write is out of the way while something is in a hurry.
	RemembersLater bool
}

// Pass is one feature's reconciler of one kind. It implements the Reconciler of controller-runtime.
type Pass[T client.Object, S, P any] struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Recorder emits events.
	Recorder events.EventRecorder
	// Clock tells the time, for the debounce of transient reports.
	Clock clock.PassiveClock
	// New makes an empty object.
	New func() T
	// Owner is the field manager of what the pass itself writes; empty leaves it to the client.
	Owner string

	// Guard, if set, keeps the pass away from objects that another project writes.
	Guard *WriterGuard
	// Prepare, if set, fills in what a webhook would, and reports whether it changed anything. It is written before the
	// object is observed. Without it, a finalizer is all that is filled in.
	Prepare func(obj T) (changed bool)
	// Finalizer, if set, keeps a deleted object until its Finalize is done.
	Finalizer *Finalizer[T]
	// Forget, if set, is called when the object is gone: what is kept of it in memory goes too.
	Forget func(name types.NamespacedName)

	// Observe reads everything that the decision may look at. It only reads, and may return ErrStale or ErrPending.
	Observe func(ctx context.Context, obj T) (S, error)
	// Release, if set, closes what Observe opened, at the end of the pass.
	Release func(seen S)
	// Decide is pure and total.
	Decide func(seen S) P
	// Act, if set, carries out the plan: idempotent, bounded, and not waited for. It returns ErrStale, a *RefusedError, or another error,
	// which is reported as a *RefusedError too and then returned, so that the queue backs off.
	Act func(ctx context.Context, seen S, plan P) error
	// Report writes into the status of obj.
	Report func(obj T, seen S, plan P, refused *RefusedError) FollowUp

	// Ends, if set, has passes in which an overdue stop ends come before others of the process, and events after them.
	Ends *EndTracker[T]

	// SharesStatus says that several controllers write this status, each its own fields and conditions: a write of another one
	// is no conflict.
	SharesStatus bool
	// Conditions, if set, are where fields are reported that the served schema does not keep; an event tells of them anyway.
	Conditions func(obj T) *[]metav1.Condition
	// Remember, if set, returns the fields of the status that later passes decide by. They are kept in an annotation of Owner
	// where the served schema drops them, and are back in the status before Observe.
	Remember func(obj T) map[string]any
	// RemembersAlways keeps them there whatever the schema, which may be replaced at any time.
	RemembersAlways bool
	// Recoverable are paths of the status that later passes find out again once they are lost: where the schema keeps them, the
	// annotation need not have them.
	Recoverable []string

	versions   versionTracker
	transients sync.Map
	schema     servedSchema
}

// Finalizer keeps a deleted object until what belongs to it is gone.
type Finalizer[T client.Object] struct {
	Name string
	// Finalize deletes what belongs to obj and returns when to look again; the finalizer is removed when that is zero.
	// What it writes into the status of obj is saved while the finalizer stays.
	Finalize func(ctx context.Context, obj T) (lookAgainAfter time.Duration, err error)
}

// Reconcile implements reconcile.Reconciler. An effect that fails does not keep its report from being saved.
func (p *Pass[T, S, P]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := p.New()
	if err := p.Client.Get(ctx, req.NamespacedName, obj); err != nil {
		if k8serrors.IsNotFound(err) {
			p.forget(req)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// A pass on a version that is known to be outdated would observe the world for nothing and lose the race.
	if wait := p.versions.awaitNewer(req, obj.GetResourceVersion(), p.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if yields, result, err := p.yield(ctx, obj); yields || err != nil {
		p.Ends.forget(req.NamespacedName)
		return result, err
	}
	before, _ := obj.DeepCopyObject().(T)
	statusannotation.RestoreStatus(obj)
	// What other controllers remember is not for this one to write.
	statusannotation.RestoreStatus(before, statusannotation.KeyOf(p.Owner))
	if wait := p.Ends.awaitTurn(ctx, req.NamespacedName, obj); wait > 0 {
		return ctrl.Result{RequeueAfter: wait, Priority: new(UsualPriority)}, nil
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
		p.Ends.forget(req.NamespacedName) // What it waits for may take long.
		return ctrl.Result{RequeueAfter: pendingLimit}, nil
	}
	result, err := p.save(ctx, req, versions[T]{before, obj}, out, failure)
	if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > goesOnWithin || !p.Ends.hasOverdue(obj) {
		p.Ends.forget(req.NamespacedName) // It has ended, or waits for something that others must not.
	}
	return result, err
}

// goesOnWithin is the longest interval of a pass that goes on with what the last one has written.
const goesOnWithin = time.Second

// versions are an object as it was read, and as a pass has left it.
type versions[T client.Object] struct{ before, after T }

func (v versions[T]) isReplaced() bool {
	return v.before.GetResourceVersion() != v.after.GetResourceVersion()
}

// observeAndAct is the pass between the read of the object and the write of its status.
func (p *Pass[T, S, P]) observeAndAct(ctx context.Context, obj T) (FollowUp, error) {
	seen, err := p.Observe(ctx, obj)
	if err != nil {
		return FollowUp{}, &unreportedError{err}
	}
	if p.Release != nil {
		defer p.Release(seen)
	}
	plan := p.Decide(seen)
	if p.Act != nil {
		err = p.Act(ctx, seen, plan)
	}
	if errors.Is(err, ErrStale) {
		return FollowUp{}, err
	}
	if ended := ctx.Err(); ended != nil {
		// What an effect says that was cut off by the end of its pass is not about the effect.
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

// goneRetry is when an object is looked for again that could not be written because it is not there.
const goneRetry = time.Second

// unreportedError is an error that came before there was anything to report.
type unreportedError struct{ error }

// Unwrap implements the interface of errors.Is and errors.As.
func (u *unreportedError) Unwrap() error { return u.error }

// save writes the status once, then emits events and counts.
func (p *Pass[T, S, P]) save(ctx context.Context, req ctrl.Request, obj versions[T], out FollowUp, failure error) (ctrl.Result, error) {
	if u, ok := errors.AsType[*unreportedError](failure); ok {
		return ctrl.Result{}, u.error
	}
	if obj.isReplaced() {
		// The effect has changed the object itself, so that a report on the version before it would be refused.
		p.noteWritten(req, obj)
		return ctrl.Result{RequeueAfter: retryUnless(failure)}, failure
	}
	if failure == nil {
		if wait := p.debounce(req, out.IsTransient && len(out.Events) == 0); wait > 0 {
			return ctrl.Result{RequeueAfter: minNonZero(wait, out.RequeueAfter)}, nil
		}
	}
	written, err := p.writeStatus(ctx, obj.before, obj.after, out.RemembersLater)
	if err == nil || written.isStored { // The next pass finds no news in what is stored.
		p.tell(obj.after, out, written)
	}
	switch {
	case k8serrors.IsConflict(err):
		return p.loseRace(req, obj.before, err)
	case k8serrors.IsNotFound(err): // It is gone, or an API server does not serve its kind for a moment.
		return ctrl.Result{RequeueAfter: goneRetry}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("save status: %w", err)
	case written.changed:
		log.FromContext(ctx).Info("Status changed", KeyRule, out.Rule)
	}
	if obj.isReplaced() {
		p.noteWritten(req, obj)
	}
	if failure != nil {
		return ctrl.Result{}, failure
	}
	isHot := out.RequeueAfter > 0 && out.RequeueAfter < hotInterval && len(written.unkept) > 0
	out.RequeueAfter = max(out.RequeueAfter, p.schema.backoff(req, out.Rule, isHot))
	if out.RequeueAfter == 0 {
		return ctrl.Result{}, nil
	}
	out.IsUrgent = out.IsUrgent || p.Ends.hasOverdue(obj.after)
	return ctrl.Result{RequeueAfter: out.RequeueAfter, Priority: new(priorityOf(out))}, nil
}

// tell emits events, once no stop is waited for that is overdue, and counts.
func (p *Pass[T, S, P]) tell(obj T, out FollowUp, written statusWrite) {
	if events := append(out.Events, lostFieldsEvents(written.firstLost)...); len(events) > 0 {
		p.Ends.tell(func() { EmitEvents(p.Recorder, obj, events) })
	}
	if out.AfterSave != nil {
		out.AfterSave()
	}
}

// loseRace waits for the version that has won. One that was refused before and is still the newest has not lost to another.
func (p *Pass[T, S, P]) loseRace(req ctrl.Request, obj T, conflict error) (ctrl.Result, error) {
	if isFirst := p.versions.noteLost(req, obj.GetResourceVersion(), p.Clock.Now()); isFirst {
		return ctrl.Result{RequeueAfter: StaleCacheRetry}, nil
	}
	return ctrl.Result{}, fmt.Errorf("write %s: expected the API server to take a write of the resource version %s, which nothing has replaced for %s, "+
		"found it refused as a conflict again; look for an admission webhook that answers so, or a watch that is late: %w",
		req, obj.GetResourceVersion(), staleCacheLimit, conflict)
}

// awaitCache looks again at what a cache was behind with, until that is no reason any more.
func (p *Pass[T, S, P]) awaitCache(req ctrl.Request, stale error) (ctrl.Result, error) {
	waited := p.versions.noteStale(req, p.Clock.Now())
	if waited < staleCacheLimit {
		return ctrl.Result{RequeueAfter: staleRetry(waited)}, nil
	}
	return ctrl.Result{}, fmt.Errorf("expected the cache to catch up within %s, found it refused again as outdated; "+
		"look for an admission webhook that answers with conflicts, or a watch that is late: %w", staleCacheLimit, stale)
}

func (p *Pass[T, S, P]) noteWritten(req ctrl.Request, obj versions[T]) {
	p.versions.noteWritten(req, obj.before.GetResourceVersion(), obj.after.GetResourceVersion(), p.Clock.Now())
}

func (p *Pass[T, S, P]) forget(req ctrl.Request) {
	p.versions.forget(req)
	p.transients.Delete(req)
	p.schema.forget(req)
	p.Ends.forget(req.NamespacedName)
	if p.Forget != nil {
		p.Forget(req.NamespacedName)
	}
}

// retryUnless is the interval after a write of the object itself; an error has its own, the queue's back-off.
func retryUnless(failure error) time.Duration {
	if failure != nil {
		return 0
	}
	return StaleCacheRetry
}
