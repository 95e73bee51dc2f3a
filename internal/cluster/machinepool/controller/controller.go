// SPDX-License-Identifier: Apache-2.0

// Package controller makes clusters' MachineSets match their MachinePools. A reconcile pass observes a pool and its
// ClusterDeployment, calls machinepool.Decide, submits at most one job and writes the status. A poolRunner runs the
// jobs outside of the passes.
package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/cluster/machinepool"
	"github.com/torpor-dev/torpor/internal/cluster/targetcalls"
	"github.com/torpor-dev/torpor/internal/reconcile"
	reconcilestatus "github.com/torpor-dev/torpor/internal/reconcile/status"
)

// Name is the name of the controller, the reporter of its events and its field manager, on the hub and in clusters.
const Name = "torpor-machinepool"

// Controller reconciles MachinePools.
type Controller struct {
	// Dialer connects to target clusters.
	Dialer targetcluster.Dialer
	// Clock is the source of the current time.
	Clock   clock.PassiveClock
	Metrics *Metrics
	// Guard excludes MachinePools that another project's controller writes, such as Hive's. A nil Guard excludes no
	// MachinePool.
	Guard *reconcile.WriterGuard

	client client.Client
	runner *poolRunner
}

// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments;machinepools,verbs=get;list;watch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=machinepools,verbs=patch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=machinepools/status,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// SetupWithManager adds the controller.
func (c Controller) SetupWithManager(mgr manager.Manager) error {
	c.client = mgr.GetClient()
	c.Metrics.cache.Use(mgr.GetClient())
	c.runner = newPoolRunner(targetcalls.Connector{Dialer: c.Dialer, ReadSecret: targetcalls.ReadSecretWith(mgr.GetAPIReader()), MayDial: c.mayDial}, c.Clock, c.Metrics)
	if err := errors.Join(addIndexes(mgr), mgr.Add(c.runner)); err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	workers := reconcile.WorkerOptions{Count: 10, PassTimeout: time.Minute, MinBackoff: time.Second, MaxBackoff: 2 * time.Minute}
	err := builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&hivev1.MachinePool{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, reconcile.AnnotationChangedByOthers()))).
		// A pool's MachineSets depend on the cluster's other pools.
		Watches(&hivev1.MachinePool{}, handler.EnqueueRequestsFromMapFunc(c.neighboursOfPool), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&hivev1.ClusterDeployment{}, handler.EnqueueRequestsFromMapFunc(c.poolsOfCluster), builder.WithPredicates(gateChanged())).
		WatchesRawSource(c.runner.Answers()).
		WithOptions(workers.Options()).
		Complete(&reconcile.Pass[*hivev1.MachinePool, *poolObservation, machinepool.Plan]{
			Hub: reconcile.HubOf(mgr, Name, c.Clock), Guard: c.Guard,
			New:     func() *hivev1.MachinePool { return &hivev1.MachinePool{} },
			Forget:  c.runner.ForgetObject,
			Observe: c.observe,
			Decide:  func(seen *poolObservation) machinepool.Plan { return machinepool.Decide(seen.Observed) },
			Act:     c.act,
			Report:  c.report,
			Status: reconcilestatus.Storage[*hivev1.MachinePool]{
				Conditions: func(pool *hivev1.MachinePool) *[]metav1.Condition { return &pool.Status.Conditions },
				// Hive's CRD drops these status fields. Without them, Torpor would dial the cluster over and over.
				Remember: rememberSync,
			},
		})
	if err != nil {
		return fmt.Errorf("set up %s: %w", Name, err)
	}
	return nil
}

func rememberSync(pool *hivev1.MachinePool) map[string]any {
	remembered := map[string]any{}
	if pool.Status.LastSyncTime != nil {
		remembered["lastSyncTime"], remembered["observedGeneration"] = pool.Status.LastSyncTime, pool.Status.ObservedGeneration
	}
	if pool.Status.SyncedResume != nil {
		remembered["syncedResume"] = pool.Status.SyncedResume
	}
	return remembered
}

// act submits a job. A later pass observes its result.
func (c Controller) act(_ context.Context, seen *poolObservation, plan machinepool.Plan) error {
	if plan.Job != nil && seen.Answer == nil { // The result of the previous job is recorded before the next job begins.
		c.runner.Submit(seen.pool, &poolJob{Job: *plan.Job, Cluster: seen.cluster, Server: seen.server})
	}
	return nil
}
