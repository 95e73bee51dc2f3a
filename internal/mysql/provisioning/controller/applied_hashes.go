// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/internal/mysql/provisioning"
)

// appliedHashes remembers what was applied and what the API server made of it, so that nothing is sent that changes
// nothing. A manager that starts anew applies everything once, which changes nothing either.
type appliedHashes struct {
	mu        sync.Mutex
	byCluster map[types.NamespacedName]map[string]appliedHash
}

// appliedHash is of what was sent, and of what it became.
type appliedHash struct{ sent, became provisioning.ContentHash }

func newAppliedHashes() *appliedHashes {
	return &appliedHashes{byCluster: map[types.NamespacedName]map[string]appliedHash{}}
}

// stateOf returns what is remembered of a desired object, without the live one.
func (a *appliedHashes) stateOf(cluster types.NamespacedName, desired *unstructured.Unstructured) provisioning.ObjectState {
	a.mu.Lock()
	defer a.mu.Unlock()
	applied := a.byCluster[cluster][describeObject(desired)]
	return provisioning.ObjectState{Desired: desired, AppliedHash: applied.sent, ResultHash: applied.became}
}

func (a *appliedHashes) recordApplied(cluster types.NamespacedName, sent, became *unstructured.Unstructured) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byCluster[cluster] == nil {
		a.byCluster[cluster] = map[string]appliedHash{}
	}
	a.byCluster[cluster][describeObject(sent)] = appliedHash{provisioning.HashContent(sent), provisioning.HashContent(became)}
}

func (a *appliedHashes) forgetCluster(cluster types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byCluster, cluster)
}

// describeObject names an object for people.
func describeObject(u *unstructured.Unstructured) string { return u.GetKind() + " " + u.GetName() }
