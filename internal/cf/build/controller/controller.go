// SPDX-License-Identifier: Apache-2.0

// Package controller makes the droplets of images, and reports whether droplets can be made from a package.
package controller

import (
	"context"
	"fmt"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/build"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name of the events; the controllers are called Name-builds and Name-packages.
const Name = "torpor-spaces"

const (
	workers     = 5
	passTimeout = time.Minute
)

// Controller reconciles CFBuilds and CFPackages.
type Controller struct {
	// Clock tells the time.
	Clock clock.PassiveClock

	client client.Client
}

// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfbuilds/status;cfpackages/status,verbs=get;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfbuilds;cfpackages,verbs=get;list;watch

// SetupWithManager adds the controllers.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client = mgr.GetClient()
	options := controller.Options{MaxConcurrentReconciles: workers, ReconciliationTimeout: passTimeout}
	err := builder.ControllerManagedBy(mgr).Named(Name + "-builds").WithOptions(options).
		For(&korifiv1alpha1.CFBuild{}).Watches(&korifiv1alpha1.CFPackage{}, handler.EnqueueRequestsFromMapFunc(c.buildsForPackage)).
		Complete(&reconcile.Reconciler[*korifiv1alpha1.CFBuild]{
			Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
			New: func() *korifiv1alpha1.CFBuild { return &korifiv1alpha1.CFBuild{} }, Step: c.stepBuild,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	err = builder.ControllerManagedBy(mgr).Named(Name + "-packages").WithOptions(options).
		For(&korifiv1alpha1.CFPackage{}).
		Complete(&reconcile.Reconciler[*korifiv1alpha1.CFPackage]{
			Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
			New: func() *korifiv1alpha1.CFPackage { return &korifiv1alpha1.CFPackage{} }, Step: c.stepPackage,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// buildsForPackage maps a package to the builds of its namespace that are made from it.
func (c Controller) buildsForPackage(ctx context.Context, pkg client.Object) []ctrl.Request {
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

func (c Controller) stepPackage(_ context.Context, pkg *korifiv1alpha1.CFPackage) (reconcile.Outcome, error) {
	ready := build.PackageReady(pkg)
	pkg.Status.ObservedGeneration = pkg.Generation
	reconcile.SetCondition(&pkg.Status.Conditions, ready, pkg.Generation, c.Clock)
	return reconcile.Outcome{Why: ready.Reason}, nil
}

func (c Controller) stepBuild(ctx context.Context, obj *korifiv1alpha1.CFBuild) (reconcile.Outcome, error) {
	var pkg korifiv1alpha1.CFPackage
	err := c.client.Get(ctx, client.ObjectKey{Namespace: obj.Namespace, Name: obj.Spec.PackageRef.Name}, &pkg)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Outcome{}, fmt.Errorf("read the package: %w", err)
	}
	seen := build.Observed{Build: obj, Package: &pkg}
	if k8serrors.IsNotFound(err) {
		seen.Package = nil
	}
	plan, status := build.Decide(seen), &obj.Status
	status.Droplet, status.State, status.ObservedGeneration = plan.Droplet, plan.State, obj.Generation
	reconcile.SetCondition(&status.Conditions, plan.Succeeded, obj.Generation, c.Clock)
	reconcile.SetCondition(&status.Conditions, plan.Staging, obj.Generation, c.Clock)
	return reconcile.Outcome{Why: plan.Succeeded.Reason}, nil
}
