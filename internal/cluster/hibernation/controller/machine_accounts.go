// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/cloudcalls"
)

const (
	// accountTTL is the maximum age of another cluster's stored account, which that cluster's passes refresh. No
	// event reports that another cluster has lost its credentials.
	accountTTL = 15 * time.Minute
	// unknownAccountTTL is the interval of calling a cloud that listed no machines for another cluster's credentials.
	unknownAccountTTL = time.Minute
)

// machineAccounts stores the account of each cluster's machines, as last observed. After a restart of the manager,
// one call for each pair of clusters with the same infraID restores it.
type machineAccounts struct {
	mu        sync.Mutex
	byCluster map[types.NamespacedName]machineAccount
	// waiting contains, by the name of the poll, the clusters that wait for its result.
	waiting map[types.NamespacedName][]types.NamespacedName
}

func newMachineAccounts() *machineAccounts {
	return &machineAccounts{byCluster: map[types.NamespacedName]machineAccount{}, waiting: map[types.NamespacedName][]types.NamespacedName{}}
}

// ownerLook returns the name under which a cluster is polled when another cluster needs the account of its machines.
// The cluster's own passes do not use the result. The name contains a slash, so no object can have it.
func ownerLook(cluster types.NamespacedName) types.NamespacedName {
	cluster.Name += "/owner"
	return cluster
}

func (a *machineAccounts) await(look, waiting types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.waiting[look], waiting) {
		a.waiting[look] = append(a.waiting[look], waiting)
	}
}

// takeWaiting returns the clusters to reconcile after a poll. These are the cluster itself or, for a name returned by
// ownerLook, the clusters that wait for the account.
func (a *machineAccounts) takeWaiting(look types.NamespacedName) []types.NamespacedName {
	if !strings.Contains(look.Name, "/") {
		return []types.NamespacedName{look}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	waiting := a.waiting[look]
	delete(a.waiting, look)
	return waiting
}

// machineAccount is the account of the machines that a cluster's credentials list. If they list none, the cluster owns
// no machines.
type machineAccount struct {
	account     string
	hasMachines bool
	at          time.Time
}

func (a machineAccount) has(m actuator.Machine) bool { return a.hasMachines && a.account == m.Account }

func (a machineAccount) isFresh(now time.Time) bool {
	if a.hasMachines {
		return now.Sub(a.at) < accountTTL
	}
	return now.Sub(a.at) < unknownAccountTTL
}

// store stores the result of a poll. A result without machines has no effect while the stored one is recent.
func (a *machineAccounts) store(cluster types.NamespacedName, machines []actuator.Machine, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(machines) > 0 {
		a.byCluster[cluster] = machineAccount{account: machines[0].Account, hasMachines: true, at: now}
	} else if !a.byCluster[cluster].isFresh(now) {
		a.byCluster[cluster] = machineAccount{at: now}
	}
}

func (a *machineAccounts) storeLook(cluster types.NamespacedName, seen cloudcalls.Snapshot, now time.Time) {
	if seen.Err != nil {
		a.storeFailure(cluster, actuator.ClassOf(seen.Err), now)
		return
	}
	a.store(cluster, seen.Machines, now)
}

// storeFailure keeps the stored account of a cluster, regardless of its age, until the cluster's credentials are
// missing or rejected, or the cloud does not find the resource that contains its machines. A cluster that was never
// observed with machines owns none, because an unreachable account must not block others.
func (a *machineAccounts) storeFailure(cluster types.NamespacedName, class actuator.ErrorClass, now time.Time) {
	if !a.find(cluster).hasMachines || isAnswer(class) {
		a.store(cluster, nil, now)
	}
}

// isAnswer reports whether an error means that no machines are listed, rather than that a cloud or the hub is
// temporarily unreachable.
func isAnswer(class actuator.ErrorClass) bool {
	switch class {
	case actuator.CredentialsMissing, actuator.CredentialsInvalid, actuator.PermissionDenied, actuator.NotFound:
		return true
	case actuator.Unreachable, actuator.Throttled, actuator.NoCapacity, actuator.WrongState, actuator.Other:
		return false
	default:
		return false
	}
}

func (a *machineAccounts) find(cluster types.NamespacedName) machineAccount {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byCluster[cluster]
}

func (a *machineAccounts) forget(cluster types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byCluster, cluster)
	delete(a.waiting, ownerLook(cluster))
}

// accountOf returns the account of another cluster's machines, found with that cluster's credentials. The second
// result is false while the account is determined for the first time.
func (c Controller) accountOf(ctx context.Context, other *hivev1.ClusterDeployment, waiting types.NamespacedName) (machineAccount, bool) {
	name, now := client.ObjectKeyFromObject(other), c.Clock.Now()
	known := c.machineAccounts.find(name)
	if known.isFresh(now) {
		return known, true
	}
	look := &clusterObservation{Observed: hibernation.Observed{Now: now}, objectFacts: readFacts(other), name: ownerLook(name)}
	if len(missingFields(other, look.platform)) > 0 || c.unsupportedPlatform(other, look.platform) != "" {
		c.machineAccounts.store(name, nil, now)
		return c.machineAccounts.find(name), true
	}
	if !c.findTarget(ctx, other, look) {
		c.machineAccounts.storeFailure(name, look.ObservationError.Class, now)
		return c.machineAccounts.find(name), true
	}
	seen, isKnown := c.accounts.Look(ctx, cloudcalls.Cluster{Name: look.name, Actuator: look.actuator, Target: look.target})
	if isKnown && now.Sub(seen.At) < unknownAccountTTL {
		c.machineAccounts.storeLook(name, seen, now)
		return c.machineAccounts.find(name), true
	}
	c.machineAccounts.await(look.name, waiting)
	c.accounts.RefreshMachines(look.name)
	return known, !known.at.IsZero()
}
