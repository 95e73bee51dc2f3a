// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// processCache is a cache that holds only processes.
type processCache struct {
	cache.Cache

	processes []korifiv1alpha1.CFProcess
}

// List implements client.Reader.
func (c processCache) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*korifiv1alpha1.CFProcessList).Items = c.processes
	return nil
}

// Only the oldest process of each type runs, so it is also the one that requests read and change. Sorts of at most
// twelve elements are stable by chance.
func TestGetProcessByTypeReturnsTheOldestOfManyProcesses(t *testing.T) {
	var processes []korifiv1alpha1.CFProcess
	for age := range 50 {
		p := korifiv1alpha1.CFProcess{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("process-%02d", age), CreationTimestamp: metav1.NewTime(time.Unix(int64(age), 0))}}
		p.Spec.ProcessType = []string{"worker", korifiv1alpha1.WebProcess}[age%2]
		processes = append(processes, p)
	}
	s := &Store{cache: processCache{processes: processes}}
	for processType, want := range map[string]string{"worker": "process-00", korifiv1alpha1.WebProcess: "process-01"} {
		found, err := s.GetProcessByType(t.Context(), buildApp("shop"), processType)
		if err != nil || found.Name != want {
			t.Errorf("%s: expected %s, found %v (%v)", processType, want, found, err)
		}
	}
}
