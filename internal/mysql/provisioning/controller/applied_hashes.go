// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// appliedHashes remembers what was applied and what the API server made of it, so that nothing is sent that changes nothing.
// Comparing what is wanted with what is there would not do: the API server fills in defaults and writes quantities its
// own way. A manager that starts anew applies everything once, which changes nothing either.
type appliedHashes struct {
	mu      sync.Mutex
	entries map[types.NamespacedName]map[string]appliedHash
}

// appliedHash is what was sent, and what it became.
type appliedHash struct{ sent, became [sha256.Size]byte }

func newAppliedHashes() *appliedHashes {
	return &appliedHashes{entries: map[types.NamespacedName]map[string]appliedHash{}}
}

// isUnchanged: this was sent before, and it is still what it became.
func (l *appliedHashes) isUnchanged(cluster types.NamespacedName, wanted, live *unstructured.Unstructured) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.entries[cluster][describeObject(wanted)]
	return ok && e == appliedHash{hashContent(wanted), hashContent(live)}
}

// wasSent says whether this was sent before.
func (l *appliedHashes) wasSent(cluster types.NamespacedName, wanted *unstructured.Unstructured) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.entries[cluster][describeObject(wanted)]
	return ok && e.sent == hashContent(wanted)
}

func (l *appliedHashes) recordApplied(cluster types.NamespacedName, wanted, became *unstructured.Unstructured) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries[cluster] == nil {
		l.entries[cluster] = map[string]appliedHash{}
	}
	l.entries[cluster][describeObject(wanted)] = appliedHash{hashContent(wanted), hashContent(became)}
}

func (l *appliedHashes) forgetCluster(cluster types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, cluster)
}

// describeObject names an object for people.
func describeObject(u *unstructured.Unstructured) string { return u.GetKind() + " " + u.GetName() }

// hashContent covers what people and controllers want, not what they report, nor the API server's own bookkeeping.
func hashContent(u *unstructured.Unstructured) [sha256.Size]byte {
	c := u.DeepCopy()
	unstructured.RemoveNestedField(c.Object, "status")
	for _, bookkeeping := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp"} {
		unstructured.RemoveNestedField(c.Object, "metadata", bookkeeping)
	}
	text, err := json.Marshal(c.Object)
	if err != nil {
		return sha256.Sum256([]byte(fmt.Sprint(c.Object))) // JSON cannot hold it; a map is printed in order.
	}
	return sha256.Sum256(text)
}
