// SPDX-License-Identifier: Apache-2.0

// Package controller applies the CronJob, the Deployment and the Job that package backup plans for a MySQLCluster. It
// reports the results in status.backup, status.restoredTime and events.
package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/reconcile"
	reconcilestatus "github.com/torpor-dev/torpor/internal/reconcile/status"
)

// Name is the name of the controller, the reporter of its events and its field manager.
const Name = "torpor-backup"

// Controller reconciles the backups of MySQLClusters.
type Controller struct {
	// Image is Torpor's own image, which supplies the program to the Jobs' Pods. Jobs cannot be created without it.
	Image string
	Clock clock.PassiveClock
	// Guard skips MySQLClusters that MOCO's controller writes. Nil disables the check.
	Guard *reconcile.WriterGuard
	// Metrics exports the last backup of each cluster.
	Metrics *Metrics
	// WatchNamespaces limits the cache to these namespaces. An empty list means all namespaces.
	WatchNamespaces []string

	client client.Client
	// jobReader reads the workloads for backups and restores, and their Pods, from a separate cache.
	jobReader client.Reader
	shipping  *shippingPoller
	startedAt time.Time
	// reportedFailures holds the notes of the warning events that were emitted, by the UID of the Job or the cluster.
	reportedFailures *sync.Map
}

// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters/finalizers,verbs=update
// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters/status,verbs=get;patch
// +kubebuilder:rbac:groups=moco.cybozu.com,resources=backuppolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=batch,resources=cronjobs,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	jobs, err := newJobCache(mgr, c.WatchNamespaces)
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	c.shipping = newShippingPoller(jobs, c.Clock)
	c.client, c.jobReader, c.startedAt, c.reportedFailures = mgr.GetClient(), jobs, c.Clock.Now(), &sync.Map{}
	c.Metrics.cache.Use(mgr.GetClient())
	pass := &reconcile.Pass[*mocov1beta2.MySQLCluster, observation, backup.Plan]{
		Hub: reconcile.HubOf(mgr, Name, c.Clock), Guard: c.Guard,
		Status:  reconcilestatus.Storage[*mocov1beta2.MySQLCluster]{IsShared: true},
		New:     func() *mocov1beta2.MySQLCluster { return &mocov1beta2.MySQLCluster{} },
		Observe: c.observe,
		Decide:  func(seen observation) backup.Plan { return backup.Decide(seen.Observed) },
		Act:     c.act,
		Report:  c.report,
		Forget:  c.shipping.forgetCluster,
	}
	ofCluster := handler.EnqueueRequestsFromMapFunc(reconcile.RequestByLabel(mocov1beta2.InstanceLabel))
	err = builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&mocov1beta2.MySQLCluster{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, reconcile.AnnotationChangedByOthers(), scheduledStopsChanged()))).
		Watches(&mocov1beta2.BackupPolicy{}, handler.EnqueueRequestsFromMapFunc(c.clustersUsingPolicy)).
		WatchesRawSource(source.Kind[client.Object](jobs, &batchv1.CronJob{}, ofCluster, predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Kind[client.Object](jobs, &batchv1.Job{}, ofCluster)).
		WatchesRawSource(source.Kind[client.Object](jobs, &appsv1.Deployment{}, ofCluster, predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(c.shipping.changed, &handler.EnqueueRequestForObject{})).
		WatchesRawSource(source.Kind[client.Object](jobs, &corev1.Pod{}, ofCluster)).
		WithOptions(reconcile.WorkerOptions{Count: 4, PassTimeout: time.Minute, MinBackoff: time.Second, MaxBackoff: 5 * time.Minute}.Options()).
		Complete(pass)
	if err == nil {
		err = mgr.Add(c.shipping)
	}
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// scheduledStopsChanged selects updates that change the stops that Slumbers request, or the time at which the cluster
// went offline. An offline cluster is not backed up.
func scheduledStopsChanged() predicate.Predicate {
	return reconcile.FieldChanged(func(c *mocov1beta2.MySQLCluster) any { return []any{c.Status.ScheduledStops, c.Status.OfflineSince} })
}

func newJobCache(mgr manager.Manager, namespaces []string) (cache.Cache, error) {
	kinds, err := labels.NewRequirement(mocov1beta2.NameLabel, selection.In, backup.JobKinds())
	if err != nil {
		return nil, fmt.Errorf("select Jobs: %w", err)
	}
	maker, err := labels.NewRequirement(mocov1beta2.CreatedByLabel, selection.Equals, []string{mocov1beta2.CreatedByValue})
	if err != nil {
		return nil, fmt.Errorf("select Jobs: %w", err)
	}
	return reconcile.NewLabelledCache(mgr, namespaces, labels.NewSelector().Add(*kinds, *maker), &appsv1.Deployment{}, &batchv1.CronJob{}, &batchv1.Job{}, &corev1.Pod{})
}

// clustersUsingPolicy maps a BackupPolicy to the MySQLClusters that reference it.
func (c Controller) clustersUsingPolicy(ctx context.Context, policy client.Object) []ctrl.Request {
	var clusters mocov1beta2.MySQLClusterList
	if err := c.client.List(ctx, &clusters, client.InNamespace(policy.GetNamespace())); err != nil {
		return nil // Listing fails only when the cache stops with the manager.
	}
	var all []ctrl.Request
	for i := range clusters.Items {
		if backup.PolicyName(&clusters.Items[i]) == policy.GetName() {
			all = append(all, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&clusters.Items[i])})
		}
	}
	return all
}
