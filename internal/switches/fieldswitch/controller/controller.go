// SPDX-License-Identifier: Apache-2.0

// Package controller stops and restores the objects of one kind by setting their fields. A reconciliation reads an
// object and its autoscalers, calls fieldswitch.Decide, and writes all differences in one patch. It writes the fields
// that the kind's FieldSwitch or its StopAdapter lists, and Torpor's annotations, but never a status.
//
// Only the metadata of the objects is cached, because a cluster may have thousands, and few are ever stopped. The whole
// objects of these few are read from the API server when their annotations change.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	"github.com/torpor-dev/torpor/internal/reconcile/priority"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	"github.com/torpor-dev/torpor/internal/switches/fieldswitch"
	"github.com/torpor-dev/torpor/internal/switches/kinds"
)

// Name is the name of the event recorder and the field manager. The controller of a kind is called Name, a hyphen, and
// the kind's name and group.
const Name = "torpor-switch"

const (
	// refusedInterval is the time after which a write that the API server rejected is tried again.
	refusedInterval = 2 * time.Minute
	// maxRefusal limits how much of the API server's message is shown, in bytes.
	maxRefusal = 500
	// newRefusal is the class of a refusal that was just recorded on the object, so that an event must report it.
	newRefusal = "NewRefusal"
)

// Observer is notified when a kind can be stopped, and when its objects change.
type Observer interface {
	// AddKind announces a kind that can be stopped. The reader returns metadata from a cache, and whole objects from
	// the API server.
	AddKind(ctx context.Context, kind kinds.Kind, reader client.Reader)
	// RemoveKind reports that objects of a kind can no longer be stopped.
	RemoveKind(ctx context.Context, kind kinds.Kind)
	// ObjectChanged reports a changed object, in its old or its new state.
	ObjectChanged(ctx context.Context, kind kinds.Kind, obj client.Object)
}

// Controller reconciles the objects of one kind.
type Controller struct {
	// Clock is the source of the current time.
	Clock clock.PassiveClock
	// Kind is the reconciled kind; its Switch is not nil.
	Kind kinds.Kind
	// Observer is notified about the kind; nil for none.
	Observer Observer
	// Metrics exposes metrics of the stops; nil for none.
	Metrics *Metrics
	// Ends tracks the overdue stops of all controllers, so that other work waits for their ends; if nil, no work
	// waits.
	Ends *priority.OverdueEnds
	// Own is the Deployment of this manager, which is never stopped; empty if it is unknown.
	Own client.ObjectKey

	client client.Client
}

// +kubebuilder:rbac:groups=autoscaling,resources=horizontalpodautoscalers,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client = mgr.GetClient()
	if err := c.requireNamespaces(); err != nil {
		return err
	}
	name := Name + "-" + strings.ToLower(c.Kind.GVK().Kind)
	if c.Kind.GVK().Group != "" {
		name += "." + c.Kind.GVK().Group
	}
	workers := reconcile.WorkerOptions{Count: 4, PassTimeout: time.Minute, MinBackoff: time.Second, MaxBackoff: 2 * time.Minute}
	ends := priority.TrackEnds(c.Ends, name, c.isRestoreDue, nil)
	build := builder.ControllerManagedBy(mgr).
		Named(name).
		For(c.newMetadata(), builder.WithPredicates(hasSwitch(), predicate.Or(predicate.GenerationChangedPredicate{}, reconcile.AnnotationChangedByOthers()))).
		Watches(c.newMetadata(), ends.EnqueueOverdue()).
		WithOptions(workers.Options())
	if c.Observer != nil {
		build = build.Watches(c.newMetadata(), c.tellObserver())
	}
	if c.Kind.Switch().IsScaled {
		build = build.Watches(&autoscalingv2.HorizontalPodAutoscaler{}, handler.EnqueueRequestsFromMapFunc(c.scaledObject), builder.WithPredicates(reconcile.FieldChanged(readRefusal)))
	}
	err := build.Complete(&reconcile.Pass[*metav1.PartialObjectMetadata, fieldswitch.ObservedSwitch, fieldswitch.SwitchPlan]{
		Hub: reconcile.HubOf(mgr, Name, c.Clock), Ends: ends,
		New: c.newMetadata, Observe: c.observe, Decide: fieldswitch.Decide, Act: c.act, Report: report,
	})
	if err == nil {
		err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return c.announce(ctx, mgr.GetCache()) }))
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", name, err)
	}
	return nil
}

