// SPDX-License-Identifier: Apache-2.0

// Package controller runs LRPs: each is one StatefulSet and perhaps a disruption budget, and stays until its Pods are gone.
package controller

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name of the controller, its events and its field manager.
const Name = "torpor-lrp"

const (
	workers      = 20
	backoffStart = 50 * time.Millisecond
	backoffEnd   = time.Minute
	passTimeout  = time.Minute
	// apiTimeout bounds one call to the API server.
	apiTimeout = 10 * time.Second
	// byWhat is the field by which LRPs are found by what they run.
	byWhat = "what"
	// behindRetry is when to look again while the cache is behind what was just done.
	behindRetry = 10 * time.Millisecond
)

// Controller reconciles LRPs.
type Controller struct {
	// Clock tells the time.
	Clock clock.PassiveClock

	client client.Client
	live   client.Reader
	pods   client.Reader
}

// +kubebuilder:rbac:groups=eirini.cloudfoundry.org,resources=lrps,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=eirini.cloudfoundry.org,resources=lrps/status,verbs=get;patch
// +kubebuilder:rbac:groups=eirini.cloudfoundry.org,resources=lrps/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	pods, err := podstatus.Cache(context.Background(), mgr)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	c.pods = pods
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &eiriniv1.LRP{}, byWhat, indexLRP); err != nil {
		return fmt.Errorf("set up %s: index LRPs: %w", Name, err)
	}
	err = builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&eiriniv1.LRP{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&appsv1.StatefulSet{}).
		Owns(&policyv1.PodDisruptionBudget{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Kind[client.Object](pods, &corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(c.lrpsOf))).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			ReconciliationTimeout:   passTimeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](backoffStart, backoffEnd),
		}).
		Complete(&reconcile.Reconciler[*eiriniv1.LRP]{
			Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
			New:  func() *eiriniv1.LRP { return &eiriniv1.LRP{} },
			Step: c.step,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// step is one pass.
func (c Controller) step(ctx context.Context, lrp *eiriniv1.LRP) (reconcile.Outcome, error) {
	seen, err := c.observe(ctx, lrp)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	plan := decide(seen)
	again, err := c.act(ctx, seen, plan)
	before := lrp.Status.DeepCopy()
	c.report(seen, plan)
	out := reconcile.Outcome{Why: plan.why, Underway: underway(lrp, before, plan)}
	if again {
		out.After = behindRetry
	}
	return out, err
}

// lrpsOf maps a Pod to the LRPs that may be its own.
func (c Controller) lrpsOf(ctx context.Context, pod client.Object) []ctrl.Request {
	labels := pod.GetLabels()
	var list eiriniv1.LRPList
	err := c.client.List(ctx, &list, client.InNamespace(pod.GetNamespace()), client.MatchingFields{
		byWhat: what(labels[korifiv1alpha1.ProcessGUIDLabel], labels[korifiv1alpha1.VersionLabel]),
	})
	if err != nil {
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		requests = append(requests, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: list.Items[i].Name}})
	}
	return requests
}

func indexLRP(o client.Object) []string {
	lrp, ok := o.(*eiriniv1.LRP)
	if !ok {
		return nil
	}
	return []string{what(lrp.Spec.GUID, lrp.Spec.Version)}
}

func what(guid, version string) string { return guid + "/" + version }
