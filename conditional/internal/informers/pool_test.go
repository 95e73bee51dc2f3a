// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// silentTransport simulates a server that never responds.
type silentTransport struct{}

func (silentTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func widget() InformerKind {
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	return InformerKind{GVK: gvk, Form: Unstructured, Plural: "widgets", Namespaced: true, UID: "1"}
}

// offline returns a pool for a server that never responds.
func offline(opts cache.Options) *Pool {
	opts.HTTPClient, opts.Scheme = &http.Client{Transport: silentTransport{}}, clientgoscheme.Scheme
	return New(&rest.Config{Host: "http://127.0.0.1:1"}, opts, nil)
}

func lease(t *testing.T, p *Pool, k InformerKind, indexes ...*FieldIndex) *Lease {
	t.Helper()
	l, err := p.Lease(t.Context(), k, indexes)
	testenv.Must(t, err)
	return l
}

func expect(t *testing.T, p *Pool, informers, leases int) {
	t.Helper()
	synctest.Wait()
	if p.InformerCount() != informers || p.LeaseCount() != leases {
		t.Errorf("got %d informers and %d leases, want %d and %d", p.InformerCount(), p.LeaseCount(), informers, leases)
	}
}

func TestLeasesOfEqualKindsShareAnInformer(t *testing.T) {
	variants := map[string]func(*InformerKind){
		"another form: another informer":    func(k *InformerKind) { k.Form = Metadata },
		"another plural: another informer":  func(k *InformerKind) { k.Plural = "widgetz" },
		"another scope: another informer":   func(k *InformerKind) { k.Namespaced = false },
		"another CRD: another informer":     func(k *InformerKind) { k.UID = "2" },
		"another version: another informer": func(k *InformerKind) { k.GVK.Version = "v2" },
		"a typed built-in kind: another informer": func(k *InformerKind) {
			*k = InformerKind{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Plural: "pods", Namespaced: true}
		},
	}
	for what, vary := range variants {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := offline(cache.Options{})
				k := widget()
				one, two := lease(t, p, k), lease(t, p, k)
				expect(t, p, 1, 2)
				other := k
				vary(&other)
				three := lease(t, p, other)
				expect(t, p, 2, 3)
				indexed := lease(t, p, k, newIndex())
				expect(t, p, 2, 4)
				indexed.Release()
				indexed.Release()
				expect(t, p, 2, 3)
				one.Release()
				expect(t, p, 2, 2)
				two.Release()
				expect(t, p, 1, 1)
				three.Release()
				expect(t, p, 0, 0)
			})
		})
	}
}

func TestAnInformerGetsTheOptionsOfItsKindOnly(t *testing.T) {
	missing := &unstructured.Unstructured{}
	missing.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Missing"})
	mine := &unstructured.Unstructured{}
	mine.SetGroupVersionKind(widget().GVK)
	opts := cache.Options{
		DefaultNamespaces: map[string]cache.Config{"one": {}, "two": {}},
		ByObject: map[client.Object]cache.ByObject{
			missing: {Label: labels.Everything()}, mine: {Label: labels.Nothing()}, &corev1.Pod{}: {},
		},
	}
	synctest.Test(t, func(t *testing.T) {
		p := offline(opts)
		got := p.cacheOptions(t.Context(), widget()).ByObject
		if by, ok := got[mine]; !ok || len(got) != 1 || by.Label != opts.ByObject[mine].Label {
			t.Errorf("got %v", got)
		}
		clustered := widget()
		clustered.Namespaced = false
		for _, k := range []InformerKind{widget(), clustered, {GVK: corev1.SchemeGroupVersion.WithKind("Node"), Plural: "nodes"}} {
			l := lease(t, p, k)
			registration, err := l.Informer().AddEventHandlerWithOptions(toolscache.ResourceEventHandlerFuncs{}, toolscache.HandlerOptions{})
			testenv.Must(t, err)
			expect(t, p, 1, 1)
			if err := l.Informer().RemoveEventHandler(registration); err != nil {
				t.Error(err)
			}
			l.Release() // The release happens before the sync, and no caller may wait for the sync.
			expect(t, p, 0, 0)
		}
	})
}

func TestALeaseRefusesBadUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := offline(cache.Options{})
		unknown := widget()
		unknown.Form = Typed
		if _, err := p.Lease(t.Context(), unknown, nil); err == nil {
			t.Error("a kind without a Go type: got no error")
		}
		list := InformerKind{GVK: corev1.SchemeGroupVersion.WithKind("PodList"), Plural: "pods"}
		if _, err := p.Lease(t.Context(), list, nil); err == nil {
			t.Error("a list: got no error")
		}
		expect(t, p, 0, 0)
	})
}

// newIndex returns an index of Widgets by a field without values.
func newIndex() *FieldIndex {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(widget().GVK)
	return &FieldIndex{Object: obj, Field: "x", Extract: func(client.Object) []string { return nil }}
}

func TestABorrowedInformerGetsNoIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, p := offline(cache.Options{}), offline(cache.Options{})
		lent := lease(t, other, widget())
		p.borrow = func(context.Context, InformerKind) (cache.Cache, cache.Informer) {
			return lent.entry.cache, lent.entry.informer
		}
		plain := lease(t, p, widget())
		expect(t, p, 0, 1)
		if err := plain.AddIndex(t.Context(), newIndex()); !errors.Is(err, ErrBorrowed) {
			t.Errorf("an index in a borrowed informer: got %v, want ErrBorrowed", err)
		}
		indexed := lease(t, p, widget(), newIndex())
		expect(t, p, 1, 2)
		sharing := lease(t, p, widget())
		expect(t, p, 1, 3)
		for _, l := range []*Lease{plain, indexed, sharing, lent} {
			l.Release()
		}
		expect(t, p, 0, 0)
		expect(t, other, 0, 0)
	})
}

// TestEndedIndexesAreFew starts leases with indexes again and again, while another lease keeps the informer.
func TestEndedIndexesAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, ofManager := offline(cache.Options{}), newIndex()
		ofManager.OfManager = true
		neighbour := lease(t, p, widget(), ofManager)
		for range 3 * maxEndedIndexes {
			lease(t, p, widget(), ofManager).Release()
		}
		expect(t, p, 1, 1)
		if e := neighbour.entry; e.endedIndexes != 0 || e.indexCount != 1 {
			t.Errorf("expected the manager's index once, found %d indexes, of which %d have ended", e.indexCount, e.endedIndexes)
		}
		for i := range 3 * maxEndedIndexes {
			l := lease(t, p, widget(), newIndex())
			if isNew := l.entry != neighbour.entry; isNew != (i >= maxEndedIndexes) {
				t.Errorf("lease %d: a new informer is %t", i, isNew)
			}
			l.Release()
		}
		expect(t, p, 1, 1)
		if n := neighbour.entry.endedIndexes; n != maxEndedIndexes {
			t.Errorf("expected %d ended indexes, found %d", maxEndedIndexes, n)
		}
		neighbour.Release()
		expect(t, p, 0, 0)
	})
}

func TestAKindIsLostWithItsCRD(t *testing.T) {
	of := InformerKind{UID: "1"}
	for uid, want := range map[string]bool{"1": false, "2": true, "": true} {
		if got := of.IsLost(false, uid); got != want {
			t.Errorf("served with the CRD %q: lost %t, want %t", uid, got, want)
		}
	}
	if !of.IsLost(true, "1") || (InformerKind{}).IsLost(false, "1") {
		t.Error("expected an absent kind to be lost, and none whose CRD was not known")
	}
}

func TestMain(m *testing.M) {
	// One of these handlers limits the rate of errors with the process's clock, which is decades ahead of the clock in
	// a
	// synctest bubble.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}
