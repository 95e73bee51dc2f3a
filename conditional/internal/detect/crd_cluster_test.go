// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

func kindIn(group, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
}

func testLifeOfACRD(t *testing.T, c *testCluster) {
	gvk := kindIn("life.example.com", "Widget")
	def := crdOf(gvk, "widgets")
	v := c.view(t, c.cfg)
	f := v.follow(Interest{Kinds: []schema.GroupVersionKind{gvk}})
	f.expect("absence", is(Absent), Served)
	var took []time.Duration
	uids := map[string]bool{}
	for range 20 {
		established := make(chan time.Time, 1)
		go func() { established <- c.established(t, def) }()
		served := f.expect("service", is(Served))
		took = append(took, max(0, time.Since(<-established)))
		if uids[served.UID] || served.UID == "" || served.Plural != "widgets" || !served.Namespaced {
			t.Fatalf("verdict %+v after the UIDs %v", served, uids)
		}
		uids[served.UID] = true
		c.uninstall(t, def.DeepCopy())
		f.expect("the end", is(Absent))
	}
	slices.Sort(took)
	t.Logf("established until reported: median %s, worst %s; %d requests in %d cycles: %v", took[len(took)/2], took[len(took)-1], v.count(""), len(took), v.ProbeCounts())

	// A CRD whose object has a finalizer stays served until that is taken off.
	c.install(t, def)
	served := f.expect("service", is(Served))
	w := &unstructured.Unstructured{}
	w.SetGroupVersionKind(gvk)
	w.SetNamespace(metav1.NamespaceDefault)
	w.SetName("held")
	w.SetFinalizers([]string{"example.com/held"})
	eventually(t, "a Widget can be created", func(ctx context.Context) bool { return c.Create(ctx, w) == nil })
	if err := c.Delete(t.Context(), def.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	terminating := f.expect("termination", func(v Verdict) bool { return v.Terminating }, Absent)
	if terminating.Presence != Served || terminating.Identity != served.Identity || terminating.Reason != "Terminating" {
		t.Errorf("got %+v after %+v", terminating, served)
	}
	w.SetFinalizers(nil)
	eventually(t, "the finalizer is taken off", func(ctx context.Context) bool {
		return c.Patch(ctx, w, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))) == nil
	})
	f.expect("the end", is(Absent))
}

// established creates a CRD and returns when the server said that it is established.
func (c *testCluster) established(t *testing.T, def *apiextensionsv1.CustomResourceDefinition) time.Time {
	if err := c.Create(t.Context(), def.DeepCopy()); err != nil {
		t.Error(err)
	}
	for t.Context().Err() == nil {
		var now apiextensionsv1.CustomResourceDefinition
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(def), &now); err == nil && testenv.IsEstablished(&now) {
			return time.Now()
		}
	}
	return time.Time{}
}

func testNamesThatAreTaken(t *testing.T, c *testCluster) {
	first, second := kindIn("taken.example.com", "Widget"), kindIn("taken.example.com", "Gadget")
	owner, rival := crdOf(first, "widgets"), crdOf(second, "gadgets")
	owner.Spec.Names.ShortNames, rival.Spec.Names.ShortNames = []string{"it"}, []string{"it"}
	v := c.view(t, c.cfg)
	f := v.follow(Interest{Kinds: []schema.GroupVersionKind{second}})
	f.expect("absence", is(Absent), Served)
	c.install(t, owner)
	eventually(t, "the owner of the name is established", func(ctx context.Context) bool {
		var now apiextensionsv1.CustomResourceDefinition
		return c.Get(ctx, client.ObjectKeyFromObject(owner), &now) == nil && testenv.IsEstablished(&now)
	})
	const discovery = "GET /apis/taken.example.com/v1"
	c.install(t, rival)
	v.quiet(discovery)
	if n := v.count(discovery); n > 300 {
		t.Errorf("%d requests for a CRD whose names are taken, want at most 300", n)
	}
	c.uninstall(t, owner.DeepCopy())
	f.expect("service, since the name is free", is(Served))
	c.uninstall(t, rival.DeepCopy())
}

// quiet returns when no such request has been made for longer than looks follow an event.
func (v *detectorLog) quiet(request string) {
	v.t.Helper()
	last, since := v.count(request), time.Now()
	eventually(v.t, "no more requests are made", func(context.Context) bool {
		if n := v.count(request); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > settleSpan+time.Second
	})
}

// stormSize is how many CRDs are installed at once: ten kinds in each group.
const stormSize = 100

func testStorm(t *testing.T, c *testCluster) {
	before, others := runtime.NumGoroutine(), goleak.IgnoreCurrent()
	v := c.view(t, c.cfg)
	kinds := make([]schema.GroupVersionKind, stormSize)
	feeds := make([]*verdictFeed, 5*stormSize)
	for i := range kinds {
		kinds[i] = kindIn(fmt.Sprintf("g%d.storm.example.com", i/10), fmt.Sprint("Kind", i))
	}
	for i := range feeds {
		feeds[i] = v.follow(Interest{Kinds: []schema.GroupVersionKind{kinds[i%stormSize]}})
	}
	for _, f := range feeds {
		f.expect("absence", is(Absent), Served)
	}
	eventually(t, "the looks have ended", func(context.Context) bool { return runtime.NumGoroutine()-before <= 9 })
	t.Logf("%d goroutines for %d subscribers of %d kinds, %d requests", runtime.NumGoroutine()-before, len(feeds), stormSize, v.count(""))
	idle := v.count("")

	var created sync.WaitGroup
	for i := range 4 {
		created.Go(func() {
			for j := i; j < stormSize; j += 4 {
				if err := c.Create(t.Context(), crdOf(kinds[j], fmt.Sprint("kind", j, "s"))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	created.Wait()
	begin := time.Now()
	for _, f := range feeds {
		f.expect("service", is(Served))
	}
	t.Logf("%s after the last creation all are served, %d requests: %v", time.Since(begin), v.count("")-idle, v.ProbeCounts())
	for i := range kinds {
		if err := c.Delete(t.Context(), crdOf(kinds[i], fmt.Sprint("kind", i, "s"))); err != nil {
			t.Error(err)
		}
	}
	for _, f := range feeds {
		f.expect("the end", is(Absent))
		f.cancel()
	}
	http := goleak.IgnoreTopFunction("internal/poll.runtime_pollWait") // Connections are kept.
	if err := goleak.Find(others, http); err != nil {
		t.Errorf("after the last cancel: %v", err)
	}
}
