// SPDX-License-Identifier: Apache-2.0

// Package spaces makes the namespaces of CFOrgs and CFSpaces, and the droplets of images.
package spaces

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name of the controllers, their events and their field manager.
const Name = "torpor-spaces"

const (
	workers     = 5
	passTimeout = time.Minute
	// apiTimeout bounds one call to the API server.
	apiTimeout = 10 * time.Second
	// goneInterval is when a namespace that is being deleted is looked at again; that it is gone is an event too.
	goneInterval = 5 * time.Second
)

// Controller reconciles CFOrgs, CFSpaces, CFPackages and CFBuilds.
type Controller struct {
	// Clock tells the time.
	Clock clock.PassiveClock

	client client.Client
	live   client.Reader
}

// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cforgs;cfspaces,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cforgs/status;cfspaces/status;cfbuilds/status;cfpackages/status,verbs=get;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfbuilds;cfpackages,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;delete

// SetupWithManager adds the controllers.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	build := func(name string) *builder.Builder {
		return builder.ControllerManagedBy(mgr).Named(Name + name).
			WithOptions(controller.Options{MaxConcurrentReconciles: workers, ReconciliationTimeout: passTimeout})
	}
	err := build("-orgs").For(&korifiv1alpha1.CFOrg{}).Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(c.orgsOf)).
		Complete(&reconcile.Reconciler[*korifiv1alpha1.CFOrg]{
			Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
			New: func() *korifiv1alpha1.CFOrg { return &korifiv1alpha1.CFOrg{} }, Step: c.stepOrg,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	err = build("-spaces").For(&korifiv1alpha1.CFSpace{}).Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(spaceOf)).
		Complete(&reconcile.Reconciler[*korifiv1alpha1.CFSpace]{
			Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
			New: func() *korifiv1alpha1.CFSpace { return &korifiv1alpha1.CFSpace{} }, Step: c.stepSpace,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	err = build("-builds").For(&korifiv1alpha1.CFBuild{}).Watches(&korifiv1alpha1.CFPackage{}, handler.EnqueueRequestsFromMapFunc(c.buildsOf)).
		Complete(&reconcile.Reconciler[*korifiv1alpha1.CFBuild]{
			Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
			New: func() *korifiv1alpha1.CFBuild { return &korifiv1alpha1.CFBuild{} }, Step: c.stepBuild,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	err = build("-packages").For(&korifiv1alpha1.CFPackage{}).
		Complete(&reconcile.Reconciler[*korifiv1alpha1.CFPackage]{
			Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
			New: func() *korifiv1alpha1.CFPackage { return &korifiv1alpha1.CFPackage{} }, Step: c.stepPackage,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// spaceOf maps a namespace to its CFSpace, which lives in the namespace of its org.
func spaceOf(_ context.Context, namespace client.Object) []ctrl.Request {
	labels := namespace.GetLabels()
	space, org := labels[korifiv1alpha1.SpaceGUIDLabel], labels[korifiv1alpha1.OrgGUIDLabel]
	if space == "" || org == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: org, Name: space}}}
}

// orgsOf maps a namespace to the CFOrg of its name, wherever that lives.
func (c Controller) orgsOf(ctx context.Context, namespace client.Object) []ctrl.Request {
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

// buildsOf maps a package to the builds of its namespace that are made from it.
func (c Controller) buildsOf(ctx context.Context, pkg client.Object) []ctrl.Request {
	var list korifiv1alpha1.CFBuildList
	if err := c.client.List(ctx, &list, client.InNamespace(pkg.GetNamespace())); err != nil {
		return nil
	}
	var all []ctrl.Request
	for i := range list.Items {
		if b := &list.Items[i]; b.Spec.PackageRef.Name == pkg.GetName() {
			all = append(all, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		}
	}
	return all
}
