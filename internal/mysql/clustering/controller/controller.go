// SPDX-License-Identifier: Apache-2.0

// Package controller runs the passes of package clustering. A pass observes a MySQLCluster, its Pods and its servers,
// calls clustering.Decide, performs one action and reports.
package controller

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/reconcile/priority"
	reconcilestatus "github.com/torpor-dev/torpor/internal/reconcile/status"
)

// Name is the name of the controller, the reporter of its events and its field manager.
const Name = "torpor-clustering"

// Controller reconciles MySQLClusters.
type Controller struct {
	// HostOf returns the host name under which other instances reach the instance with the given index. pod is nil if
	// the instance has no Pod.
	HostOf func(cluster *mocov1beta2.MySQLCluster, index int, pod *corev1.Pod) string
	// Clock is the source of the current time.
	Clock clock.PassiveClock
	// Waits define how long a primary may be unreachable before a failover.
	Waits clustering.FailoverWaits
	// Guard makes the controller skip MySQLClusters that MOCO's controller writes. If it is nil, no MySQLCluster is
	// skipped.
	Guard *reconcile.WriterGuard
	// Metrics exports the states of clusters and counts passes.
	Metrics *Metrics
	// WatchNamespaces are the namespaces whose objects are cached. An empty list means all.
	WatchNamespaces []string
	// Ends contains the overdue stops of all controllers. If it is nil, overdue stops have no priority.
	Ends *priority.OverdueEnds

	client client.Client
	live   client.Reader
	pods   client.Reader
	conns  *connManager
}

// ServiceHost returns an instance's host name under the headless Service.
func ServiceHost(cluster *mocov1beta2.MySQLCluster, index int, _ *corev1.Pod) string {
	return cluster.InstanceHost(index)
}

// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=moco.cybozu.com,resources=mysqlclusters/status,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller to the manager. Passwords are read when they are needed, and never cached.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	c.conns = newConnManager(c.Clock)
	c.conns.onClone = c.Metrics.countClone
	selector := labels.SelectorFromSet(labels.Set{
		mocov1beta2.NameLabel: mocov1beta2.NameValue, mocov1beta2.CreatedByLabel: mocov1beta2.CreatedByValue,
	})
	pods, err := reconcile.NewLabelledCache(mgr, c.WatchNamespaces, selector, &corev1.Pod{})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	c.pods = pods
	c.Metrics.useReaders(cacheReaders{clusters: mgr.GetClient(), pods: pods, clock: c.Clock})
	// The durations of a pass's calls add up. Each call has a deadline below PassTimeout.
	workers := reconcile.WorkerOptions{Count: 20, PassTimeout: time.Minute, MinBackoff: time.Second, MaxBackoff: time.Minute}
	ends := priority.TrackEnds(c.Ends, Name, c.isEndOverdue, nil)
	err = builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&mocov1beta2.MySQLCluster{}, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, reconcile.AnnotationChangedByOthers(), scheduledStopsChanged()))).
		Watches(&mocov1beta2.MySQLCluster{}, ends.EnqueueOverdue()).
		WatchesRawSource(source.Kind[client.Object](pods, &corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(reconcile.RequestByLabel(mocov1beta2.InstanceLabel)))).
		WatchesRawSource(source.Channel(c.conns.lost, &handler.EnqueueRequestForObject{})).
		WithOptions(workers.Options()).
		Complete(&reconcile.Pass[*mocov1beta2.MySQLCluster, *observation, clustering.Plan]{
			Hub: reconcile.HubOf(mgr, Name, c.Clock), Guard: c.Guard, Ends: ends,
			Status: reconcilestatus.Storage[*mocov1beta2.MySQLCluster]{
				IsShared: true, Remember: rememberStatus,
				Conditions: func(c *mocov1beta2.MySQLCluster) *[]metav1.Condition { return &c.Status.Conditions },
			},
			New:     func() *mocov1beta2.MySQLCluster { return &mocov1beta2.MySQLCluster{} },
			Observe: c.observe,
			Decide:  func(seen *observation) clustering.Plan { return clustering.Decide(seen.Observed) },
			Act:     c.act,
			Report:  c.report,
			Forget:  c.forgetCluster,
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	if err := mgr.Add(c.conns); err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

// isEndOverdue reports whether the end time of a stop of clustering has passed, including a stop for single instances.
func (c Controller) isEndOverdue(cluster *mocov1beta2.MySQLCluster) bool {
	switches := mysqlswitches.Read(cluster, c.Clock.Now())
	return switches.Clustering.IsOverdue || switches.Instances.IsOverdue
}

// scheduledStopsChanged selects updates that change stops scheduled by Slumbers.
func scheduledStopsChanged() predicate.Predicate {
	return reconcile.FieldChanged(func(c *mocov1beta2.MySQLCluster) any { return c.Status.ScheduledStops })
}

func (c Controller) forgetCluster(name types.NamespacedName) {
	c.conns.forgetCluster(name)
	c.Metrics.forgetCluster(name)
}
