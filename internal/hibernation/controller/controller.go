// SPDX-License-Identifier: Apache-2.0

// Package controller is the shell around package hibernate: it observes a ClusterDeployment, its cloud and its cluster,
// lets hibernation.Decide decide, acts once and reports.
package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name of the controller, its events and its field manager.
const Name = "torpor-hibernation"

const (
	workers      = 20
	backoffStart = time.Second
	// passTimeout bounds what the calls of a pass, each with a deadline of its own, add up to.
	passTimeout = 2 * time.Minute
	backoffEnd  = 2 * time.Minute
)

// Controller reconciles ClusterDeployments.
type Controller struct {
	// Actuators are the clouds that can be handled, by platform.
	Actuators map[string]actuator.Actuator
	// Clock tells the time.
	Clock clock.PassiveClock
	// Metrics is where states and counts are shown.
	Metrics *Metrics

	client       client.Client
	secrets      client.Reader
	machineCache *machineCache
}

// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments/status,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller. Secrets are watched by their metadata only and read when needed,
// so that the cache holds no credentials and a corrected Secret helps at once.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.secrets = mgr.GetClient(), mgr.GetAPIReader()
	c.machineCache = &machineCache{entries: map[types.UID]cachedMachines{}}
	c.Metrics.useReader(mgr.GetClient())
	shell := &reconcile.Reconciler[*hivev1.ClusterDeployment]{
		Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
		New:  func() *hivev1.ClusterDeployment { return &hivev1.ClusterDeployment{} },
		Step: c.step,
	}
	err := builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&hivev1.ClusterDeployment{}, builder.WithPredicates(specOrVersionChanged())).
		WatchesMetadata(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(c.clusterDeploymentsUsingSecret)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			ReconciliationTimeout:   passTimeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](backoffStart, backoffEnd),
		}).
		Complete(shell)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// step is one pass. A refused effect changes the report, and the pass ends normally: the report says when to try again.
func (c Controller) step(ctx context.Context, cd *hivev1.ClusterDeployment) (reconcile.Outcome, error) {
	seen := c.observe(ctx, cd)
	defer seen.closeConnection()
	plan := hibernation.Decide(seen.Observed)
	if trouble := act(ctx, seen, plan.Do); trouble != nil {
		plan = plan.Failed(*trouble)
	}
	if err := ctx.Err(); err != nil {
		return reconcile.Outcome{Why: plan.Rule}, fmt.Errorf("pass ended early: %w", err)
	}
	return c.report(cd, seen, plan), nil
}

// specOrVersionChanged lets through what can change a decision, and not the controller's own reports.
func specOrVersionChanged() predicate.Predicate {
	return predicate.Or(
		predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{},
		predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok := e.ObjectOld.(*hivev1.ClusterDeployment)
			after, also := e.ObjectNew.(*hivev1.ClusterDeployment)
			return ok && also && (!equality.Semantic.DeepEqual(before.Status.ClusterVersionStatus, after.Status.ClusterVersionStatus) ||
				!equality.Semantic.DeepEqual(before.Status.InstallVersion, after.Status.InstallVersion))
		}},
	)
}

// clusterDeploymentsUsingSecret maps a Secret to the ClusterDeployments of its namespace that name it.
func (c Controller) clusterDeploymentsUsingSecret(ctx context.Context, secret client.Object) []ctrl.Request {
	var list hivev1.ClusterDeploymentList
	if err := c.client.List(ctx, &list, client.InNamespace(secret.GetNamespace())); err != nil {
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		cd := &list.Items[i]
		if platform := platformOf(cd); platform.secret == secret.GetName() || kubeconfigSecretName(cd) == secret.GetName() {
			requests = append(requests, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: cd.Namespace, Name: cd.Name}})
		}
	}
	return requests
}

func (c Controller) setConditions(cd *hivev1.ClusterDeployment, p hibernation.Plan) {
	for kind, cond := range map[string]hibernation.Condition{
		hivev1.ClusterHibernatingCondition: p.Hibernating,
		hivev1.ClusterReadyCondition:       p.Ready,
		hivev1.ClusterUnreachableCondition: p.Unreachable,
	} {
		reconcile.SetCondition(&cd.Status.Conditions, metav1.Condition{
			Type: kind, Status: cond.Status, Reason: cond.Reason, Message: cond.Message,
		}, cd.Generation, c.Clock)
	}
}
