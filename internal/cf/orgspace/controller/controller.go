// SPDX-License-Identifier: Apache-2.0

// Package controller makes the namespaces of CFOrgs and CFSpaces.
package controller

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/orgspace"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name of the events and the field manager; the controllers are called Name-orgs and Name-spaces.
const Name = "torpor-spaces"

const (
	workers     = 5
	passTimeout = time.Minute
	// apiTimeout bounds one call to the API server.
	apiTimeout = 10 * time.Second
	// namespaceInterval is when a namespace that is being deleted is looked at again; that it is gone is an event too.
	namespaceInterval = 5 * time.Second
)

// Controller reconciles CFOrgs and CFSpaces.
type Controller struct {
	// Clock tells the time.
	Clock clock.PassiveClock

	client client.Client
	live   client.Reader
}

// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cforgs;cfspaces,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cforgs/status;cfspaces/status,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;delete

// SetupWithManager adds the controllers.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	options := controller.Options{MaxConcurrentReconciles: workers, ReconciliationTimeout: passTimeout}
	err := builder.ControllerManagedBy(mgr).Named(Name + "-orgs").WithOptions(options).
		For(&korifiv1alpha1.CFOrg{}).Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(c.orgsForNamespace)).
		Complete(&reconcile.Reconciler[*korifiv1alpha1.CFOrg]{
			Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
			New: func() *korifiv1alpha1.CFOrg { return &korifiv1alpha1.CFOrg{} }, Step: c.stepOrg,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	err = builder.ControllerManagedBy(mgr).Named(Name + "-spaces").WithOptions(options).
		For(&korifiv1alpha1.CFSpace{}).Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(spaceForNamespace)).
		Complete(&reconcile.Reconciler[*korifiv1alpha1.CFSpace]{
			Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
			New: func() *korifiv1alpha1.CFSpace { return &korifiv1alpha1.CFSpace{} }, Step: c.stepSpace,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// spaceForNamespace maps a namespace to its CFSpace, which lives in the namespace of its org.
func spaceForNamespace(_ context.Context, namespace client.Object) []ctrl.Request {
	labels := namespace.GetLabels()
	space, org := labels[korifiv1alpha1.SpaceGUIDLabel], labels[korifiv1alpha1.OrgGUIDLabel]
	if space == "" || org == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: org, Name: space}}}
}

// orgsForNamespace maps a namespace to the CFOrg of its name, wherever that lives.
func (c Controller) orgsForNamespace(ctx context.Context, namespace client.Object) []ctrl.Request {
	if namespace.GetLabels()[korifiv1alpha1.OrgGUIDLabel] != namespace.GetName() {
		return nil
	}
	var list korifiv1alpha1.CFOrgList
	if err := c.client.List(ctx, &list); err != nil {
		return nil
	}
	var all []ctrl.Request
	for i := range list.Items {
		if o := &list.Items[i]; o.Name == namespace.GetName() {
			all = append(all, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
	}
	return all
}

func (c Controller) stepOrg(ctx context.Context, org *korifiv1alpha1.CFOrg) (reconcile.Outcome, error) {
	plan, err := c.step(ctx, org, korifiv1alpha1.OrgFinalizer, map[string]string{korifiv1alpha1.OrgGUIDLabel: org.Name})
	if err == nil && plan.Ready != nil {
		org.Status.ObservedGeneration, org.Status.GUID = org.Generation, readyGUID(plan.Ready, org)
		reconcile.SetCondition(&org.Status.Conditions, *plan.Ready, org.Generation, c.Clock)
	}
	return outcomeOf(plan), err
}

func (c Controller) stepSpace(ctx context.Context, space *korifiv1alpha1.CFSpace) (reconcile.Outcome, error) {
	plan, err := c.step(ctx, space, korifiv1alpha1.SpaceFinalizer, map[string]string{
		korifiv1alpha1.OrgGUIDLabel: space.Namespace, korifiv1alpha1.SpaceGUIDLabel: space.Name,
	})
	if err == nil && plan.Ready != nil {
		space.Status.ObservedGeneration, space.Status.GUID = space.Generation, readyGUID(plan.Ready, space)
		reconcile.SetCondition(&space.Status.Conditions, *plan.Ready, space.Generation, c.Clock)
	}
	return outcomeOf(plan), err
}

func outcomeOf(plan orgspace.Plan) reconcile.Outcome {
	out := reconcile.Outcome{Why: plan.Why}
	if plan.WaitsForNamespace {
		out.After = namespaceInterval
	}
	return out
}

func readyGUID(ready *metav1.Condition, owner client.Object) string {
	if ready.Status != metav1.ConditionTrue {
		return ""
	}
	return owner.GetName()
}

// step observes the namespace of an owner, decides and acts.
func (c Controller) step(ctx context.Context, owner client.Object, finalizer string, labels map[string]string) (orgspace.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	seen := orgspace.Observed{Owner: owner, Finalizer: finalizer, Labels: labels, Namespace: &corev1.Namespace{}}
	// Past the cache: it may not have seen yet that the namespace is gone, or was made by another.
	err := c.live.Get(ctx, client.ObjectKey{Name: owner.GetName()}, seen.Namespace)
	if client.IgnoreNotFound(err) != nil {
		return orgspace.Plan{}, fmt.Errorf("read the namespace: %w", err)
	}
	if k8serrors.IsNotFound(err) {
		seen.Namespace = nil
	}
	plan := orgspace.Decide(seen)
	switch plan.Do {
	case orgspace.DoNothing:
		return plan, nil
	case orgspace.AddFinalizer:
		return plan, c.patchFinalizers(ctx, owner, finalizer, controllerutil.AddFinalizer)
	case orgspace.RemoveFinalizer:
		return plan, c.patchFinalizers(ctx, owner, finalizer, controllerutil.RemoveFinalizer)
	case orgspace.CreateNamespace:
		return plan, c.createNamespace(ctx, seen)
	case orgspace.DeleteNamespace:
		err = c.client.Delete(ctx, seen.Namespace, client.Preconditions{UID: new(seen.Namespace.UID)})
		return plan, client.IgnoreNotFound(err)
	}
	return plan, nil
}

func (c Controller) createNamespace(ctx context.Context, seen orgspace.Observed) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: seen.Owner.GetName(), Labels: maps.Clone(seen.Labels)}}
	if err := c.client.Create(ctx, namespace, client.FieldOwner(Name)); err != nil && !k8serrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the namespace: %w", err)
	}
	return nil
}

func (c Controller) patchFinalizers(ctx context.Context, owner client.Object, finalizer string, change func(client.Object, string) bool) error {
	after, ok := owner.DeepCopyObject().(client.Object)
	if !ok {
		return nil
	}
	change(after, finalizer)
	err := c.client.Patch(ctx, after, client.MergeFromWithOptions(owner, client.MergeFromWithOptimisticLock{}), client.FieldOwner(Name))
	if err != nil && !k8serrors.IsConflict(err) && !k8serrors.IsNotFound(err) {
		return fmt.Errorf("change the finalizers: %w", err)
	}
	return nil
}
