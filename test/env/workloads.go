// SPDX-License-Identifier: Apache-2.0

package env

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// Workload is an example object of a kind of Kubernetes itself, such as a Deployment, with the statuses that its
// controller reports.
type Workload struct {
	// Path is the path of the field that a stop sets. On is its value in the example, and Off the value that a stop
	// sets.
	Path    []string
	On, Off any
	// Name is the name of the example.
	Name          string
	awake, asleep *unstructured.Unstructured
}

// ReadWorkload reads the example of a kind. The first document is a running object, and the second document has the
// status of the same object when it is stopped. The operations are those that stop an object.
func ReadWorkload(t testing.TB, kind string, operations []torporv1alpha1.StopOperation) Workload {
	t.Helper()
	if len(operations) != 1 || operations[0].Value == nil {
		t.Fatalf("%s: expected one operation with a value, found %+v", kind, operations)
	}
	w := Workload{
		Path:  strings.Split(strings.TrimPrefix(operations[0].Path, "/"), "/"),
		awake: &unstructured.Unstructured{}, asleep: &unstructured.Unstructured{},
	}
	ExpectNoError(t, json.Unmarshal(operations[0].Value.Raw, &w.Off))
	documents := openManifest(t, filepath.Join("..", "internal", "switches", "kinds", "testdata", "workloads", strings.ToLower(kind)+".yaml"))
	ExpectNoError(t, documents.Decode(w.awake))
	ExpectNoError(t, documents.Decode(w.asleep))
	w.Name = w.awake.GetName()
	w.On, _, _ = unstructured.NestedFieldNoCopy(w.awake.Object, w.Path...)
	return w
}

// Build returns the running object without its status, and does not create it.
func (w Workload) Build(name types.NamespacedName) *unstructured.Unstructured {
	u := w.awake.DeepCopy()
	delete(u.Object, "status")
	u.SetNamespace(name.Namespace)
	u.SetName(name.Name)
	return u
}

// ReadSwitch returns the field of an object that a stop sets.
func (w Workload) ReadSwitch(u *unstructured.Unstructured) any {
	value, _, _ := unstructured.NestedFieldNoCopy(u.Object, w.Path...)
	return value
}

// ReportStatus writes the status that the kind's own controller reports when the object has reached the state that its
// spec requests. Numbers that are equal to the number of replicas in the example follow the spec.
func (w Workload) ReportStatus(u *unstructured.Unstructured) {
	value, example := w.ReadSwitch(u), w.awake
	if value == w.Off {
		example = w.asleep
	}
	status, _, _ := unstructured.NestedMap(example.Object, "status")
	_, isNumber := w.On.(int64)
	for name, number := range status {
		if isNumber && number == w.On {
			status[name] = value
		}
	}
	if status["observedGeneration"] != nil {
		status["observedGeneration"] = u.GetGeneration()
	}
	u.Object["status"] = status
}
