// SPDX-License-Identifier: Apache-2.0

package revision

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
)

// CompareByAge orders objects by age, and then by name and namespace, because timestamps have whole seconds. The CF API
// generates the names of packages, builds and deployments in the order of creation. All components use this function,
// so they agree on which of two objects is older.
func CompareByAge[T metav1.Object](a, b T) int {
	return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(a.GetNamespace(), b.GetNamespace()))
}

// FindOldestProcesses returns the oldest process of each type, regardless of the order of the list. Other processes
// with the same type are ignored.
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
