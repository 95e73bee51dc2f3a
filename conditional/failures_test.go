// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// TestFailures shows the rows of the list "What was tried" in docs/conditional.md that need a real API server; the
// tests share one, and each has a kind of its own group there.
func TestFailures(t *testing.T) {
	server := startAPIServer(t)
	for i, row := range failures() {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.show(server.arena(t, i))
		})
	}
}

func failures() []row {
	return slices.Concat(
		failuresOfInstalling(), failuresOfReplacing(), failuresOfStopping(), failuresOfNeighbours(), failuresOfTheServer(), failuresOfLeading(),
	)
}

// row is one test. Its name begins with the number of the failure.
type row struct {
	name string
	show func(*arena)
}

// arena is the place of one test: a kind of its own, and its controller.
type arena struct {
	*apiServer
	name   string // of the group
	kind   schema.GroupVersionKind
	def    *apiextensionsv1.CustomResourceDefinition
	seen   chan string // the names that the controller has reconciled
	starts atomic.Int32
	before map[Phase]int
}

// arena makes one; the CRD is not installed.
func (s *apiServer) arena(t *testing.T, number int) *arena {
	t.Helper()
	mine := *s
	mine.t = t
	name := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
	kind := schema.GroupVersionKind{Group: fmt.Sprintf("test%d.example.com", number), Version: "v1", Kind: "Widget"}
	a := &arena{apiServer: &mine, name: name, kind: kind, def: crdOf(kind, "widgets"), seen: make(chan string, 10_000), before: map[Phase]int{}}
	for _, phase := range []Phase{Starting, Draining, Dormant, Failed, Stuck} {
		a.before[phase] = a.entered(phase)
	}
	return a
}

// crdOf is a namespaced CRD of any kind.
func crdOf(kind schema.GroupVersionKind, plural string) *apiextensionsv1.CustomResourceDefinition {
	def := crd(plural, apiextensionsv1.NamespaceScoped)
	def.Name = plural + "." + kind.Group
	def.Spec.Group, def.Spec.Names.Kind = kind.Group, kind.Kind
	def.Spec.Versions[0].Name = kind.Version
	return def
}

// group adds the group of the arena's controller to a manager.
func (a *arena) group(mgr manager.Manager) *Group {
	a.t.Helper()
	return a.groupOf(mgr, Served(a.kind), watching(a.kind, a.seen))
}

// groupOf counts the starts.
func (a *arena) groupOf(mgr manager.Manager, when Condition, setup SetupFunc, opts ...Option) *Group {
	a.t.Helper()
	g, err := Setup(mgr, when, func(mgr manager.Manager) error {
		a.starts.Add(1)
		return setup(mgr)
	}, append([]Option{Name(a.name)}, opts...)...)
	if err != nil {
		a.t.Fatal(err)
	}
	return g
}

// run starts a manager that has the group.
func (a *arena) run(g *Group, mgr manager.Manager) *Group {
	a.start(mgr)
	return g
}

// make creates an object of the arena's kind.
func (a *arena) make(name string, finalizers ...string) {
	a.t.Helper()
	a.makeOf(a.kind, name, finalizers...)
}

func (a *arena) makeOf(kind schema.GroupVersionKind, name string, finalizers ...string) {
	a.t.Helper()
	a.eventually("a "+kind.Kind+" can be created", func(ctx context.Context) (bool, error) {
		w := objectOf(kind, name)
		w.SetFinalizers(finalizers)
		return a.client().Create(ctx, w) == nil, nil
	})
}

func objectOf(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	w := &unstructured.Unstructured{}
	w.SetGroupVersionKind(kind)
	w.SetNamespace("default")
	w.SetName(name)
	return w
}

// moves is how often the group has entered a phase during this test, as its metric tells.
func (a *arena) moves(to Phase) int { return a.entered(to) - a.before[to] }

func (a *arena) entered(to Phase) (n int) {
	a.t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		a.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "torpor_gate_transitions_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["group"] == a.name && labels["to"] == string(to) {
				n += int(m.GetCounter().GetValue())
			}
		}
	}
	return n
}

// used picks the requests of informers and clients to the arena's kind: all but the look whether it can be watched.
func (a *arena) used(r *http.Request) bool {
	kind, q := objects(a.kind.GroupVersion(), "widgets"), r.URL.Query()
	look := watches(kind)(r) && q.Get("resourceVersion") == "" && q.Get("sendInitialEvents") == ""
	return kind(r) && !look
}

// undisturbed fails when the group has left the life of its first start.
func (a *arena) undisturbed() {
	a.t.Helper()
	if starts, stops := a.starts.Load(), a.moves(Draining)+a.moves(Failed); starts != 1 || stops != 0 {
		a.t.Errorf("%d starts and %d stops, want one start", starts, stops)
	}
}

// quiet waits until nothing of that sort was asked for a span.
func (a *arena) quiet(p *proxy, of match, span time.Duration) {
	a.t.Helper()
	last, since := -1, time.Now()
	a.eventually("the manager asks nothing more", func(context.Context) (bool, error) {
		if now := p.asks(of); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) >= span, nil
	})
}

// touch changes a CRD without meaning, so that the detector looks.
func (a *arena) touch(mark string) {
	a.t.Helper()
	a.changed(func(def *apiextensionsv1.CustomResourceDefinition) { def.Annotations = map[string]string{"mark": mark} })
}

// changed updates the arena's CRD.
func (a *arena) changed(change func(*apiextensionsv1.CustomResourceDefinition)) {
	a.t.Helper()
	a.eventually("the CRD is updated", func(ctx context.Context) (bool, error) {
		var now apiextensionsv1.CustomResourceDefinition
		if err := a.client().Get(ctx, client.ObjectKeyFromObject(a.def), &now); err != nil {
			return false, err
		}
		change(&now)
		return a.client().Update(ctx, &now) == nil, nil
	})
}

// says waits until the group's condition has a state and a reason.
func (a *arena) says(g *Group, state State, reason string) {
	a.t.Helper()
	a.eventually("the condition is "+state.String()+" for "+reason, func(context.Context) (bool, error) {
		c := g.Status().Condition
		return c.State == state && (reason == "" || c.Reason == reason), nil
	})
}
