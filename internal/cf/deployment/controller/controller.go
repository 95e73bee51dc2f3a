// SPDX-License-Identifier: Apache-2.0

// Package controller turns CFDeployments into new revisions of their apps, and tells how far they are.
package controller

import (
	"context"
	"fmt"
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
		Watches(&korifiv1alpha1.CFApp{}, handler.EnqueueRequestsFromMapFunc(c.deploymentsOf)).
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

// deploymentsOf maps an app to its deployments that are not over.
func (c Controller) deploymentsOf(ctx context.Context, app client.Object) []ctrl.Request {
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
	if d.Status.Value == torporv1alpha1.FinalizedDeployment || !d.DeletionTimestamp.IsZero() {
		d.Status.ObservedGeneration = d.Generation
		return reconcile.Outcome{Why: "over"}, c.prune(ctx, d)
	}
	seen, err := c.observe(ctx, d)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	p := decide(seen)
	out := reconcile.Outcome{Why: p.why}
	if p.change != nil {
		stale, err := c.patch(ctx, seen.app, p.change)
		if stale || err != nil {
			return reconcile.Outcome{After: staleRetry, Why: p.why}, err
		}
	}
	if p.again {
		out.After = staleRetry
	}
	c.report(d, seen, p)
	return out, nil
}

// observe reads the app and whether a later deployment has taken over.
func (c Controller) observe(ctx context.Context, d *torporv1alpha1.CFDeployment) (observation, error) {
	o := observation{deployment: d, app: &korifiv1alpha1.CFApp{}}
	err := c.client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: d.Spec.AppRef.Name}, o.app)
	if k8serrors.IsNotFound(err) {
		o.app = nil
		return o, nil
	}
	if err != nil {
		return o, fmt.Errorf("read the app: %w", err)
	}
	name := o.app.Annotations[torporv1alpha1.DeploymentAnnotation]
	if name == "" || name == d.Name {
		return o, nil
	}
	var other torporv1alpha1.CFDeployment
	err = c.client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: name}, &other)
	if client.IgnoreNotFound(err) != nil {
		return o, fmt.Errorf("read the app's deployment: %w", err)
	}
	o.later = err == nil && d.CreationTimestamp.Before(&other.CreationTimestamp)
	return o, nil
}

// patch changes the app if nobody else has.
func (c Controller) patch(ctx context.Context, app *korifiv1alpha1.CFApp, change func(*korifiv1alpha1.CFApp)) (stale bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	after := app.DeepCopy()
	if after.Annotations == nil {
		after.Annotations = map[string]string{}
	}
	change(after)
	err = c.client.Patch(ctx, after, client.MergeFromWithOptions(app, client.MergeFromWithOptimisticLock{}), client.FieldOwner(Name))
	if k8serrors.IsConflict(err) || k8serrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("change the app: %w", err)
	}
	return false, nil
}

func (c Controller) report(d *torporv1alpha1.CFDeployment, o observation, p plan) {
	status := &d.Status
	if status.Reason != p.state {
		status.LastChange = new(metav1.NewTime(c.Clock.Now()))
	}
	status.ObservedGeneration, status.Reason, status.Message = d.Generation, p.state, p.why
	status.Value = torporv1alpha1.ActiveDeployment
	switch p.state {
	case torporv1alpha1.DeployedState, torporv1alpha1.CanceledState, torporv1alpha1.SupersededState:
		status.Value = torporv1alpha1.FinalizedDeployment
	case torporv1alpha1.DeployingState, torporv1alpha1.PausedState, torporv1alpha1.CancelingState:
	}
	if p.prepare {
		status.Prepared, status.FormerDroplet = true, o.app.Annotations[torporv1alpha1.DropletAnnotation]
	}
	if p.revision != 0 {
		status.Revision = p.revision
	}
	if d.Spec.Strategy == torporv1alpha1.CanaryDeployment {
		status.TotalSteps = int32(max(1, len(d.Spec.Steps)))
		status.CurrentStep = min(d.Spec.ContinuedSteps+1, status.TotalSteps)
	}
}
