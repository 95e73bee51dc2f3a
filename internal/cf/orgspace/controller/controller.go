// SPDX-License-Identifier: Apache-2.0

// Package controller creates the namespaces of CFOrgs and CFSpaces.
package controller

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/orgspace"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name is the name of the event reporter and of the field manager. The names of the controllers are Name-orgs and
// Name-spaces.
const Name = "torpor-spaces"

// namespaceInterval is the interval between two checks of a namespace that must be deleted. The deletion of a namespace
// with the labels of an org or a space also triggers a check.
const namespaceInterval = 5 * time.Second

// Controller reconciles CFOrgs and CFSpaces.
type Controller struct {
	// Clock is replaced in tests.
	Clock clock.PassiveClock
	// IsolateSpaces prevents traffic from other namespaces to the Pods in a space, until a user adds a NetworkPolicy
	// that allows it.
	IsolateSpaces bool
	// Guard skips objects that another project, such as Korifi, writes. If it is nil, no object is skipped.
	Guard *reconcile.WriterGuard

	client client.Client
	live   client.Reader
}

// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cforgs;cfspaces,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cforgs/status;cfspaces/status,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controllers.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	options := reconcile.WorkerOptions{Count: 5, PassTimeout: time.Minute}.Options()
	orgs := newPass(c, mgr, korifiv1alpha1.OrgFinalizer, orgLabels)
	orgs.New = func() *korifiv1alpha1.CFOrg { return &korifiv1alpha1.CFOrg{} }
	orgs.Report = c.reportOrg
	err := builder.ControllerManagedBy(mgr).Named(Name+"-orgs").WithOptions(options).
		For(&korifiv1alpha1.CFOrg{}).Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(c.orgsForNamespace)).
		Complete(orgs)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	spaces := newPass(c, mgr, korifiv1alpha1.SpaceFinalizer, spaceLabels)
	spaces.New = func() *korifiv1alpha1.CFSpace { return &korifiv1alpha1.CFSpace{} }
	spaces.Report = c.reportSpace
	err = builder.ControllerManagedBy(mgr).Named(Name+"-spaces").WithOptions(options).
		For(&korifiv1alpha1.CFSpace{}).Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(spaceForNamespace)).
		Complete(spaces)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// newPass returns the parts of a reconcile.Pass that orgs and spaces have in common.
func newPass[T client.Object](c Controller, mgr manager.Manager, finalizer string, labelsOf func(T) map[string]string) *reconcile.Pass[T, orgspace.Observed, orgspace.Plan] {
	observe := func(ctx context.Context, owner T) (orgspace.Observed, error) {
		return c.observe(ctx, owner, labelsOf(owner))
	}
	return &reconcile.Pass[T, orgspace.Observed, orgspace.Plan]{
		Hub: reconcile.HubOf(mgr, Name, c.Clock), Guard: c.Guard,
		Finalizer: &reconcile.Finalizer[T]{Name: finalizer, Finalize: func(ctx context.Context, owner T) (time.Duration, error) {
			seen, err := observe(ctx, owner)
			if err != nil || !orgspace.OwnsNamespace(seen) {
				return 0, err
			}
			return namespaceInterval, reconcile.DeleteObserved(ctx, c.client, seen.Namespace)
		}},
		Observe: observe,
		Decide:  orgspace.Decide,
		Act:     c.act,
	}
}

func orgLabels(org *korifiv1alpha1.CFOrg) map[string]string {
	return map[string]string{korifiv1alpha1.OrgGUIDLabel: org.Name}
}

func spaceLabels(space *korifiv1alpha1.CFSpace) map[string]string {
	return map[string]string{korifiv1alpha1.OrgGUIDLabel: space.Namespace, korifiv1alpha1.SpaceGUIDLabel: space.Name}
}

// spaceForNamespace maps a namespace to its CFSpace, which is in the namespace of the space's org.
func spaceForNamespace(_ context.Context, namespace client.Object) []ctrl.Request {
	labels := namespace.GetLabels()
	space, org := labels[korifiv1alpha1.SpaceGUIDLabel], labels[korifiv1alpha1.OrgGUIDLabel]
	if space == "" || org == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: org, Name: space}}}
}

// orgsForNamespace maps a namespace to the CFOrgs with its name, in any namespace.
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

