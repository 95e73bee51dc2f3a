// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// recordVersions keeps every version of the ClusterDeployment from now on. The function that it returns returns those so far.
func (s *powerCycledCluster) recordVersions(t *testing.T) func() []hivev1.ClusterDeployment {
	t.Helper()
	watcher, err := client.NewWithWatch(s.hub.Config, client.Options{Scheme: s.hub.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := watcher.Watch(t.Context(), &hivev1.ClusterDeploymentList{}, client.InNamespace(s.Namespace),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", s.Name)})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var versions []hivev1.ClusterDeployment
	var work sync.WaitGroup
	work.Go(func() {
		for e := range watch.ResultChan() {
			if cd, ok := e.Object.(*hivev1.ClusterDeployment); ok {
				mu.Lock()
				versions = append(versions, *cd)
				mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		watch.Stop()
		work.Wait()
	})
	return func() []hivev1.ClusterDeployment {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(versions)
	}
}