// requireNamespaces returns an error for a cluster-scoped kind, because a Slumber in any namespace could stop all
// objects of this kind.
func (c Controller) requireNamespaces() error {
	hasNamespaces, err := c.client.IsObjectNamespaced(c.newMetadata())
	if err != nil {
		return fmt.Errorf("determine whether %s has namespaces: %w", c.Kind.GVK().Kind, err)
	}
	if !hasNamespaces {
		return fmt.Errorf("expected a namespaced kind, found that %s is cluster-scoped; only objects in namespaces can be stopped", c.Kind.GVK().Kind)
	}
	return nil
}

func (c Controller) isRestoreDue(obj *metav1.PartialObjectMetadata) bool {
	return fieldswitch.IsRestoreDue(obj, c.Clock.Now())
}

// hasSwitch accepts events of objects that have an annotation of Torpor, or had one before an update.
func hasSwitch() predicate.Predicate {
	has := predicate.NewPredicateFuncs(func(o client.Object) bool { return fieldswitch.HasSwitch(o) })
	return predicate.Funcs{
		CreateFunc: has.Create, DeleteFunc: has.Delete, GenericFunc: has.Generic,
		UpdateFunc: func(e event.UpdateEvent) bool {
			return fieldswitch.HasSwitch(e.ObjectOld) || fieldswitch.HasSwitch(e.ObjectNew)
		},
	}
}

func (c Controller) newMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(c.Kind.GVK())
	return m
}

// announce adds the kind to the Metrics and the Observer, and removes it when the controller ends.
func (c Controller) announce(ctx context.Context, cached client.Reader) error {
	c.Metrics.add(c.Kind, cached, c.Clock)
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

// TrimMetadata removes what this package does not read from an object that is about to be cached: the managed fields of
// an object without an annotation of Torpor, and kubectl's last-applied annotation, which repeats the whole object.
func TrimMetadata(m *metav1.PartialObjectMetadata) {
	if !fieldswitch.HasSwitch(m) {
		m.ManagedFields = nil
	}
	delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
}

// tellObserver passes events to the Observer, and enqueues nothing.
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

// isSelectedAnew reports whether an update may change which Slumbers select an object or have stopped it. Most
// updates change only a status.
func isSelectedAnew(before, after client.Object) bool {
	return !maps.Equal(before.GetLabels(), after.GetLabels()) || !maps.Equal(before.GetAnnotations(), after.GetAnnotations())
}

// refuseOwn returns the reason why the manager's own Deployment must not be stopped, or "" for another object.
func (c Controller) refuseOwn(obj client.Object) string {
	if c.Own.Name == "" || client.ObjectKeyFromObject(obj) != c.Own || c.Kind.GVK().GroupKind() != (schema.GroupKind{Group: appsv1.GroupName, Kind: "Deployment"}) {
		return ""
	}
	return "found the Deployment of this manager, which starts stopped objects again; exclude it from the schedule, or scale it by hand"
}

// observe reads the whole object, and its autoscalers if the kind is scaled.
func (c Controller) observe(ctx context.Context, cached *metav1.PartialObjectMetadata) (fieldswitch.ObservedSwitch, error) {
	if !fieldswitch.HasSwitch(cached) {
		return fieldswitch.ObservedSwitch{}, nil
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(c.Kind.GVK())
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(cached), obj); k8serrors.IsNotFound(err) {
		return fieldswitch.ObservedSwitch{}, nil // A later event of the cache will report the missing object.
	} else if err != nil {
		return fieldswitch.ObservedSwitch{}, fmt.Errorf("read the object: %w", err)
	}
	seen := fieldswitch.ObservedSwitch{
		Now: c.Clock.Now(), Object: obj, Operations: c.Kind.Switch().Operations, Refusal: cmp.Or(fieldswitch.RefuseOwned(obj), c.refuseOwn(obj)),
	}
	seen.Manager, seen.WrittenAt = fieldswitch.FindLastWrite(obj, fieldswitch.ListPaths(c.Kind.Switch().Operations))
	seen.Moment = c.Metrics.observeSavings(c.Kind, obj, seen.Now)
	if read := c.Kind.Switch().ReadRate; read != nil {
		seen.Rate = read(obj)
	}
	if !c.Kind.Switch().IsScaled || seen.Refusal != "" {
		return seen, nil
	}
	var list autoscalingv2.HorizontalPodAutoscalerList
	if err := c.client.List(ctx, &list, client.InNamespace(obj.GetNamespace())); err != nil {
		return seen, fmt.Errorf("list the HorizontalPodAutoscalers: %w", err)
	}
	seen.Refusal = fieldswitch.RefuseAutoscaled(obj, list.Items)
	return seen, nil
}

// readRefusal returns the fields of an autoscaler that RefuseAutoscaled uses. Other changes enqueue no object,
// because the status of an autoscaler changes every few seconds.
func readRefusal(a *autoscalingv2.HorizontalPodAutoscaler) any {
	return [...]any{a.Spec.ScaleTargetRef, a.Spec.MinReplicas, a.OwnerReferences}
}

// scaledObject maps an autoscaler to the object that it scales.
func (c Controller) scaledObject(_ context.Context, o client.Object) []ctrl.Request {
	autoscaler, ok := o.(*autoscalingv2.HorizontalPodAutoscaler)
	if !ok || autoscaler.Spec.ScaleTargetRef.Kind != c.Kind.GVK().Kind {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: autoscaler.Namespace, Name: autoscaler.Spec.ScaleTargetRef.Name}}}
}

