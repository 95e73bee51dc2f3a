// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
)

// silentTransport is a server that never answers.
type silentTransport struct{}

func (silentTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// fakeDetector is a detector that reports the verdicts of the test.
type fakeDetector struct {
	refuses error

	mu   sync.Mutex
	asks []subscription
	live int
}

type subscription struct {
	interest detect.Interest
	report   func([]detect.Verdict)
}

func (o *fakeDetector) Subscribe(i detect.Interest, report func([]detect.Verdict)) (func(), error) {
	if o.refuses != nil {
		return nil, o.refuses
	}
	report([]detect.Verdict{{Reason: detect.ReasonDetecting}})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asks = append(o.asks, subscription{i, report})
	o.live++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.live--
	}, nil
}

func (o *fakeDetector) say(v detect.Verdict) {
	o.mu.Lock()
	last := o.asks[len(o.asks)-1]
	o.mu.Unlock()
	last.report([]detect.Verdict{v})
}

func widget() InformerKind {
	gvk := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	return InformerKind{GVK: gvk, Form: Unstructured, Plural: "widgets", Namespaced: true, UID: "1"}
}

func served(k InformerKind) detect.Verdict {
	return detect.Verdict{Presence: detect.Served, Plural: k.Plural, Namespaced: k.Namespaced, UID: k.UID}
}

// offline returns a pool of a server that never answers.
func offline(o *fakeDetector, opts cache.Options) *Pool {
	opts.HTTPClient, opts.Scheme = &http.Client{Transport: silentTransport{}}, clientgoscheme.Scheme
	return New(&rest.Config{Host: "http://127.0.0.1:1"}, opts, o)
}

func lease(t *testing.T, p *Pool, k InformerKind, terms LeaseTerms) *Lease {
	t.Helper()
	l, err := p.Lease(t.Context(), k, terms)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func pass(d time.Duration) { <-time.After(d) } // The bubble's clock.

func expect(t *testing.T, p *Pool, informers, leases int) {
	t.Helper()
	synctest.Wait()
	if p.InformerCount() != informers || p.LeaseCount() != leases {
		t.Errorf("got %d informers and %d leases, want %d and %d", p.InformerCount(), p.LeaseCount(), informers, leases)
	}
}

func TestLeasesShareWhatIsTheSame(t *testing.T) {
	variants := map[string]func(*InformerKind){
		"another form":    func(k *InformerKind) { k.Form = Metadata },
		"another plural":  func(k *InformerKind) { k.Plural = "widgetz" },
		"another scope":   func(k *InformerKind) { k.Namespaced = false },
		"another CRD":     func(k *InformerKind) { k.UID = "2" },
		"another version": func(k *InformerKind) { k.GVK.Version = "v2" },
		"a typed built-in kind": func(k *InformerKind) {
			*k = InformerKind{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Plural: "pods", Namespaced: true}
		},
	}
	for what, vary := range variants {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := offline(&fakeDetector{}, cache.Options{})
				k := widget()
				one, two := lease(t, p, k, LeaseTerms{}), lease(t, p, k, LeaseTerms{})
				expect(t, p, 1, 2)
				other := k
				vary(&other)
				three := lease(t, p, other, LeaseTerms{})
				expect(t, p, 2, 3)
				private := lease(t, p, k, LeaseTerms{Private: true, Keep: time.Hour})
				expect(t, p, 3, 4)
				private.Release()
				private.Release()
				expect(t, p, 2, 3)
				one.Release()
				expect(t, p, 2, 2)
				two.Release()
				<-two.Stopped()
				expect(t, p, 1, 1)
				three.Release()
				expect(t, p, 0, 0)
			})
		})
	}
}

