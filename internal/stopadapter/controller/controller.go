// SPDX-License-Identifier: Apache-2.0

// Package controller stops and restores the objects of one kind with a switch: a pass reads an object and who scales it, lets
// stopadapter.Decide decide, and writes what differs at once. It writes the fields that the adapter names in others' objects
// and its own annotations, and never a status.
//
// Only the metadata of the objects is cached, because a cluster may have thousands, of which few are ever stopped. Those few are read whole,
// past the cache, when their annotations change.
package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/stopadapter"
	"github.com/torpor-dev/torpor/internal/stoppable"
)

// Name of the events and the field manager; the controller of a kind is called Name and the kind's name.
const Name = "torpor-switch"

const (
	// refusedInterval is when a write is tried again that the API server has refused.
	refusedInterval = 2 * time.Minute
	// maxRefusal is how much of what it says is shown, in bytes.
	maxRefusal = 500
	// newRefusal is the class of a refusal that was not told yet.
	newRefusal = "NewRefusal"
)

// Observer is told which kinds can be stopped, and when something of their objects changes.
type Observer interface {
	// AddKind says that the objects of a kind can be read, their metadata from a cache and whole ones past it, and are stopped if they are to be.
	AddKind(ctx context.Context, kind stoppable.Kind, reader client.Reader)
	// RemoveKind says that they are not any more.
	RemoveKind(ctx context.Context, kind stoppable.Kind)
	// ObjectChanged says that something of an object has changed, which is as it was before or as it is now.
	ObjectChanged(ctx context.Context, kind stoppable.Kind, obj client.Object)
}

// Controller reconciles the objects of one kind.
type Controller struct {
	// Clock tells the time.
	Clock clock.PassiveClock
	// Kind has a switch.
	Kind stoppable.Kind
	// Observer is told of the kind; nil for nobody.
	Observer Observer
	// Metrics shows the stops; nil for nobody.
	Metrics *Metrics
	// Ends are the overdue ends of all controllers; nil for none.
	Ends *reconcile.OverdueEnds

	client client.Client
}

// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=batch,resources=cronjobs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=autoscaling,resources=horizontalpodautoscalers,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client = mgr.GetClient()
	if err := c.requireNamespaces(); err != nil {
		return err
	}
	name := Name + "-" + strings.ToLower(c.Kind.GVK.Kind)
	if c.Kind.GVK.Group != "" {
		name += "." + c.Kind.GVK.Group
	}
	workers := reconcile.WorkerOptions{Count: 4, PassTimeout: time.Minute, MinBackoff: time.Second, MaxBackoff: 2 * time.Minute}
	ends := reconcile.TrackEnds(c.Ends, name, c.isRestoreDue, nil)
	build := builder.ControllerManagedBy(mgr).
		Named(name).
		For(c.newMetadata(), builder.WithPredicates(hasSwitch(), predicate.Or(predicate.GenerationChangedPredicate{}, reconcile.AnnotationChangedByOthers()))).
		Watches(c.newMetadata(), ends.EnqueueOverdue()).
		WithOptions(workers.Options())
	if c.Observer != nil {
		build = build.Watches(c.newMetadata(), c.tellObserver())
	}
	if c.Kind.Switch.IsScaled {
		build = build.Watches(&autoscalingv2.HorizontalPodAutoscaler{}, handler.EnqueueRequestsFromMapFunc(c.scaledObject), builder.WithPredicates(reconcile.FieldChanged(readRefusal)))
	}
	err := build.Complete(&reconcile.Pass[*metav1.PartialObjectMetadata, stopadapter.ObservedSwitch, stopadapter.SwitchPlan]{
		Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name), Clock: c.Clock, Owner: Name, Ends: ends,
		New: c.newMetadata, Observe: c.observe, Decide: stopadapter.Decide, Act: c.act, Report: report,
	})
	if err == nil {
		err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return c.announce(ctx, mgr.GetCache()) }))
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	return nil
}

