// SPDX-License-Identifier: Apache-2.0

// Package controller lets backups be made and clusters be filled: it applies the CronJob and the Job that package backup
// makes from a MySQLCluster, and tells in the status what came of them. Of the status it writes backup and restoredTime only.
package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Name of the controller, its events and its field manager.
const Name = "torpor-backup"

const (
	workers      = 4
	backoffStart = time.Second
	backoffEnd   = 5 * time.Minute
	passTimeout  = time.Minute
	apiTimeout   = 10 * time.Second
)

// Controller reconciles the backups of MySQLClusters.
type Controller struct {
	// Image is Torpor's own, which brings the program into the Pods of Jobs. Without it no Jobs can be made.
	Image string
	// Clock tells the time.
	Clock clock.PassiveClock
	// Metrics is where backups are shown.
	Metrics *Metrics

	client           client.Client
	jobReader        client.Reader
	startedAt        time.Time
	reportedFailures *sync.Map
}

// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters/status,verbs=get;patch
// +kubebuilder:rbac:groups=moco.cybozu.com,resources=backuppolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=batch,resources=cronjobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	jobs, err := newJobCache(mgr)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	c.client, c.jobReader, c.startedAt, c.reportedFailures = mgr.GetClient(), jobs, c.Clock.Now(), &sync.Map{}
	c.Metrics.setReader(mgr.GetClient())
	shell := &reconcile.Reconciler[*mocov1beta2.MySQLCluster]{
		Client: mgr.GetClient(), Recorder: mgr.GetEventRecorder(Name),
		New:  func() *mocov1beta2.MySQLCluster { return &mocov1beta2.MySQLCluster{} },
		Step: c.step,
	}
	ofCluster := handler.EnqueueRequestsFromMapFunc(requestForCluster)
	err = builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&mocov1beta2.MySQLCluster{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&mocov1beta2.BackupPolicy{}, handler.EnqueueRequestsFromMapFunc(c.clustersUsingPolicy)).
		WatchesRawSource(source.Kind[client.Object](jobs, &batchv1.CronJob{}, ofCluster, predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Kind[client.Object](jobs, &batchv1.Job{}, ofCluster)).
		WatchesRawSource(source.Kind[client.Object](jobs, &corev1.Pod{}, ofCluster)).
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

// newJobCache is a cache of what backs up and restores. There are many other Jobs and Pods in the world.
func newJobCache(mgr manager.Manager) (cache.Cache, error) {
	kinds, err := labels.NewRequirement(mocov1beta2.NameLabel, selection.In, backup.JobKinds())
	if err != nil {
		return nil, fmt.Errorf("select Jobs: %w", err)
	}
	maker, err := labels.NewRequirement(mocov1beta2.CreatedByLabel, selection.Equals, []string{mocov1beta2.CreatedByValue})
	if err != nil {
		return nil, fmt.Errorf("select Jobs: %w", err)
	}
	mine := cache.ByObject{Label: labels.NewSelector().Add(*kinds, *maker), Transform: cache.TransformStripManagedFields()}
	jobs, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&batchv1.CronJob{}: mine, &batchv1.Job{}: mine, &corev1.Pod{}: mine},
	})
	if err != nil {
		return nil, fmt.Errorf("make a cache of Jobs: %w", err)
	}
	if err := mgr.Add(jobs); err != nil {
		return nil, fmt.Errorf("add a cache of Jobs: %w", err)
	}
	return jobs, nil
}

// requestForCluster maps what backs up or restores to its MySQLCluster.
func requestForCluster(_ context.Context, obj client.Object) []ctrl.Request {
	name := types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetLabels()[mocov1beta2.InstanceLabel]}
	return []ctrl.Request{{NamespacedName: name}}
}

// clustersUsingPolicy maps a BackupPolicy to the MySQLClusters that name it.
func (c Controller) clustersUsingPolicy(ctx context.Context, policy client.Object) []ctrl.Request {
	var clusters mocov1beta2.MySQLClusterList
	if err := c.client.List(ctx, &clusters, client.InNamespace(policy.GetNamespace())); err != nil {
		return nil // The cache ends with the manager.
	}
	var all []ctrl.Request
	for i := range clusters.Items {
		if name := clusters.Items[i].Spec.BackupPolicyName; name != nil && *name == policy.GetName() {
			all = append(all, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&clusters.Items[i])})
		}
	}
	return all
}

// step is one pass. What cannot be made is told by an event and tried again; what was done is told all the same.
func (c Controller) step(ctx context.Context, cluster *mocov1beta2.MySQLCluster) (reconcile.Outcome, error) {
	if !cluster.DeletionTimestamp.IsZero() {
		return reconcile.Outcome{Why: "the cluster is being deleted"}, nil
	}
	seen, err := c.observe(ctx, cluster)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	out := reconcile.Outcome{Why: "backups"}
	c.report(cluster, seen, &out)
	if cluster.ReconciliationStopped() { // Nothing but the status is written; a CronJob that exists goes on.
		return out, nil
	}
	failure := c.act(ctx, cluster, seen)
	c.recordFailureEvent(cluster, failure, &out)
	return out, failure
}

// recordFailureEvent tells a failure that was not told yet. It is forgotten with the manager, and then told once more.
func (c Controller) recordFailureEvent(cluster *mocov1beta2.MySQLCluster, failure error, out *reconcile.Outcome) {
	if failure == nil {
		c.reportedFailures.Delete(cluster.UID)
		return
	}
	what := failure.Error()
	if old, known := c.reportedFailures.Load(cluster.UID); known && old == what {
		return
	}
	c.eventOnce(out, cluster.UID, what, reconcile.Event{Warning: true, Reason: backupImpossible, Action: "Prepare", Note: what})
}
