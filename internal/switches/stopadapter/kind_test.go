// SPDX-License-Identifier: Apache-2.0

package stopadapter

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestObjectsWithoutAStatusCanBeStopped has an object without a status, because its own controller has not seen it
// yet or, like Flux, does not reconcile it while it is stopped.
func TestObjectsWithoutAStatusCanBeStopped(t *testing.T) {
	for _, o := range testenv.ListForeignObjects() {
		t.Run(o.Example, func(t *testing.T) {
			kind, err := NewKind(testenv.ReadStopAdapter(t, o.Example))
			testenv.ExpectNoError(t, err)
			u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
			rest := kind.Switch().ReadActivity(u)
			if rest.Message != "" || rest.IsReady || !rest.IsStoppable || len(u.Object) != 1 {
				t.Errorf("expected an answer, that it is not awake, and an object as it was, found %+v and %v", rest, u.Object)
			}
		})
	}
}