func TestAnInformerIsKept(t *testing.T) {
	look := detect.Interest{Poll: time.Minute}
	keep := LeaseTerms{Keep: time.Minute, Interest: look}
	tests := map[string]struct {
		refuses error
		do      func(t *testing.T, p *Pool, o *fakeDetector)
		want    int
	}{
		"for its time": {
			do:   func(*testing.T, *Pool, *fakeDetector) { pass(59 * time.Second) },
			want: 1,
		},
		"no longer than its time": {
			do: func(*testing.T, *Pool, *fakeDetector) { pass(61 * time.Second) },
		},
		"while its kind is the same": {
			do:   func(_ *testing.T, _ *Pool, o *fakeDetector) { o.say(served(widget())) },
			want: 1,
		},
		"while its kind is in doubt": {
			do:   func(_ *testing.T, _ *Pool, o *fakeDetector) { o.say(detect.Verdict{Reason: "DiscoveryFailed"}) },
			want: 1,
		},
		"not when its kind goes": {
			do: func(_ *testing.T, _ *Pool, o *fakeDetector) { o.say(detect.Verdict{Presence: detect.Absent}) },
		},
		"not when its kind gets another scope": {
			do: func(_ *testing.T, _ *Pool, o *fakeDetector) {
				k := widget()
				k.Namespaced = false
				o.say(served(k))
			},
		},
		"not when its CRD is made anew": {
			do: func(_ *testing.T, _ *Pool, o *fakeDetector) {
				k := widget()
				k.UID = "2"
				o.say(served(k))
			},
		},
		"not when the detector refuses": {
			refuses: errors.New("boom"),
			do:      func(*testing.T, *Pool, *fakeDetector) {},
		},
		"not when the pool closes": {
			do: func(_ *testing.T, p *Pool, _ *fakeDetector) { p.Close() },
		},
		"and leased again": {
			do: func(t *testing.T, p *Pool, o *fakeDetector) {
				l := lease(t, p, widget(), LeaseTerms{})
				pass(time.Hour)
				o.say(detect.Verdict{Presence: detect.Absent}) // Too late: it is in use.
				expect(t, p, 1, 1)
				l.Release()
			},
		},
		"again after another lease": {
			do: func(t *testing.T, p *Pool, _ *fakeDetector) {
				lease(t, p, widget(), keep).Release()
				pass(59 * time.Second)
			},
			want: 1,
		},
	}
	for what, test := range tests {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &fakeDetector{refuses: test.refuses}
				p := offline(o, cache.Options{})
				lease(t, p, widget(), keep).Release()
				synctest.Wait()
				test.do(t, p, o)
				expect(t, p, test.want, 0)
				p.Close()
				expect(t, p, 0, 0)
				if o.live != 0 {
					t.Errorf("%d subscriptions are left", o.live)
				}
				for _, a := range o.asks {
					if a.interest.Poll != look.Poll || a.interest.Kinds[0] != widget().GVK {
						t.Errorf("the detector was asked for %+v", a.interest)
					}
				}
			})
		})
	}
}

func TestAClosedPoolKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := offline(&fakeDetector{}, cache.Options{})
		l := lease(t, p, widget(), LeaseTerms{Keep: time.Hour})
		p.Close()
		expect(t, p, 1, 1)
		l.Release()
		expect(t, p, 0, 0)
	})
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
		p := offline(&fakeDetector{}, opts)
		got := p.cacheOptions(widget()).ByObject
		if by, ok := got[mine]; !ok || len(got) != 1 || by.Label != opts.ByObject[mine].Label {
			t.Errorf("got %v", got)
		}
		clustered := widget()
		clustered.Namespaced = false
		for _, k := range []InformerKind{widget(), clustered, {GVK: corev1.SchemeGroupVersion.WithKind("Node"), Plural: "nodes"}} {
			l := lease(t, p, k, LeaseTerms{})
			registration, err := l.Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{})
			if err != nil {
				t.Fatal(err)
			}
			expect(t, p, 1, 1)
			if err := l.Informer().RemoveEventHandler(registration); err != nil {
				t.Error(err)
			}
			l.Release() // Before the sync: nothing may wait for that.
			expect(t, p, 0, 0)
		}
	})
}

func TestALeaseRefusesBadUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := offline(&fakeDetector{}, cache.Options{})
		unknown := widget()
		unknown.Form = Typed
		if _, err := p.Lease(t.Context(), unknown, LeaseTerms{}); err == nil {
			t.Error("a kind without a Go type: got no error")
		}
		list := InformerKind{GVK: corev1.SchemeGroupVersion.WithKind("PodList"), Plural: "pods"}
		if _, err := p.Lease(t.Context(), list, LeaseTerms{}); err == nil {
			t.Error("a list: got no error")
		}
		l := lease(t, p, widget(), LeaseTerms{})
		if err := l.IndexField(t.Context(), &corev1.Pod{}, "x", nil); err == nil {
			t.Error("an index in a shared informer: got no error")
		}
		l.Release()
		expect(t, p, 0, 0)
	})
}
