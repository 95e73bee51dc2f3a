// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/machinepool"
	"github.com/torpor-dev/torpor/internal/cluster/targetcalls"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// poolObservation is the observation and the data that a job needs.
type poolObservation struct {
	machinepool.Observed
	pool, cluster types.NamespacedName
	server        targetcalls.Server
}

// observe reads the result of the last job, the ClusterDeployment and the cluster's other pools. While a job is in
// progress, it returns reconcile.ErrPending; the end of the job triggers another pass.
func (c Controller) observe(ctx context.Context, pool *hivev1.MachinePool) (*poolObservation, error) {
	seen := &poolObservation{
		pool:    client.ObjectKeyFromObject(pool),
		cluster: types.NamespacedName{Namespace: pool.Namespace, Name: pool.Spec.ClusterDeploymentRef.Name},
	}
	answer, attempt, isIdle := c.runner.RequestAnswer(seen.pool)
	if !isIdle {
		return nil, reconcile.ErrPending
	}
	seen.Observed = machinepool.Observed{
		Now: c.Clock.Now(), UID: string(pool.UID), Name: pool.Name, Spec: pool.Spec, Generation: pool.Generation, Status: pool.Status,
		IsDeleting: !pool.DeletionTimestamp.IsZero(), Answer: answer, Attempt: attempt,
	}
	var cd hivev1.ClusterDeployment
	if err := c.client.Get(ctx, seen.cluster, &cd); k8serrors.IsNotFound(err) {
		return seen, nil
	} else if err != nil {
		return nil, fmt.Errorf("read the ClusterDeployment: %w", err)
	}
	gate := readGate(&cd, c.Clock.Now())
	seen.HasCluster, seen.MayDial, seen.IsPaused, seen.Resume = true, gate.MayDial, gate.IsPaused, gate.Resume()
	seen.server, seen.InfraID = gate.Server, gate.infraID
	seen.Server = gate.Server.String()
	return seen, c.observeNeighbours(ctx, pool, seen)
}

// observeNeighbours reads the cluster's other pools.
func (c Controller) observeNeighbours(ctx context.Context, pool *hivev1.MachinePool, seen *poolObservation) error {
	all, err := c.listPools(ctx, seen.cluster)
	if err != nil {
		return err
	}
	for i := range all {
		other := &all[i]
		switch {
		case other.Name == pool.Name || !other.DeletionTimestamp.IsZero():
		case other.Spec.Name != pool.Spec.Name:
			seen.OtherPools = append(seen.OtherPools, other.Spec.Name)
		case isOlder(other, pool) && (seen.Namesake == "" || other.Name < seen.Namesake):
			seen.Namesake = other.Name
		}
	}
	return nil
}

func isOlder(a, b *hivev1.MachinePool) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// listPools returns a cluster's pools, in any order. The result is from the cache and must not be modified.
func (c Controller) listPools(ctx context.Context, cluster types.NamespacedName) ([]hivev1.MachinePool, error) {
	var list hivev1.MachinePoolList
	if err := c.client.List(ctx, &list, client.InNamespace(cluster.Namespace), client.MatchingFields{byCluster: cluster.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list MachinePools: %w", err)
	}
	return list.Items, nil
}

// mayDial reports whether the current ClusterDeployment allows a job to dial the cluster.
func (c Controller) mayDial(ctx context.Context, cluster types.NamespacedName) bool {
	var cd hivev1.ClusterDeployment
	if err := c.client.Get(ctx, cluster, &cd); err != nil {
		return false
	}
	gate := readGate(&cd, c.Clock.Now())
	return gate.MayDial && !gate.IsPaused
}