// observe reads the owner's namespace from the API server. The cache may not have observed yet that the namespace was
// deleted, or that another client has created it.
func (c Controller) observe(ctx context.Context, owner client.Object, labels map[string]string) (orgspace.Observed, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	seen := orgspace.Observed{Owner: owner, Labels: labels, Namespace: &corev1.Namespace{}}
	err := c.live.Get(ctx, client.ObjectKey{Name: owner.GetName()}, seen.Namespace)
	if k8serrors.IsNotFound(err) {
		seen.Namespace = nil
		return seen, nil
	}
	if err != nil {
		return seen, fmt.Errorf("read the namespace: %w", err)
	}
	if c.IsolateSpaces && labels[korifiv1alpha1.SpaceGUIDLabel] != "" && orgspace.OwnsNamespace(seen) {
		err = c.live.Get(ctx, client.ObjectKeyFromObject(isolatingPolicy(seen.Namespace.Name)), &networkingv1.NetworkPolicy{})
		if seen.LacksPolicy = k8serrors.IsNotFound(err); client.IgnoreNotFound(err) != nil {
			return seen, fmt.Errorf("read the network policy: %w", err)
		}
	}
	return seen, nil
}

// act creates missing objects, and adds missing labels to the namespace.
func (c Controller) act(ctx context.Context, seen orgspace.Observed, plan orgspace.Plan) error {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	if plan.CreateNamespace {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: seen.Owner.GetName(), Labels: orgspace.PodSecurityLabels()}}
		maps.Copy(namespace.Labels, seen.Labels)
		if err := c.create(ctx, namespace); err != nil {
			return fmt.Errorf("create the namespace: %w", err)
		}
	}
	if len(plan.AddLabels) > 0 {
		after := seen.Namespace.DeepCopy()
		maps.Copy(after.Labels, plan.AddLabels)
		if err := reconcile.PatchObserved(ctx, c.client, seen.Namespace, after, Name); err != nil {
			return fmt.Errorf("label the namespace: %w", err)
		}
	}
	if plan.CreatePolicy {
		if err := c.create(ctx, isolatingPolicy(seen.Namespace.Name)); err != nil {
			return fmt.Errorf("create the network policy: %w", err)
		}
	}
	return nil
}

func (c Controller) create(ctx context.Context, object client.Object) error {
	if err := c.client.Create(ctx, object, client.FieldOwner(Name)); err != nil && !k8serrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// isolatingPolicy returns a NetworkPolicy that allows traffic to the Pods in a namespace only from the same namespace.
// NetworkPolicies are additive, so another one can allow more.
func isolatingPolicy(namespace string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: Name}, Spec: networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}},
	}}
}

func (c Controller) reportOrg(org *korifiv1alpha1.CFOrg, _ orgspace.Observed, plan orgspace.Plan, _ *reconcile.RefusedError) reconcile.FollowUp {
	if plan.Ready != nil {
		org.Status.ObservedGeneration, org.Status.GUID = org.Generation, readyGUID(org, plan)
		c.setReady(&org.Status.Conditions, org, plan)
	}
	return followUp(plan)
}

func (c Controller) reportSpace(space *korifiv1alpha1.CFSpace, _ orgspace.Observed, plan orgspace.Plan, _ *reconcile.RefusedError) reconcile.FollowUp {
	if plan.Ready != nil {
		space.Status.ObservedGeneration, space.Status.GUID = space.Generation, readyGUID(space, plan)
		c.setReady(&space.Status.Conditions, space, plan)
	}
	return followUp(plan)
}

func (c Controller) setReady(conditions *[]metav1.Condition, owner client.Object, plan orgspace.Plan) {
	reconcile.SetConditions(conditions, map[string]decision.Condition{korifiv1alpha1.ReadyCondition: *plan.Ready}, owner.GetGeneration(), c.Clock)
}

func followUp(plan orgspace.Plan) reconcile.FollowUp {
	out := reconcile.FollowUp{Rule: plan.Why}
	if plan.LookAgain {
		out.RequeueAfter = namespaceInterval
	}
	return out
}

func readyGUID(owner client.Object, plan orgspace.Plan) string {
	if plan.Ready.Status != metav1.ConditionTrue {
		return ""
	}
	return owner.GetName()
}
