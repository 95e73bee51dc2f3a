// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// byLabel indexes objects by a label.
func (r *scopeEnv) byLabel(m *Manager, label string) {
	r.t.Helper()
	err := m.GetFieldIndexer().IndexField(r.t.Context(), &corev1.ConfigMap{}, "label", func(obj client.Object) []string {
		return []string{obj.GetLabels()[label]}
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *scopeEnv) found(m *Manager, namespace, value string) int {
	r.t.Helper()
	var list corev1.ConfigMapList
	if err := m.GetClient().List(r.t.Context(), &list, client.InNamespace(namespace), client.MatchingFields{"label": value}); err != nil {
		r.t.Fatal(err)
	}
	return len(list.Items)
}

func TestScopesIndexTheSameFieldEachInItsOwnWay(t *testing.T) {
	r := newScopeEnv(t)
	ns := r.namespace()
	made := r.configMap(ns, "a")
	made.Labels = map[string]string{"color": "red", "size": "big"}
	if err := r.client.Update(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	for range 3 { // Also after a restart.
		color := r.begin(Options{}, func(m *Manager) { r.byLabel(m, "color") })
		size := r.begin(Options{}, func(m *Manager) { r.byLabel(m, "size") })
		plain := r.begin(Options{}, func(m *Manager) { r.listen(m.GetCache(), &corev1.ConfigMap{}, ns) })
		r.expectInformers(3, 3)
		if red, big := r.found(color.Manager, ns, "red"), r.found(size.Manager, ns, "big"); red != 1 || big != 1 {
			t.Errorf("found %d red and %d big, want one of each", red, big)
		}
		if red := r.found(size.Manager, ns, "red"); red != 0 {
			t.Errorf("found %d of size red, want none", red)
		}
		r.end(color)
		r.end(size)
		r.expectInformers(1, 1)
		r.end(plain)
	}
	r.expectInformers(0, 0)
}

func TestAnIndexComesBeforeTheFirstUse(t *testing.T) {
	r := newScopeEnv(t)
	l := r.begin(Options{}, func(m *Manager) { r.listen(m.GetCache(), &corev1.ConfigMap{}, "") })
	err := l.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "x", noValues)
	if err == nil || !strings.Contains(err.Error(), "IndexField first") {
		t.Errorf("got %v, want an error that says what to do", err)
	}
	if err := l.GetFieldIndexer().IndexField(t.Context(), &corev1.Secret{}, "x", noValues); err != nil {
		t.Error(err)
	}
	if err := l.GetFieldIndexer().IndexField(t.Context(), &corev1.Secret{}, "y", noValues); err != nil {
		t.Errorf("a second field: %v", err)
	}
	if err := l.GetFieldIndexer().IndexField(t.Context(), &corev1.Secret{}, "y", noValues); err == nil {
		t.Error("the same field twice: got no error")
	}
	r.end(l)
	r.expectInformers(0, 0)
}
