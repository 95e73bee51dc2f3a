// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"sync"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// cacheRetry is when the cache is asked again for an object whose newer version is on its way to it.
const cacheRetry = 5 * time.Millisecond

// Outcome is what a step asks for.
type Outcome struct {
	// After is when to look again; zero waits for an event.
	After time.Duration
	// Why names the decision, for the log.
	Why string
	// Events are emitted after the status is saved.
	Events []Event
	// Saved runs after the status is saved, for counters.
	Saved func()
	// Underway says that the report is of something that goes on. It is saved only if something still goes on after a moment,
	// and then once in each moment; what is over sooner is never written. An event is told at once, with its report.
	Underway bool
}

// Reconciler is the shell around one feature's Step. It alone reads the object and writes its status, once per pass.
type Reconciler[T client.Object] struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Recorder emits events.
	Recorder events.EventRecorder
	// New makes an empty object.
	New func() T
	// Step observes, decides, acts, and leaves what it reports in the object's status.
	Step func(ctx context.Context, obj T) (Outcome, error)

	// outdated holds, by request, the version that the last write replaced or lost against.
	outdated sync.Map
	// underway holds, by request, since when a report of something that goes on is held back.
	underway sync.Map
}

// Reconcile implements reconcile.Reconciler. An error of the step does not keep its report from being saved.
// A pass never looks at a version that it knows to be outdated: it would observe the world for nothing and lose the race.
func (r *Reconciler[T]) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	obj := r.New()
	if err := r.Client.Get(ctx, req.NamespacedName, obj); err != nil {
		r.outdated.Delete(req)
		r.underway.Delete(req)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if old, ok := r.outdated.Load(req); ok && old == obj.GetResourceVersion() {
		return ctrl.Result{RequeueAfter: cacheRetry}, nil
	}
	before := obj.DeepCopyObject().(T)
	out, failure := r.Step(ctx, obj)
	if before.GetResourceVersion() != obj.GetResourceVersion() {
		// The step has changed the object itself, so a report on the version before it would be refused.
		r.outdated.Store(req, before.GetResourceVersion())
		if failure != nil {
			return ctrl.Result{}, failure
		}
		return ctrl.Result{RequeueAfter: cacheRetry}, nil
	}
	if failure == nil {
		if wait := r.hold(req, out.Underway && len(out.Events) == 0); wait > 0 {
			return ctrl.Result{RequeueAfter: sooner(wait, out.After)}, nil
		}
	}
	changed, err := patchStatus(ctx, r.Client, before, obj)
	if k8serrors.IsConflict(err) || err == nil && before.GetResourceVersion() != obj.GetResourceVersion() {
		r.outdated.Store(req, before.GetResourceVersion())
	}
	switch {
	case k8serrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: cacheRetry}, nil
	case k8serrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("save status: %w", err)
	case changed:
		log.FromContext(ctx).Info("Status changed", KeyRule, out.Why)
	}
	emit(r.Recorder, obj, out.Events)
	if out.Saved != nil {
		out.Saved()
	}
	if failure != nil {
		return ctrl.Result{}, failure
	}
	return ctrl.Result{RequeueAfter: out.After}, nil
}