// requireNamespaces returns an error for a kind that has none: the Slumbers of every namespace would stop all of its objects.
func (c Controller) requireNamespaces() error {
	hasNamespaces, err := c.client.IsObjectNamespaced(c.newMetadata())
	if err != nil {
		return fmt.Errorf("find out whether %s has namespaces: %w", c.Kind.GVK.Kind, err)
	}
	if !hasNamespaces {
		return fmt.Errorf("expected a kind whose objects are in namespaces, found that those of %s are in none; nobody can stop them by namespace", c.Kind.GVK.Kind)
	}
	return nil
}

func (c Controller) isRestoreDue(obj *metav1.PartialObjectMetadata) bool {
	return stopadapter.IsRestoreDue(obj, c.Clock.Now())
}

// hasSwitch lets through objects that have an annotation of a switch, or had one before an update.
func hasSwitch() predicate.Predicate {
	has := predicate.NewPredicateFuncs(func(o client.Object) bool { return stopadapter.HasSwitch(o) })
	return predicate.Funcs{
		CreateFunc: has.Create, DeleteFunc: has.Delete, GenericFunc: has.Generic,
		UpdateFunc: func(e event.UpdateEvent) bool {
			return stopadapter.HasSwitch(e.ObjectOld) || stopadapter.HasSwitch(e.ObjectNew)
		},
	}
}

func (c Controller) newMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(c.Kind.GVK)
	return m
}

// announce says that the kind can be stopped, for as long as the controller runs.
func (c Controller) announce(ctx context.Context, cached client.Reader) error {
	c.Metrics.add(c.Kind, cached)
	if c.Observer != nil {
		c.Observer.AddKind(ctx, c.Kind, c.client)
	}
	<-ctx.Done()
	c.Metrics.remove(c.Kind)
	if c.Observer != nil {
		c.Observer.RemoveKind(context.WithoutCancel(ctx), c.Kind)
	}
	return nil
}

// TrimMetadata takes from an object that is about to be cached what no controller of this package reads: who wrote the fields of one that nobody
// stops, and what kubectl applied last, which is the whole object once more.
func TrimMetadata(m *metav1.PartialObjectMetadata) {
	if !stopadapter.HasSwitch(m) {
		m.ManagedFields = nil
	}
	delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
}

// tellObserver passes events on, and asks for no pass.
func (c Controller) tellObserver() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, _ queue) {
			c.Observer.ObjectChanged(ctx, c.Kind, e.Object)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, _ queue) {
			if isSelectedAnew(e.ObjectOld, e.ObjectNew) {
				c.Observer.ObjectChanged(ctx, c.Kind, e.ObjectOld)
			}
			c.Observer.ObjectChanged(ctx, c.Kind, e.ObjectNew)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, _ queue) {
			c.Observer.ObjectChanged(ctx, c.Kind, e.Object)
		},
	}
}

// isSelectedAnew reports whether an object may concern others than before. Most updates are of a status, and concern the same.
func isSelectedAnew(before, after client.Object) bool {
	return !maps.Equal(before.GetLabels(), after.GetLabels()) || !maps.Equal(before.GetAnnotations(), after.GetAnnotations())
}

// observe reads the whole object, and who else decides about it.
func (c Controller) observe(ctx context.Context, cached *metav1.PartialObjectMetadata) (stopadapter.ObservedSwitch, error) {
	if !stopadapter.HasSwitch(cached) {
		return stopadapter.ObservedSwitch{}, nil
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(c.Kind.GVK)
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(cached), obj); k8serrors.IsNotFound(err) {
		return stopadapter.ObservedSwitch{}, nil // The cache is about to say so.
	} else if err != nil {
		return stopadapter.ObservedSwitch{}, fmt.Errorf("read the object: %w", err)
	}
	seen := stopadapter.ObservedSwitch{
		Now: c.Clock.Now(), Object: obj, Operations: c.Kind.Switch.Operations, Refusal: stopadapter.RefuseOwned(obj),
		Manager: stopadapter.FindManager(obj, stopadapter.ListPaths(c.Kind.Switch.Operations)),
	}
	if !c.Kind.Switch.IsScaled || seen.Refusal != "" {
		return seen, nil
	}
	var list autoscalingv2.HorizontalPodAutoscalerList
	if err := c.client.List(ctx, &list, client.InNamespace(obj.GetNamespace())); err != nil {
		return seen, fmt.Errorf("list the HorizontalPodAutoscalers: %w", err)
	}
	seen.Refusal = stopadapter.RefuseAutoscaled(obj, list.Items)
	return seen, nil
}

