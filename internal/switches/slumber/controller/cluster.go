// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/reconcile/priority"
	reconcilestatus "github.com/torpor-dev/torpor/internal/reconcile/status"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// ClusterName is the name of the controller of ClusterSlumbers and of its event recorder.
const ClusterName = "torpor-clusterslumber"

const (
	// delayPerMember is added to changesDelay for each member, because each reconciliation lists every kind in all
	// namespaces.
	delayPerMember = time.Millisecond
	// awakeDelayFactor multiplies the delay while a ClusterSlumber is awake, because changes to its members then
	// affect only counts.
	awakeDelayFactor = 10
)

// ClusterController reconciles ClusterSlumbers. It handles a ClusterSlumber as a Slumber without a namespace. It
// needs a manager that watches all namespaces.
type ClusterController struct{ Controller }

// SetupWithManager adds the controller.
func (c ClusterController) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	c.Metrics.clusterCache.Use(mgr.GetClient())
	workers := reconcile.WorkerOptions{Count: 2, PassTimeout: 5 * time.Minute, MinBackoff: time.Second, MaxBackoff: 2 * time.Minute}
	ends := priority.TrackEnds(c.Ends, ClusterName, func(s *torporv1alpha1.ClusterSlumber) bool {
		return slumber.IsWakePending(slumber.ViewOf(s), c.Clock.Now())
	}, nil)
	build := builder.ControllerManagedBy(mgr).
		Named(ClusterName).
		For(&torporv1alpha1.ClusterSlumber{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, reconcile.AnnotationChangedByOthers()))).
		Watches(&torporv1alpha1.ClusterSlumber{}, ends.EnqueueOverdue()).
		Watches(&torporv1alpha1.Slumber{}, c.enqueueAll(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(&corev1.Namespace{}, c.enqueueAll(), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WithOptions(workers.Options())
	for _, kind := range kinds.ListOwn() {
		build = build.Watches(kind.New(), c.enqueueMember(kind), builder.WithPredicates(c.memberChanged(kind)))
	}
	if c.Members != nil {
		build = build.WatchesRawSource(c.Members.watch(c.enqueueConcerned, c.Clock))
	}
	err := build.Complete(c.withOrphans(newGoneClusterSlumber, &reconcile.Pass[*torporv1alpha1.ClusterSlumber, *observation, slumber.Plan]{
		Hub: reconcile.HubOf(mgr, ClusterName, c.Clock), Ends: ends,
		New: func() *torporv1alpha1.ClusterSlumber { return &torporv1alpha1.ClusterSlumber{} },
		Finalizer: &reconcile.Finalizer[*torporv1alpha1.ClusterSlumber]{
			Name: torporv1alpha1.SlumberFinalizer,
			Finalize: func(ctx context.Context, s *torporv1alpha1.ClusterSlumber) (time.Duration, error) {
				return c.finalize(ctx, slumber.ViewOf(s))
			},
		},
		Observe: c.observe,
		Decide:  func(seen *observation) slumber.Plan { return slumber.Decide(seen.Observed) },
		Act:     c.act,
		Report:  c.report,
		Status: reconcilestatus.Storage[*torporv1alpha1.ClusterSlumber]{
			Conditions: func(s *torporv1alpha1.ClusterSlumber) *[]metav1.Condition { return &s.Status.Conditions },
		},
	}))
	if err != nil {
		return fmt.Errorf("set up %s: %w", ClusterName, err)
	}
	return nil
}

func newGoneClusterSlumber(req ctrl.Request) (client.Object, *torporv1alpha1.Slumber) {
	s := &torporv1alpha1.ClusterSlumber{ObjectMeta: metav1.ObjectMeta{Name: req.Name}}
	return s, slumber.ViewOf(s)
}

// observe reads the members in all namespaces.
func (c ClusterController) observe(ctx context.Context, s *torporv1alpha1.ClusterSlumber) (*observation, error) {
	var slumbers torporv1alpha1.SlumberList
	if err := c.client.List(ctx, &slumbers, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the Slumbers: %w", err)
	}
	namespaces, err := c.listNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	view := slumber.ViewOf(s)
	reach, err := slumber.NewReach(s, namespaces, slumbers.Items)
	if err != nil {
		return c.observeInvalid(view, err), nil
	}
	return c.Controller.observe(ctx, view, reach)
}

// observeInvalid returns the observation of a ClusterSlumber whose namespaces cannot be selected.
func (c ClusterController) observeInvalid(view *torporv1alpha1.Slumber, invalid error) *observation {
	return &observation{Observed: slumber.Observed{Now: c.Clock.Now(), Slumber: view, InvalidReach: invalid}}
}

// listNamespaces returns the metadata of all namespaces from the cache.
func (c ClusterController) listNamespaces(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := c.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the namespaces: %w", err)
	}
	return list.Items, nil
}

// report writes the plan into the status.
func (c ClusterController) report(s *torporv1alpha1.ClusterSlumber, seen *observation, plan slumber.Plan, refused *reconcile.RefusedError) reconcile.FollowUp {
	out := c.Controller.report(seen.Slumber, seen, plan, refused)
	s.Status = seen.Slumber.Status
	return out
}

// enqueueConcerned enqueues each ClusterSlumber that selects an object or has stopped it, including deleted
// ClusterSlumbers. If obj is nil, it enqueues every ClusterSlumber.
func (c ClusterController) enqueueConcerned(ctx context.Context, kind kinds.Kind, obj client.Object, add addFunc) {
	var list torporv1alpha1.ClusterSlumberList
	if err := c.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return // The cache returns an error only while the controller is ending.
	}
	known := map[string]bool{}
	for i := range list.Items {
		s := &list.Items[i]
		known[torporv1alpha1.ClusterSlumberPrefix+s.Name] = true
		req := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s)}
		if obj == nil {
			add(req, 0)
		} else if c.concerns(ctx, s, kind, obj) {
			add(req, delayOf(s))
		}
	}
	if obj == nil {
		return
	}
	for _, stop := range stoprecord.ReadScheduled(obj.GetAnnotations()) {
		if name, isOfCluster := strings.CutPrefix(stop.Slumber, torporv1alpha1.ClusterSlumberPrefix); isOfCluster && !known[stop.Slumber] {
			add(ctrl.Request{NamespacedName: client.ObjectKey{Name: name}}, changesDelay)
		}
	}
}

