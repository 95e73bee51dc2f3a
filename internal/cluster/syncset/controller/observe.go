// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cluster/syncset"
	"github.com/torpor-dev/torpor/internal/cluster/targetcalls"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// clusterObservation is the observation and the data that a job needs.
type clusterObservation struct {
	syncset.Observed
	cluster types.NamespacedName
	server  targetcalls.Server
	sets    []setToApply
}

// observe reads a cluster's sets and the result of the last job. While a job is in progress, it returns
// reconcile.ErrPending; the end of the job triggers another pass.
func (c Controller) observe(ctx context.Context, cs *hiveinternalv1alpha1.ClusterSync) (*clusterObservation, error) {
	seen := &clusterObservation{cluster: client.ObjectKeyFromObject(cs)}
	answer, attempt, isIdle := c.applier.RequestAnswer(seen.cluster)
	if !isIdle {
		return nil, reconcile.ErrPending
	}
	seen.Observed = syncset.Observed{Now: c.Clock.Now(), UID: string(cs.UID), Status: cs.Status, Answer: answer, Attempt: attempt}
	var cd hivev1.ClusterDeployment
	if err := c.client.Get(ctx, seen.cluster, &cd); k8serrors.IsNotFound(err) {
		return seen, nil // The ClusterSync is deleted with the cluster.
	} else if err != nil {
		return nil, fmt.Errorf("read the ClusterDeployment: %w", err)
	}
	gate := readGate(&cd, c.Clock.Now())
	seen.MayDial, seen.IsPaused, seen.server, seen.Resume = gate.MayDial, gate.IsPaused, gate.Server, gate.Resume()
	seen.Server = gate.Server.String()
	var err error
	if seen.sets, seen.Excess, err = c.listSets(ctx, &cd, cs.Status.SelectorSyncSets); err != nil {
		return nil, err
	}
	seen.AreSelectorsUnread = !c.usesSelectors()
	for _, set := range seen.sets {
		observed := syncset.ObserveSet(set.SetKey, set.Generation, set.Spec)
		if set.IsUnreadable {
			observed.Invalid = "spec.clusterDeploymentSelector: expected operators In, NotIn, Exists or DoesNotExist, with matching values"
		}
		seen.Sets = append(seen.Sets, observed)
	}
	return seen, nil
}

// listSets returns a cluster's sets in the order in which they are applied, and the number of sets beyond the
// maximum. A SelectorSyncSet with an invalid selector is included only if it is known to have selected the cluster
// before.
func (c Controller) listSets(ctx context.Context, cd *hivev1.ClusterDeployment, known []hiveinternalv1alpha1.SyncStatus) ([]setToApply, int, error) {
	var sets []setToApply
	var own hivev1.SyncSetList
	// The list shares its objects with the cache, so they must not be modified.
	if err := c.client.List(ctx, &own, client.InNamespace(cd.Namespace), client.MatchingFields{byCluster: cd.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, 0, fmt.Errorf("list SyncSets: %w", err)
	}
	for i := range own.Items {
		if set := &own.Items[i]; set.DeletionTimestamp.IsZero() {
			sets = append(sets, setToApply{SetKey: syncset.SetKey{Name: set.Name}, Generation: set.Generation, Spec: &set.Spec.SyncSetCommonSpec})
		}
	}
	if c.usesSelectors() {
		var all hivev1.SelectorSyncSetList
		if err := c.client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
			return nil, 0, fmt.Errorf("list SelectorSyncSets: %w", err)
		}
		for i := range all.Items {
			set := &all.Items[i]
			selector, err := metav1.LabelSelectorAsSelector(&set.Spec.ClusterDeploymentSelector)
			isOwn := err == nil && selector.Matches(labels.Set(cd.Labels)) ||
				err != nil && slices.ContainsFunc(known, func(status hiveinternalv1alpha1.SyncStatus) bool { return status.Name == set.Name })
			if set.DeletionTimestamp.IsZero() && isOwn {
				sets = append(sets, setToApply{
					SetKey: syncset.SetKey{IsSelector: true, Name: set.Name}, Generation: set.Generation, Spec: &set.Spec.SyncSetCommonSpec, IsUnreadable: err != nil,
				})
			}
		}
	}
	slices.SortFunc(sets, func(a, b setToApply) int { return a.Compare(b.SetKey) })
	if excess := len(sets) - syncset.MaxSets; excess > 0 {
		return sets[:syncset.MaxSets], excess, nil
	}
	return sets, 0, nil
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
