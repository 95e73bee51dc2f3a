// SPDX-License-Identifier: Apache-2.0

// Package controller turns CFDeployments into new revisions of their apps, and reports their progress.
package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/deployment"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name is the name of the controller, its event reporter and its field manager.
const Name = "torpor-deployments"

// followUpInterval is the delay before the next reconciliation after a step that may not trigger an event for the
// deployment.
const followUpInterval = 50 * time.Millisecond

// byApp is the cache index of deployments by their app.
const byApp = "deployedApp"

// Controller reconciles CFDeployments.
type Controller struct {
	// Clock is replaced in tests.
	Clock clock.PassiveClock
	// Guard finds apps that another project, such as Korifi, writes. These apps are not changed. A nil Guard finds none.
	Guard *reconcile.WriterGuard

	client client.Client
	live   client.Reader
}

// +kubebuilder:rbac:groups=torpor.dev,resources=cfdeployments,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=torpor.dev,resources=cfdeployments/status,verbs=get;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfapps,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=eirini.cloudfoundry.org,resources=lrps,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &torporv1alpha1.CFDeployment{}, byApp, func(o client.Object) []string {
		if d, ok := o.(*torporv1alpha1.CFDeployment); ok {
			return []string{d.Spec.AppRef.Name}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("set up %s: index deployments: %w", Name, err)
	}
	err = builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&torporv1alpha1.CFDeployment{}).
		Watches(&korifiv1alpha1.CFApp{}, handler.EnqueueRequestsFromMapFunc(c.deploymentsForApp)).
		WithOptions(reconcile.WorkerOptions{Count: 10, PassTimeout: time.Minute}.Options()).
		Complete(&reconcile.Pass[*torporv1alpha1.CFDeployment, deployment.Observed, deployment.Plan]{
			Hub:     reconcile.HubOf(mgr, Name, c.Clock),
			New:     func() *torporv1alpha1.CFDeployment { return &torporv1alpha1.CFDeployment{} },
			Observe: c.observe,
			Decide:  deployment.Decide,
			Act:     c.act,
			Report:  c.report,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// deploymentsForApp maps an app to its deployments that are not finished.
func (c Controller) deploymentsForApp(ctx context.Context, app client.Object) []ctrl.Request {
	var list torporv1alpha1.CFDeploymentList
	if err := c.client.List(ctx, &list, client.InNamespace(app.GetNamespace()), client.MatchingFields{byApp: app.GetName()}); err != nil {
		return nil
	}
	var all []ctrl.Request
	for i := range list.Items {
		if d := &list.Items[i]; d.Status.Value != torporv1alpha1.FinalizedDeployment {
			all = append(all, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(d)})
		}
	}
	return all
}
