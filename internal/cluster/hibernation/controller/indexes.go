// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// byMachines is the field by which the cache finds the ClusterDeployments that refer to the same machines.
const byMachines = "machines"

func addIndexes(mgr manager.Manager) error {
	index := func(o client.Object) []string {
		if cd, ok := o.(*hivev1.ClusterDeployment); ok {
			return machineTags(cd)
		}
		return nil
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &hivev1.ClusterDeployment{}, byMachines, index); err != nil {
		return fmt.Errorf("index ClusterDeployments by %s: %w", byMachines, err)
	}
	return nil
}

// machineTags returns the keys of the cluster's machines. The keys are equal for all ClusterDeployments with the same
// machines. The result is empty if the spec does not identify the machines, or they are not managed.
func machineTags(cd *hivev1.ClusterDeployment) []string {
	return tagMachines(cd, cd.Spec.PlatformSettings())
}

func tagMachines(cd *hivev1.ClusterDeployment, platform hivev1.PlatformSettings) []string {
	if platform.Machines == "" || isInfraDisabled(cd) {
		return nil
	}
	cloud := platform.Cloud
	if platform.IsCloudNamedBySecret {
		cloud = "" // The account already identifies the cloud.
	}
	return []string{platform.Name + "/" + cloud + platform.Region + "/" + platform.Machines}
}

// clusterDeploymentsOfSameMachines maps a ClusterDeployment to all that refer to the same machines and may have waited
// for them.
func (c Controller) clusterDeploymentsOfSameMachines(ctx context.Context, o client.Object) []ctrl.Request {
	var requests []ctrl.Request
	if cd, ok := o.(*hivev1.ClusterDeployment); ok {
		for _, tag := range machineTags(cd) {
			requests = append(requests, c.listRequests(ctx, client.MatchingFields{byMachines: tag})...)
		}
	}
	return requests
}

func (c Controller) listRequests(ctx context.Context, which ...client.ListOption) []ctrl.Request {
	var list hivev1.ClusterDeploymentList
	if err := c.client.List(ctx, &list, append(which, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// findMachineOwner returns the oldest ClusterDeployment that refers to the same machines, or nil if it is this one. Two
// ClusterDeployments with different power states would undo each other's actions. Another ClusterDeployment's spec
// alone does not count: its credentials must list machines of the same account.
func (c Controller) findMachineOwner(ctx context.Context, cd *hivev1.ClusterDeployment, seen *clusterObservation) (*hivev1.ClusterDeployment, error) {
	if len(seen.Machines) == 0 {
		return nil, nil
	}
	owner := cd
	for _, tag := range tagMachines(cd, seen.platform) {
		var list hivev1.ClusterDeploymentList
		if err := c.client.List(ctx, &list, client.MatchingFields{byMachines: tag}, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list the ClusterDeployments with machines of %s: %w", tag, err)
		}
		for i := range list.Items {
			other := &list.Items[i]
			if !other.DeletionTimestamp.IsZero() || compareAge(other, owner) >= 0 {
				continue
			}
			account, isKnown := c.accountOf(ctx, other, client.ObjectKeyFromObject(cd))
			if !isKnown {
				return nil, reconcile.ErrPending
			}
			if account.has(seen.Machines[0]) {
				owner = other
			}
		}
	}
	if owner == cd {
		return nil, nil
	}
	return owner, nil
}

func compareAge(a, b *hivev1.ClusterDeployment) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
