// SPDX-License-Identifier: Apache-2.0

// Package controller is the shell around package provisioning: it observes what a MySQLCluster consists of, applies what
// differs from what is wanted, replaces the Pods of a rollout one by one, and reports.
package controller

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name of the controller, its events and its field manager.
const Name = "torpor-provisioning"

const (
	workers      = 10
	backoffStart = time.Second
	backoffEnd   = time.Minute
	passTimeout  = 2 * time.Minute
	// apiTimeout bounds one call to the API server.
	apiTimeout = 10 * time.Second
	// outdatedRetry is when to look again after the object has changed in the middle of a pass.
	outdatedRetry = 20 * time.Millisecond
	// userRetry is when to look again at what only a user can mend, and at what nobody tells of.
	userRetry = time.Minute
)

// Controller makes what MySQLClusters consist of.
type Controller struct {
	// Clock tells the time.
	Clock clock.PassiveClock

	client client.Client
	live   client.Reader
	// children caches what belongs to MySQLClusters.
	children client.Reader
	applied  *appliedHashes
}

// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters/status,verbs=get;patch
// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;patch
// +kubebuilder:rbac:groups="",resources=configmaps;services;serviceaccounts,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	own, err := newChildCache(mgr)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	c.client, c.live, c.children, c.applied = mgr.GetClient(), mgr.GetAPIReader(), own, newAppliedHashes()
	shell := &reconcile.Reconciler[*mocov1beta2.MySQLCluster]{
		Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
		New:  func() *mocov1beta2.MySQLCluster { return &mocov1beta2.MySQLCluster{} },
		Step: c.step,
	}
	b := builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&mocov1beta2.MySQLCluster{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, primaryOrHealthChanged()))).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(c.clustersUsingConfigMap)).
		WatchesRawSource(source.Kind[client.Object](own, &corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(requestForCluster)))
	for _, kind := range cachedKinds() {
		b = b.WatchesRawSource(source.Kind[client.Object](own, newUnstructured(kind), handler.EnqueueRequestsFromMapFunc(requestForCluster)))
	}
	err = b.WithOptions(controller.Options{
		MaxConcurrentReconciles: workers,
		ReconciliationTimeout:   passTimeout,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](backoffStart, backoffEnd),
	}).Complete(shell)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// step is one pass. A stop comes before anything else but the end.
func (c Controller) step(ctx context.Context, cluster *mocov1beta2.MySQLCluster) (reconcile.Outcome, error) {
	if !cluster.DeletionTimestamp.IsZero() {
		return c.finalize(ctx, cluster)
	}
	if cluster.ReconciliationStopped() {
		return c.reportStop(cluster), nil
	}
	if adopted, err := c.setDefaults(ctx, cluster); adopted || err != nil {
		return reconcile.Outcome{After: outdatedRetry, Why: "the object is completed"}, err
	}
	seen := c.observe(ctx, cluster)
	todo := c.findChanges(ctx, seen)
	if todo.isNotEmpty() {
		if current, err := c.isCurrent(ctx, cluster); err != nil || !current {
			return reconcile.Outcome{After: outdatedRetry, Why: "the object has changed"}, err
		}
	}
	c.act(ctx, seen, &todo)
	return c.report(cluster, seen, todo)
}

// primaryOrHealthChanged lets through what a rollout waits for.
func primaryOrHealthChanged() predicate.Predicate {
	healthy := func(c *mocov1beta2.MySQLCluster) bool {
		return meta.IsStatusConditionTrue(c.Status.Conditions, mocov1beta2.HealthyCondition)
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isOld := e.ObjectOld.(*mocov1beta2.MySQLCluster)
		after, isNew := e.ObjectNew.(*mocov1beta2.MySQLCluster)
		return isOld && isNew && (before.Status.CurrentPrimaryIndex != after.Status.CurrentPrimaryIndex || healthy(before) != healthy(after))
	}}
}

// cachedKinds are what belongs to MySQLClusters, without Secrets, which are never cached.
func cachedKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("ConfigMap"), corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
		corev1.SchemeGroupVersion.WithKind("Service"), policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"),
		appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
	}
}

func newUnstructured(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

// newChildCache is a cache of what belongs to MySQLClusters. There is much else in the world.
func newChildCache(mgr manager.Manager) (cache.Cache, error) {
	mine := labels.SelectorFromSet(labels.Set{
		mocov1beta2.NameLabel: mocov1beta2.NameValue, mocov1beta2.CreatedByLabel: mocov1beta2.CreatedByValue,
	})
	own, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultLabelSelector: mine, DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("make a cache: %w", err)
	}
	if err := mgr.Add(own); err != nil {
		return nil, fmt.Errorf("add a cache: %w", err)
	}
	return own, nil
}

// requestForCluster maps what belongs to a MySQLCluster to it.
func requestForCluster(_ context.Context, obj client.Object) []ctrl.Request {
	name := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetLabels()[mocov1beta2.InstanceLabel]}
	return []ctrl.Request{{NamespacedName: name}}
}

// clustersUsingConfigMap maps a ConfigMap to the MySQLClusters that take settings from it.
func (c Controller) clustersUsingConfigMap(ctx context.Context, obj client.Object) []ctrl.Request {
	var all mocov1beta2.MySQLClusterList
	if err := c.client.List(ctx, &all, client.InNamespace(obj.GetNamespace())); err != nil {
		return nil // They look again by themselves.
	}
	var found []ctrl.Request
	for i := range all.Items {
		if settingsConfigMapName(&all.Items[i]) == obj.GetName() {
			found = append(found, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return found
}

func settingsConfigMapName(cluster *mocov1beta2.MySQLCluster) string {
	if name := cluster.Spec.MySQLConfigMapName; name != nil {
		return *name
	}
	return ""
}
