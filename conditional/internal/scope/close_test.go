// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

func noValues(client.Object) []string { return nil }

func TestAClosedScopeRefusesEverything(t *testing.T) {
	r := newScopeEnv(t)
	key := client.ObjectKey{Namespace: "default", Name: "a"}
	var informer cache.Informer
	l := r.begin(Options{}, func(m *Manager) {
		var err error
		if informer, err = m.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{}); err != nil {
			t.Fatal(err)
		}
	})
	if err := client.IgnoreNotFound(l.GetClient().Get(t.Context(), key, &corev1.Secret{})); err != nil {
		t.Fatal(err)
	}
	r.expectInformers(2, 2)
	r.end(l)
	c, known, fresh := l.GetClient(), &corev1.ConfigMap{}, &corev1.Pod{}
	unwritten := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}}
	_, getKnown := l.GetCache().GetInformer(t.Context(), known)
	_, getFresh := l.GetCache().GetInformer(t.Context(), fresh)
	_, byKind := l.GetCache().GetInformerForKind(t.Context(), corev1.SchemeGroupVersion.WithKind("Pod"))
	_, addHandler := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{})
	for what, err := range map[string]error{
		"get":                     c.Get(t.Context(), key, known),
		"get another kind":        c.Get(t.Context(), key, fresh),
		"list":                    c.List(t.Context(), &corev1.PodList{}),
		"live read":               l.GetAPIReader().Get(t.Context(), key, known),
		"write":                   c.Create(t.Context(), unwritten),
		"informer":                getKnown,
		"informer of another":     getFresh,
		"informer by kind":        byKind,
		"handler":                 addHandler,
		"index":                   l.GetFieldIndexer().IndexField(t.Context(), known, "x", noValues),
		"index on informer":       informer.AddIndexers(toolscache.Indexers{}),
		"remove informer":         l.GetCache().RemoveInformer(t.Context(), known),
		"add a runnable":          l.Add(manager.RunnableFunc(func(context.Context) error { return nil })),
		"add a check of health":   l.AddHealthzCheck("x", nil),
		"serve something besides": l.AddMetricsServerExtraHandler("/x", nil),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: got %v, want ErrClosed", what, err)
		}
	}
	if l.GetCache().WaitForCacheSync(t.Context()) {
		t.Error("a closed scope says that it has synced")
	}
	if !informer.IsStopped() {
		t.Error("the informer does not say that it has stopped")
	}
	r.expectInformers(0, 0)
}

func TestAReadInFlightEndsWithItsScope(t *testing.T) {
	r := newScopeEnv(t, "secrets")
	l := r.begin(Options{}, func(*Manager) {})
	read := make(chan error)
	go func() {
		read <- l.GetClient().Get(context.Background(), client.ObjectKey{Namespace: "default", Name: "a"}, &corev1.Secret{})
	}()
	r.expectInformers(1, 1)
	r.end(l)
	if err := within(t, read); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	r.expectInformers(0, 0)
}

func TestAnInformerThatCannotSyncHarmsNobody(t *testing.T) {
	r := newScopeEnv(t, "secrets")
	ns := r.namespace()
	hurt := r.begin(Options{}, func(*Manager) {})
	if _, err := hurt.GetCache().GetInformer(t.Context(), &corev1.Secret{}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := hurt.GetClient().List(short, &corev1.SecretList{}); !k8serrors.IsTimeout(err) {
		t.Errorf("a read with a context that ends: got %v, want a time-out", err)
	}
	if hurt.GetCache().WaitForCacheSync(short) {
		t.Error("the scope says that it has synced")
	}
	var seen <-chan string
	fine := r.begin(Options{}, func(m *Manager) { seen = r.listen(m.GetCache(), &corev1.ConfigMap{}, ns) })
	if !fine.GetCache().WaitForCacheSync(t.Context()) {
		t.Error("another scope does not sync")
	}
	r.configMap(ns, "a")
	within(t, seen)
	r.end(fine)
	r.end(hurt)
	r.expectInformers(0, 0)
}
