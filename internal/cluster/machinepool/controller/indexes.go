// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/targetcalls"
)

// byCluster is the field by which the cache finds the MachinePools of a ClusterDeployment.
const byCluster = "spec.clusterDeploymentRef.name"

func addIndexes(mgr manager.Manager) error {
	index := func(o client.Object) []string {
		if pool, ok := o.(*hivev1.MachinePool); ok {
			return []string{pool.Spec.ClusterDeploymentRef.Name}
		}
		return nil
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &hivev1.MachinePool{}, byCluster, index); err != nil {
		return fmt.Errorf("index MachinePools by %s: %w", byCluster, err)
	}
	return nil
}

func (c Controller) poolsOfCluster(ctx context.Context, o client.Object) []ctrl.Request {
	return c.requestsFor(ctx, client.ObjectKeyFromObject(o))
}

func (c Controller) neighboursOfPool(ctx context.Context, o client.Object) []ctrl.Request {
	pool, ok := o.(*hivev1.MachinePool)
	if !ok {
		return nil
	}
	return c.requestsFor(ctx, types.NamespacedName{Namespace: pool.Namespace, Name: pool.Spec.ClusterDeploymentRef.Name})
}

func (c Controller) requestsFor(ctx context.Context, cluster types.NamespacedName) []ctrl.Request {
	pools, err := c.listPools(ctx, cluster)
	if err != nil {
		log.FromContext(ctx).Error(err, "The MachinePools of a cluster cannot be listed")
	}
	var requests []ctrl.Request
	for i := range pools {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&pools[i])})
	}
	return requests
}

// poolGate is the part of a ClusterDeployment that a pass reads.
type poolGate struct {
	targetcalls.Gate
	infraID string
}

func readGate(cd *hivev1.ClusterDeployment, now time.Time) poolGate {
	gate := poolGate{Gate: targetcalls.ReadGate(cd, now, hivev1.ReconcilePauseAnnotation)}
	if cd.Spec.ClusterMetadata != nil {
		gate.infraID = cd.Spec.ClusterMetadata.InfraID
	}
	return gate
}

// gateChanged accepts updates of a ClusterDeployment that change its poolGate, for example whether the cluster may be
// dialled. Both versions are evaluated at the zero time, so the passing of time is no change.
func gateChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isBefore := e.ObjectOld.(*hivev1.ClusterDeployment)
		after, isAfter := e.ObjectNew.(*hivev1.ClusterDeployment)
		return isBefore && isAfter && readGate(before, time.Time{}) != readGate(after, time.Time{})
	}}
}
