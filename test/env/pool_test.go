// SPDX-License-Identifier: Apache-2.0

package env

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestServersAreLentOneAfterAnother(t *testing.T) {
	var suite Suite
	t.Cleanup(suite.runCleanups)
	pool := NewPool(&suite, StartAPIServer)
	initial := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	created := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "created"}}
	pids := map[string]int{}
	for _, step := range []struct {
		name   string
		change func(*testing.T, *Environment)
	}{
		{"objects are created", func(t *testing.T, e *Environment) {
			t.Helper()
			e.ExpectCreated(t, created.DeepCopy())
		}},
		{"a role is created", func(t *testing.T, e *Environment) {
			t.Helper()
			if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(created), &corev1.ConfigMap{}); !k8serrors.IsNotFound(err) {
				t.Errorf("expected no object of the test before, found %v", err)
			}
			e.ExpectCreated(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "created"}})
		}},
		{"an initial object is changed", func(t *testing.T, e *Environment) {
			t.Helper()
			ExpectPatched(t, e, initial.DeepCopy(), func(n *corev1.Namespace) { n.Labels = map[string]string{"changed": "true"} })
		}},
		{"nothing is changed", func(*testing.T, *Environment) {}},
	} {
		t.Run(step.name, func(t *testing.T) {
			e := pool.Borrow(t)
			pids[step.name] = e.PID()
			step.change(t, e)
		})
	}
	if pids["objects are created"] != pids["a role is created"] {
		t.Error("expected the same API server after a test that has only created objects, found another one")
	}
	if pids["an initial object is changed"] == pids["a role is created"] || pids["nothing is changed"] == pids["an initial object is changed"] {
		t.Errorf("expected another API server after its configuration or an initial object was changed, found %v", pids)
	}
}
