// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// CompareByAge orders objects by age, and by name and namespace where that is the same: times have whole seconds. The names that the API
// gives are in the order of their making. Everybody who says which of two objects came first says the same.
func CompareByAge[T metav1.Object](a, b T) int {
	return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(a.GetNamespace(), b.GetNamespace()))
}

// FindOldestProcesses returns the process of each type that counts, in whatever order a cache lists them: the older one of two.
func FindOldestProcesses(all []korifiv1alpha1.CFProcess) map[string]*korifiv1alpha1.CFProcess {
	oldest := map[string]*korifiv1alpha1.CFProcess{}
	for i := range all {
		p := &all[i]
		if other := oldest[p.Spec.ProcessType]; other == nil || CompareByAge(p, other) < 0 {
			oldest[p.Spec.ProcessType] = p
		}
	}
	return oldest
}
