// SPDX-License-Identifier: Apache-2.0

// Package controller turns CFDeployments into new revisions of their apps, and reports how far they are.
package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/deployment"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name of the controller, its events and its field manager.
const Name = "torpor-deployments"

const (
	workers     = 10
	passTimeout = time.Minute
	// apiTimeout bounds one call to the API server.
	apiTimeout = 10 * time.Second
	staleRetry = 50 * time.Millisecond
)

// Controller reconciles CFDeployments.
type Controller struct {
	// Clock tells the time.
	Clock clock.PassiveClock

	client client.Client
}

// +kubebuilder:rbac:groups=torpor.dev,resources=cfdeployments,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=torpor.dev,resources=cfdeployments/status,verbs=get;patch
// +kubebuilder:rbac:groups=korifi.cloudfoundry.org,resources=cfapps,verbs=get;list;watch;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client = mgr.GetClient()
	err := builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&torporv1alpha1.CFDeployment{}).
		Watches(&korifiv1alpha1.CFApp{}, handler.EnqueueRequestsFromMapFunc(c.deploymentsForApp)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, ReconciliationTimeout: passTimeout}).
		Complete(&reconcile.Reconciler[*torporv1alpha1.CFDeployment]{
			Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
			New:  func() *torporv1alpha1.CFDeployment { return &torporv1alpha1.CFDeployment{} },
			Step: c.step,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// deploymentsForApp maps an app to its deployments that are not over.
func (c Controller) deploymentsForApp(ctx context.Context, app client.Object) []ctrl.Request {
	var list torporv1alpha1.CFDeploymentList
	if err := c.client.List(ctx, &list, client.InNamespace(app.GetNamespace())); err != nil {
		return nil
	}
	var all []ctrl.Request
	for i := range list.Items {
		if d := &list.Items[i]; d.Spec.AppRef.Name == app.GetName() && d.Status.Value != torporv1alpha1.FinalizedDeployment {
			all = append(all, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(d)})
		}
	}
	return all
}

// step is one pass.
func (c Controller) step(ctx context.Context, d *torporv1alpha1.CFDeployment) (reconcile.Outcome, error) {
	seen, err := c.observe(ctx, d)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	plan := deployment.Decide(seen)
	stale, err := c.act(ctx, seen, plan)
	if stale || err != nil {
		return reconcile.Outcome{After: staleRetry, Why: plan.Why}, err
	}
	c.report(d, seen, plan)
	out := reconcile.Outcome{Why: plan.Why}
	if plan.LookAgain {
		out.After = staleRetry
	}
	return out, nil
}

// observe reads the app and whether a later deployment has taken over.
func (c Controller) observe(ctx context.Context, d *torporv1alpha1.CFDeployment) (deployment.Observed, error) {
	o := deployment.Observed{Deployment: d}
	if deployment.IsOver(d) {
		var err error
		o.Finished, err = c.listFinished(ctx, d)
		return o, err
	}
	var app korifiv1alpha1.CFApp
	err := c.client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: d.Spec.AppRef.Name}, &app)
	if k8serrors.IsNotFound(err) {
		return o, nil
	}
	if err != nil {
		return o, fmt.Errorf("read the app: %w", err)
	}
	o.App = &app
	name := app.Annotations[torporv1alpha1.DeploymentAnnotation]
	if name == "" || name == d.Name {
		return o, nil
	}
	var other torporv1alpha1.CFDeployment
	err = c.client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: name}, &other)
	if client.IgnoreNotFound(err) != nil {
		return o, fmt.Errorf("read the app's deployment: %w", err)
	}
	o.HasLaterDeployment = err == nil && d.CreationTimestamp.Before(&other.CreationTimestamp)
	return o, nil
}

// listFinished lists the finished deployments of the same app.
func (c Controller) listFinished(ctx context.Context, d *torporv1alpha1.CFDeployment) ([]torporv1alpha1.CFDeployment, error) {
	var list torporv1alpha1.CFDeploymentList
	if err := c.client.List(ctx, &list, client.InNamespace(d.Namespace)); err != nil {
		return nil, fmt.Errorf("list the app's deployments: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(other torporv1alpha1.CFDeployment) bool { return !deployment.IsFinishedSibling(d, &other) }), nil
}

// act does what was decided. The view is stale if the app was changed since it was read: then nothing is done.
func (c Controller) act(ctx context.Context, seen deployment.Observed, plan deployment.Plan) (stale bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	switch plan.Do {
	case deployment.BeginRevision, deployment.CancelRevision:
		return c.changeApp(ctx, seen, plan.Do)
	case deployment.DeleteExpired:
		var errs []error
		for i := range plan.Expired {
			expired := &plan.Expired[i]
			errs = append(errs, client.IgnoreNotFound(c.client.Delete(ctx, expired, client.Preconditions{UID: new(expired.UID)})))
		}
		if err := errors.Join(errs...); err != nil {
			return false, fmt.Errorf("delete deployments that are over: %w", err)
		}
	case deployment.DoNothing:
	}
	return false, nil
}

// changeApp changes the app if nobody else has since it was read.
func (c Controller) changeApp(ctx context.Context, seen deployment.Observed, do deployment.Action) (stale bool, err error) {
	after := seen.App.DeepCopy()
	deployment.ChangeApp(after, seen.Deployment, do)
	err = c.client.Patch(ctx, after, client.MergeFromWithOptions(seen.App, client.MergeFromWithOptimisticLock{}), client.FieldOwner(Name))
	if k8serrors.IsConflict(err) || k8serrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("change the app: %w", err)
	}
	return false, nil
}

// report writes how far the deployment is into its status. One that is over keeps what it reported last.
func (c Controller) report(d *torporv1alpha1.CFDeployment, seen deployment.Observed, plan deployment.Plan) {
	status := &d.Status
	if status.ObservedGeneration = d.Generation; deployment.IsOver(d) {
		return
	}
	if status.Reason != plan.State {
		status.LastChange = new(metav1.NewTime(c.Clock.Now()))
	}
	status.Reason, status.Message = plan.State, plan.Why
	status.Value = torporv1alpha1.ActiveDeployment
	switch plan.State {
	case torporv1alpha1.DeployedState, torporv1alpha1.CanceledState, torporv1alpha1.SupersededState:
		status.Value = torporv1alpha1.FinalizedDeployment
	case torporv1alpha1.DeployingState, torporv1alpha1.PausedState, torporv1alpha1.CancelingState:
	}
	if plan.Prepare {
		status.Prepared, status.FormerDroplet = true, seen.App.Annotations[torporv1alpha1.DropletAnnotation]
	}
	if plan.Revision != 0 {
		status.Revision = plan.Revision
	}
	if d.Spec.Strategy == torporv1alpha1.CanaryDeployment {
		status.TotalSteps = int32(max(1, len(d.Spec.Steps)))
		status.CurrentStep = min(d.Spec.ContinuedSteps+1, status.TotalSteps)
	}
}