// readRefusal returns what an autoscaler is looked at for; it reports what it measures every few seconds.
func readRefusal(a *autoscalingv2.HorizontalPodAutoscaler) any {
	return [...]any{a.Spec.ScaleTargetRef, a.Spec.MinReplicas, a.OwnerReferences}
}

// scaledObject maps an autoscaler to what it scales.
func (c Controller) scaledObject(_ context.Context, o client.Object) []ctrl.Request {
	autoscaler, ok := o.(*autoscalingv2.HorizontalPodAutoscaler)
	if !ok || autoscaler.Spec.ScaleTargetRef.Kind != c.Kind.GVK.Kind {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: autoscaler.Namespace, Name: autoscaler.Spec.ScaleTargetRef.Name}}}
}

// act writes what differs, in one patch that is refused if anybody has written meanwhile.
func (c Controller) act(ctx context.Context, seen stopadapter.ObservedSwitch, plan stopadapter.SwitchPlan) error {
	if seen.Object == nil {
		return nil
	}
	patch := client.MergeFrom(seen.Object)
	if data, err := patch.Data(plan.Next); err != nil || string(data) == "{}" {
		return err
	}
	err := reconcile.PatchObserved(ctx, c.client, seen.Object, plan.Next.DeepCopy(), Name)
	if why := describeRefusal(err); why != "" {
		return c.noteRefusal(ctx, seen.Object, why, err)
	}
	if err != nil {
		return fmt.Errorf("write the switch: %w", err)
	}
	return nil
}

// describeRefusal returns why the API server does not take a write that it has understood: a schema or an admission is against it. Empty for other
// errors, which go away by themselves or have nothing to do with the object.
func describeRefusal(err error) string {
	status, isStatus := errors.AsType[*k8serrors.StatusError](err)
	if !isStatus {
		return ""
	}
	switch code := status.ErrStatus.Code; code {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusGone, http.StatusTooManyRequests:
		return ""
	default:
		if code < http.StatusBadRequest || code >= http.StatusInternalServerError {
			return ""
		}
	}
	why := "expected the API server to take the change, found that it refuses it: " + status.ErrStatus.Message
	return strings.ToValidUTF8(why[:min(len(why), maxRefusal)], "")
}

// noteRefusal writes down why an object cannot be changed, where people and Slumbers find it, and once.
func (c Controller) noteRefusal(ctx context.Context, obj *unstructured.Unstructured, why string, refusal error) error {
	if stopadapter.ReadSwitch(obj).Refused == why {
		return &reconcile.RefusedError{Message: why, Err: refusal}
	}
	noted := obj.DeepCopy()
	annotations := noted.GetAnnotations() // It has some: those of its switch.
	annotations[torporv1alpha1.StopRefusedAnnotation] = why
	noted.SetAnnotations(annotations)
	if err := reconcile.PatchObserved(ctx, c.client, obj, noted, Name); err != nil {
		return fmt.Errorf("write the switch: %w", errors.Join(refusal, err))
	}
	return &reconcile.RefusedError{Class: newRefusal, Message: why, Err: refusal}
}

// report has no status to write: what became of the object stands in its annotations.
func report(_ *metav1.PartialObjectMetadata, _ stopadapter.ObservedSwitch, plan stopadapter.SwitchPlan, refused *reconcile.RefusedError) reconcile.FollowUp {
	switch {
	case refused == nil:
		return reconcile.FollowUp{Rule: plan.Rule, RequeueAfter: plan.RequeueAfter, Events: plan.Events}
	case refused.Class == newRefusal:
		return reconcile.FollowUp{Rule: "refused", RequeueAfter: refusedInterval, Events: []decision.Event{stopadapter.RefusalEvent(refused.Message)}}
	default:
		return reconcile.FollowUp{Rule: "refused", RequeueAfter: refusedInterval}
	}
}
