// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/cloudcalls"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
)

// act starts the plan's action, and does not wait for the cloud or the cluster. A later pass observes the result.
func (c Controller) act(ctx context.Context, seen *clusterObservation, plan hibernation.Plan) error {
	c.pool.Drain(seen.name, targetcluster.Drain{}) // The drain requested by an earlier pass may be outdated.
	c.pool.ChangeHealthChecks(seen.name, nil, 0)
	switch do := plan.Do.(type) {
	case hibernation.StopMachines:
		c.accounts.OrderStop(seen.name, cloudcalls.StopOrder{IDs: do.IDs, StoppedLater: do.StoppedLater, TerminatedLater: do.TerminatedLater}, plan.RetryAfter)
	case hibernation.TerminateMachines:
		log.FromContext(ctx).Info("Terminating spot machines", "machines", do.IDs)
		c.accounts.Order(seen.name, cloudcalls.TerminateVerb, do.IDs, plan.RetryAfter)
	case hibernation.StartMachines:
		c.accounts.Order(seen.name, cloudcalls.StartVerb, do.IDs, plan.RetryAfter)
	case hibernation.HoldGroups:
		log.FromContext(ctx).Info("Suspending, pausing or scaling down machine groups", "groups", do.Changes)
		return c.holdGroups(ctx, seen, do.Changes, plan.RetryAfter)
	case hibernation.ReleaseGroups:
		log.FromContext(ctx).Info("Restoring groups of machines", "groups", do.Changes)
		return c.changeGroups(ctx, seen, cloudcalls.ReleaseVerb, do.Changes, plan.RetryAfter)
	case hibernation.ApproveRequests:
		// Machines that are starting are not interrupted.
		c.withdrawStops(seen.name)
		log.FromContext(ctx).Info("Approving certificate requests", "requests", do.Requests)
		c.approveRequests(seen, do.Requests)
	case hibernation.ReplaceMachines:
		c.withdrawStops(seen.name)
		log.FromContext(ctx).Info("Deleting Machines of terminated spot machines", "machines", do.Machines)
		c.pool.Replace(seen.name, do.Machines)
	case hibernation.DrainWorkers:
		c.withdrawAll(seen.name)
		return c.drainWorkers(ctx, seen, do)
	case hibernation.UncordonNodes:
		c.withdrawStops(seen.name)
		log.FromContext(ctx).Info("Uncordoning nodes that were cordoned for a drain", "nodes", do.Nodes)
		c.pool.Drain(seen.name, targetcluster.Drain{Uncordon: do.Nodes})
	case hibernation.NoAction:
		c.withdrawAll(seen.name)
	}
	return nil
}

// withdrawStops drops the orders of a hibernation. Machines that are starting are not interrupted.
func (c Controller) withdrawStops(cluster types.NamespacedName) {
	c.accounts.Withdraw(cluster, cloudcalls.HoldVerb, cloudcalls.StopVerb, cloudcalls.TerminateVerb)
}

func (c Controller) withdrawAll(cluster types.NamespacedName) {
	c.withdrawStops(cluster)
	c.accounts.Withdraw(cluster, cloudcalls.ReleaseVerb, cloudcalls.StartVerb)
}

// drainWorkers evicts pods only if the spec on the hub still requests the hibernation, as a stop does.
func (c Controller) drainWorkers(ctx context.Context, seen *clusterObservation, do hibernation.DrainWorkers) error {
	mayStop, err := c.mayStop(ctx, seen.name)
	if err != nil {
		return fmt.Errorf("read the ClusterDeployment before its workers are drained: %w", err)
	}
	if mayStop {
		log.FromContext(ctx).Info("Draining workers", "nodes to cordon", len(do.Cordon), "pods to evict", len(do.Evict))
		c.pool.Drain(seen.name, targetcluster.Drain{Cordon: do.Cordon, Evict: do.Evict})
	}
	return nil
}

// holdGroups suspends, pauses or scales down groups only if the spec on the hub still requests the hibernation, as a
// stop does.
func (c Controller) holdGroups(ctx context.Context, seen *clusterObservation, changes []actuator.GroupChange, rest time.Duration) error {
	mayStop, err := c.mayStop(ctx, seen.name)
	if err != nil {
		return fmt.Errorf("read the ClusterDeployment before its groups of machines are held: %w", err)
	}
	if !mayStop {
		return nil
	}
	return c.changeGroups(ctx, seen, cloudcalls.HoldVerb, changes, rest)
}

// changeGroups sends each change to the place where the group exists: the cloud, the hub, or the cluster.
func (c Controller) changeGroups(ctx context.Context, seen *clusterObservation, verb cloudcalls.Verb, changes []actuator.GroupChange, rest time.Duration) error {
	var ofCloud []actuator.GroupChange
	var ofTarget []targetcluster.HealthCheckChange
	var err error
	for _, change := range changes {
		switch {
		case hibernation.IsHealthCheck(change.Name):
			ofTarget = append(ofTarget, seen.healthCheckChanges(change.Name, len(change.Suspend) > 0)...)
		case hibernation.IsGroupOfCloud(change.Name):
			ofCloud = append(ofCloud, change)
		default:
			err = c.clusterAPI.change(ctx, seen, change)
		}
	}
	if len(ofCloud) > 0 {
		c.accounts.OrderGroups(seen.name, verb, ofCloud, rest)
	}
	c.pool.ChangeHealthChecks(seen.name, ofTarget, rest)
	return err
}

// healthCheckChanges returns the change to an observed MachineHealthCheck; empty if it was not observed.
func (s *clusterObservation) healthCheckChanges(group string, isPause bool) []targetcluster.HealthCheckChange {
	at := slices.IndexFunc(s.healthChecks, func(check targetcluster.HealthCheck) bool { return check.Group.Name == group })
	if at < 0 {
		return nil
	}
	return []targetcluster.HealthCheckChange{{HealthCheck: s.healthChecks[at], IsPause: isPause}}
}

// mayStop reads from the hub's API server whether a cluster's machines may still be stopped.
func (c Controller) mayStop(ctx context.Context, name types.NamespacedName) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	var cd hivev1.ClusterDeployment
	if err := c.live.Get(ctx, name, &cd); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	// Hive's CRD drops the hibernation record from the status; only the annotation contains it. Without the record, a
	// resumed cluster would seem to have exceeded its run time.
	statusannotation.RestoreStatus(&cd)
	return hibernation.MayBeStopped(c.observeObject(&cd, readFacts(&cd))), nil
}

// approveRequests submits approvals. A later pass receives the results.
func (c Controller) approveRequests(seen *clusterObservation, names []string) {
	var requests []certificatesv1.CertificateSigningRequest
	for _, v := range seen.verdicts {
		i := slices.IndexFunc(seen.requests, func(r certificatesv1.CertificateSigningRequest) bool { return r.UID == v.UID })
		if i < 0 || !slices.Contains(names, v.Name) {
			continue
		}
		seen.approvals.noteSent(v, seen.Now)
		requests = append(requests, seen.requests[i])
	}
	c.pool.Approve(seen.name, requests)
}
