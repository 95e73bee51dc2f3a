// SPDX-License-Identifier: Apache-2.0

// Package controller is the shell around package clustering: it observes a MySQLCluster, its Pods and its servers, lets
// clustering.Decide decide, acts once and reports.
package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name of the controller, its events and its field manager.
const Name = "torpor-clustering"

const (
	workers      = 20
	backoffStart = time.Second
	backoffEnd   = time.Minute
	// passTimeout bounds what the calls of a pass, each with a deadline of its own, add up to.
	passTimeout = time.Minute
	// apiTimeout bounds one call to the API server.
	apiTimeout = 10 * time.Second
	// outdatedRetry is when to look again after somebody else has written the object in the middle of a pass.
	outdatedRetry = 20 * time.Millisecond
)

// Controller reconciles MySQLClusters.
type Controller struct {
	// HostOf is the name under which other instances reach the one with the index; its Pod may not exist.
	HostOf func(cluster *mocov1beta2.MySQLCluster, index int, pod *corev1.Pod) string
	// Clock tells the time.
	Clock clock.PassiveClock
	// Metrics is where states and counts are shown.
	Metrics *Metrics

	client client.Client
	live   client.Reader
	pods   client.Reader
	keeper *keeper
}

// ServiceHost is the name that the headless Service gives to an instance.
func ServiceHost(cluster *mocov1beta2.MySQLCluster, index int, _ *corev1.Pod) string {
	return cluster.InstanceHost(index)
}

// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters/status,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller. The passwords are read when a connection is made and never cached.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	c.keeper = newKeeper(c.Clock)
	pods, err := podCache(mgr)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	c.pods = pods
	c.Metrics.use(readers{clusters: mgr.GetClient(), pods: pods, clock: c.Clock})
	shell := &reconcile.Reconciler[*mocov1beta2.MySQLCluster]{
		Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
		New:  func() *mocov1beta2.MySQLCluster { return &mocov1beta2.MySQLCluster{} },
		Step: c.step,
	}
	err = builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&mocov1beta2.MySQLCluster{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WatchesRawSource(source.Kind[client.Object](pods, &corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(clusterOf))).
		WatchesRawSource(source.Channel(c.keeper.lost, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			ReconciliationTimeout:   passTimeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](backoffStart, backoffEnd),
		}).
		Complete(crreconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			c.forgetGone(ctx, req.NamespacedName)
			return shell.Reconcile(ctx, req)
		}))
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	if err := mgr.Add(manager.RunnableFunc(c.keeper.run)); err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// step is one pass. A refused act changes what is remembered, and the pass ends normally: the plan says when to try again.
func (c Controller) step(ctx context.Context, cluster *mocov1beta2.MySQLCluster) (reconcile.Outcome, error) {
	if !cluster.DeletionTimestamp.IsZero() {
		c.keeper.forget(client.ObjectKeyFromObject(cluster))
		return reconcile.Outcome{Why: "the cluster is being deleted"}, nil
	}
	if overdue(cluster, c.Clock.Now()) {
		return c.endStop(ctx, cluster)
	}
	seen := c.observe(ctx, cluster)
	if seen == nil {
		return reconcile.Outcome{After: outdatedRetry, Why: "the cache is behind"}, nil
	}
	plan := clustering.Decide(seen.Observed)
	if current, err := c.current(ctx, cluster, plan.Do); err != nil || !current {
		return reconcile.Outcome{After: outdatedRetry, Why: "the object has changed"}, err
	}
	trouble := c.act(ctx, seen, plan.Do)
	if err := ctx.Err(); err != nil {
		return reconcile.Outcome{Why: plan.Rule}, fmt.Errorf("pass ended early: %w", err)
	}
	seen.crew.note(plan.Do, c.Clock.Now(), trouble)
	return c.report(cluster, seen, plan, trouble), nil
}

// current says whether the object is still what the decision was made from, past any cache. Nothing is done behind the
// back of who stops clustering, nor twice for a primary that is none any more.
func (c Controller) current(ctx context.Context, cluster *mocov1beta2.MySQLCluster, do clustering.Action) (bool, error) {
	if _, idle := do.(clustering.Nothing); idle {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var live mocov1beta2.MySQLCluster
	err := c.live.Get(ctx, client.ObjectKeyFromObject(cluster), &live)
	if k8serrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the cluster: %w", err)
	}
	return live.ResourceVersion == cluster.ResourceVersion, nil
}

// forgetGone drops what is kept of a cluster that is gone.
func (c Controller) forgetGone(ctx context.Context, name types.NamespacedName) {
	if err := c.client.Get(ctx, name, &mocov1beta2.MySQLCluster{}); k8serrors.IsNotFound(err) {
		c.keeper.forget(name)
		c.Metrics.forget(name)
	}
}

// podCache is a cache of the Pods with MySQL servers. There are many other Pods in the world.
func podCache(mgr manager.Manager) (cache.Cache, error) {
	mine := labels.SelectorFromSet(labels.Set{
		mocov1beta2.NameLabel: mocov1beta2.NameValue, mocov1beta2.CreatedByLabel: mocov1beta2.CreatedByValue,
	})
	pods, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: mine, Transform: cache.TransformStripManagedFields()}},
	})
	if err != nil {
		return nil, fmt.Errorf("make a cache of Pods: %w", err)
	}
	if err := mgr.Add(pods); err != nil {
		return nil, fmt.Errorf("add a cache of Pods: %w", err)
	}
	return pods, nil
}

// clusterOf maps a Pod to its MySQLCluster.
func clusterOf(_ context.Context, pod client.Object) []ctrl.Request {
	name := types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetLabels()[mocov1beta2.InstanceLabel]}
	return []ctrl.Request{{NamespacedName: name}}
}