// concerns reports whether a ClusterSlumber may select an object, or has stopped it. It does not check whether a
// Slumber of the namespace takes precedence.
func (c ClusterController) concerns(ctx context.Context, s *torporv1alpha1.ClusterSlumber, kind kinds.Kind, obj client.Object) bool {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := c.client.Get(ctx, client.ObjectKey{Name: obj.GetNamespace()}, namespace, client.UnsafeDisableDeepCopy); err != nil {
		namespace.Name = obj.GetNamespace() // If the namespace is not cached yet, its event enqueues the ClusterSlumber later.
	}
	reach, err := slumber.NewReach(s, []metav1.PartialObjectMetadata{*namespace}, nil)
	return err == nil && slumber.Concerns(slumber.ViewOf(s), reach, kind.GVK().GroupKind(), obj)
}

// delayOf returns how long changes to members are collected before a ClusterSlumber is reconciled.
func delayOf(s *torporv1alpha1.ClusterSlumber) time.Duration {
	delay := changesDelay + time.Duration(s.Status.Members)*delayPerMember
	if s.Status.State == torporv1alpha1.SlumberAwake {
		delay *= awakeDelayFactor
	}
	return delay
}

type workQueue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// enqueueMember enqueues the ClusterSlumbers that a changed object concerns in its old or its new state.
func (c ClusterController) enqueueMember(kind kinds.Kind) handler.EventHandler {
	enqueue := func(ctx context.Context, queue workQueue, objects ...client.Object) {
		for _, obj := range objects {
			c.enqueueConcerned(ctx, kind, obj, queue.AddAfter)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue workQueue) { enqueue(ctx, queue, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue workQueue) {
			enqueue(ctx, queue, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue workQueue) { enqueue(ctx, queue, e.Object) },
	}
}

// enqueueAll enqueues every ClusterSlumber when Slumbers or namespaces change.
func (c ClusterController) enqueueAll() handler.EventHandler {
	enqueue := func(ctx context.Context, queue workQueue) {
		c.enqueueConcerned(ctx, kinds.Kind{}, nil, func(req ctrl.Request, _ time.Duration) { queue.AddAfter(req, changesDelay) })
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, _ event.CreateEvent, queue workQueue) { enqueue(ctx, queue) },
		UpdateFunc: func(ctx context.Context, _ event.UpdateEvent, queue workQueue) { enqueue(ctx, queue) },
		DeleteFunc: func(ctx context.Context, _ event.DeleteEvent, queue workQueue) { enqueue(ctx, queue) },
	}
}