// act writes all differences in one patch, which fails with a conflict if the object has changed since it was read.
func (c Controller) act(ctx context.Context, seen fieldswitch.ObservedSwitch, plan fieldswitch.SwitchPlan) error {
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

// describeRefusal returns the API server's message if RBAC, the schema or admission rejected a write. It is empty for
// other errors, which are temporary or do not concern the object.
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
	why := "expected the API server to accept the change, found that it rejects the change: " + status.ErrStatus.Message
	return strings.ToValidUTF8(why[:min(len(why), maxRefusal)], "")
}

// noteRefusal records in an annotation, for users and Slumbers, why an object cannot be changed. The same reason is
// recorded only once.
func (c Controller) noteRefusal(ctx context.Context, obj *unstructured.Unstructured, why string, refusal error) error {
	if fieldswitch.ReadSwitch(obj).Refused == why {
		return &reconcile.RefusedError{Message: why, Err: refusal}
	}
	noted := obj.DeepCopy()
	annotations := noted.GetAnnotations() // The map is not nil, because the object has an annotation of Torpor.
	annotations[torporv1alpha1.StopRefusedAnnotation] = why
	noted.SetAnnotations(annotations)
	if err := reconcile.PatchObserved(ctx, c.client, obj, noted, Name); err != nil {
		return fmt.Errorf("write the switch: %w", errors.Join(refusal, err))
	}
	return &reconcile.RefusedError{Class: newRefusal, Message: why, Err: refusal}
}

// report writes no status, because annotations of the object record the result.
func report(_ *metav1.PartialObjectMetadata, seen fieldswitch.ObservedSwitch, plan fieldswitch.SwitchPlan, refused *reconcile.RefusedError) reconcile.FollowUp {
	switch {
	case refused == nil:
		out := reconcile.FollowUp{Rule: plan.Rule, RequeueAfter: plan.RequeueAfter, Events: plan.Events}
		if plan.Next != nil && seen.Object != nil {
			is := fieldswitch.ReadSwitch(plan.Next)
			out.Changes = stoprecord.Changes("", fieldswitch.ReadSwitch(seen.Object).Records, is.Records)
			out.Request = stoprecord.RequestOf(is.Records, is.FindScheduled(plan.Next.GetAnnotations(), seen.Now))
		}
		return out
	case refused.Class == newRefusal:
		return reconcile.FollowUp{Rule: "change is refused", RequeueAfter: refusedInterval, Events: []decision.Event{fieldswitch.RefusalEvent(refused.Message)}}
	default:
		return reconcile.FollowUp{Rule: "change is refused", RequeueAfter: refusedInterval}
	}
}
