// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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

// byCluster is the field by which the cache finds the SyncSets of a ClusterDeployment.
const byCluster = "spec.clusterDeploymentRefs.name"

func addIndexes(mgr manager.Manager) error {
	index := func(o client.Object) []string {
		var names []string
		if set, ok := o.(*hivev1.SyncSet); ok {
			for _, ref := range set.Spec.ClusterDeploymentRefs {
				names = append(names, ref.Name)
			}
		}
		return names
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &hivev1.SyncSet{}, byCluster, index); err != nil {
		return fmt.Errorf("index SyncSets by %s: %w", byCluster, err)
	}
	return nil
}

// clustersOfSyncSet maps a SyncSet to the clusters that it references.
func clustersOfSyncSet(_ context.Context, o client.Object) []ctrl.Request {
	set, ok := o.(*hivev1.SyncSet)
	if !ok {
		return nil
	}
	var requests []ctrl.Request
	for _, ref := range set.Spec.ClusterDeploymentRefs {
		requests = append(requests, ctrl.Request{NamespacedName: types.NamespacedName{Namespace: set.Namespace, Name: ref.Name}})
	}
	return requests
}

// clustersOfSelectorSyncSet maps a SelectorSyncSet to the clusters that it selects, or to all clusters if its selector
// is invalid.
func (c Controller) clustersOfSelectorSyncSet(ctx context.Context, o client.Object) []ctrl.Request {
	set, ok := o.(*hivev1.SelectorSyncSet)
	if !ok {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(&set.Spec.ClusterDeploymentSelector)
	if err != nil {
		selector = labels.Everything() // The set may have been applied to any cluster.
	}
	var list hivev1.ClusterDeploymentList
	if err := c.client.List(ctx, &list, client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "The clusters of a SelectorSyncSet cannot be listed")
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// gateOrLabelsChanged accepts updates of a ClusterDeployment that change its labels or its Gate, for example whether
// the cluster may be dialled. Both versions are evaluated at the zero time, so the passing of time is no change. A
// cluster that has run for spec.hibernateAfter therefore counts as changed only when a condition reports it.
func gateOrLabelsChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isBefore := e.ObjectOld.(*hivev1.ClusterDeployment)
		after, isAfter := e.ObjectNew.(*hivev1.ClusterDeployment)
		return isBefore && isAfter && (readGate(before, time.Time{}) != readGate(after, time.Time{}) || !maps.Equal(before.Labels, after.Labels))
	}}
}

// readGate returns the gate of a cluster. The annotation that pauses only SyncSets also closes this gate.
func readGate(cd *hivev1.ClusterDeployment, now time.Time) targetcalls.Gate {
	return targetcalls.ReadGate(cd, now, hivev1.ReconcilePauseAnnotation, hivev1.SyncsetPauseAnnotation)
}
