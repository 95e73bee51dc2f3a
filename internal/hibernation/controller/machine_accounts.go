// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/hibernation"
)

const (
	// accountTTL is how old it may be what is known of another cluster's account, which its own passes find out anew. No event
	// tells that another cluster has lost its credentials.
	accountTTL = 15 * time.Minute
	// unknownAccountTTL is how long a cloud is not asked again that gave no answer to another cluster's credentials.
	unknownAccountTTL = time.Minute
	// otherLookTimeout bounds that look: it is at an endpoint that another user has named.
	otherLookTimeout = 5 * time.Second
)

// machineAccounts knows whose machines clusters were seen to have. Losing them costs a call for each two clusters of one infraID.
type machineAccounts struct {
	mu        sync.Mutex
	byCluster map[types.NamespacedName]machineAccount
}

// machineAccount is what the credentials of a cluster showed; without machines it owns none.
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

// store keeps what was known before while the cloud gives no answer: a moment of silence is no change of owners.
func (a *machineAccounts) store(cluster types.NamespacedName, machines []actuator.Machine, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(machines) > 0 {
		a.byCluster[cluster] = machineAccount{account: machines[0].Account, hasMachines: true, at: now}
	} else if !a.byCluster[cluster].isFresh(now) {
		a.byCluster[cluster] = machineAccount{at: now}
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
}

// accountOf returns whose machines another cluster has, by its own credentials.
func (c Controller) accountOf(ctx context.Context, cd *hivev1.ClusterDeployment) machineAccount {
	cluster := client.ObjectKeyFromObject(cd)
	if known := c.machineAccounts.find(cluster); known.isFresh(c.Clock.Now()) {
		return known
	}
	look := &clusterObservation{Observed: hibernation.Observed{Now: c.Clock.Now()}}
	if missingFields(cd) == "" && c.unsupportedPlatform(cd) == "" {
		ctx, cancel := context.WithTimeout(ctx, otherLookTimeout)
		defer cancel()
		if c.findTarget(ctx, cd, look) {
			// An error is as good as no machines: nothing is shown.
			look.Machines, _ = look.actuator.Observe(ctx, look.target)
		}
	}
	c.machineAccounts.store(cluster, look.Machines, look.Now)
	return c.machineAccounts.find(cluster)
}
