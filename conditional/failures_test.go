// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// TestFailures contains the rows of the table "Tested failures" in docs/manual.md that need a real API server. Each name
// begins with the number of its row. The tests share a server, but each has its own API group and is independent of the
// others. go test -run 'TestFailures/^16_' runs the tests of one row.
func TestFailures(t *testing.T) {
	server := startAPIServer(t)
	for i, row := range failures() {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.run(server.newFailureEnv(t, i))
		})
	}
}

func failures() []failureTest {
	return slices.Concat(
		failuresOfInstalling(), failuresOfReplacing(), failuresOfStopping(), failuresOfNeighbours(), failuresOfTheServer(), failuresOfLeading(),
	)
}

// failureTest is one test. Its name begins with the number of the row.
type failureTest struct {
	name string
	run  func(*failureEnv)
}

// failureEnv is the environment of one test: its own kind, and its controller.
type failureEnv struct {
	*apiServer
	name   string // name of the group
	kind   schema.GroupVersionKind
	crd    *apiextensionsv1.CustomResourceDefinition
	seen   chan string // the names of the reconciled objects
	starts atomic.Int32
	before map[Phase]int
}

// newFailureEnv returns an environment. The CRD is not installed.
func (s *apiServer) newFailureEnv(t *testing.T, number int) *failureEnv {
	t.Helper()
	mine := *s
	mine.t = t
	name := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
	kind := schema.GroupVersionKind{Group: fmt.Sprintf("test%d.example.com", number), Version: "v1", Kind: "Widget"}
	a := &failureEnv{apiServer: &mine, name: name, kind: kind, crd: newCRD(kind, "widgets"), seen: make(chan string, 10_000), before: map[Phase]int{}}
	for _, phase := range []Phase{Starting, Draining, Dormant, Failed, Stuck} {
		a.before[phase] = a.totalEntries(phase)
	}
	return a
}

// newCRD returns a namespaced CRD of any kind.
func newCRD(kind schema.GroupVersionKind, plural string) *apiextensionsv1.CustomResourceDefinition {
	return testenv.NewCRD(kind, plural, apiextensionsv1.NamespaceScoped)
}

// setUpGroup adds a group with the test's controller to a manager.
func (a *failureEnv) setUpGroup(mgr manager.Manager) *Group {
	a.t.Helper()
	return a.setUpGroupOf(mgr, Served(a.kind), watching(a.kind, a.seen))
}

// setUpGroupOf adds a group and counts its starts.
func (a *failureEnv) setUpGroupOf(mgr manager.Manager, when Condition, setup SetupFunc, opts ...Option) *Group {
	a.t.Helper()
	g, err := Setup(mgr, when, func(mgr manager.Manager) error {
		a.starts.Add(1)
		return setup(mgr)
	}, append([]Option{Name(a.name)}, opts...)...)
	testenv.Must(a.t, err)
	return g
}

// startGroup starts the manager to which the group was added.
func (a *failureEnv) startGroup(g *Group, mgr manager.Manager) *Group {
	a.startManager(mgr)
	return g
}

// createObject creates an object of the test's kind.
func (a *failureEnv) createObject(name string, finalizers ...string) {
	a.t.Helper()
	a.createObjectOf(a.kind, name, finalizers...)
}

func (a *failureEnv) createObjectOf(kind schema.GroupVersionKind, name string, finalizers ...string) {
	a.t.Helper()
	w := newObject(kind, name)
	w.SetFinalizers(finalizers)
	a.createSoon(w)
}

func newObject(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	w := &unstructured.Unstructured{}
	w.SetGroupVersionKind(kind)
	w.SetNamespace("default")
	w.SetName(name)
	return w
}

// countEntries returns how many times the group has entered a phase during this test, according to its metric.
func (a *failureEnv) countEntries(to Phase) int { return a.totalEntries(to) - a.before[to] }

func (a *failureEnv) totalEntries(to Phase) (n int) {
	a.t.Helper()
	for name, value := range series(a.t, a.name) {
		if strings.HasPrefix(name, "transitions_total ") && strings.HasSuffix(name, " "+string(to)) {
			n += int(value)
		}
	}
	return n
}

// isInformerRequest matches the requests of informers and clients for the test's kind, but not the probes of its
// storage.
func (a *failureEnv) isInformerRequest(r *http.Request) bool {
	kind, q := isObjectRequest(a.kind.GroupVersion(), "widgets"), r.URL.Query()
	look := isWatch(kind)(r) && q.Get("resourceVersion") == "" && q.Get("sendInitialEvents") == ""
	return kind(r) && !look
}

// expectNoRestart checks that the group is in its first activation.
func (a *failureEnv) expectNoRestart() {
	a.t.Helper()
	if starts, stops := a.starts.Load(), a.countEntries(Draining)+a.countEntries(Failed); starts != 1 || stops != 0 {
		a.t.Errorf("%d starts and %d stops, want one start", starts, stops)
	}
}

// waitForQuiet waits until there was no matching request for the given duration.
func (a *failureEnv) waitForQuiet(p *faultyProxy, of requestMatch, span time.Duration) {
	a.t.Helper()
	last, since := -1, time.Now()
	a.eventually("the manager asks nothing more", func(context.Context) (bool, error) {
		if now := p.countRequests(of); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) >= span, nil
	})
}

// annotateCRD makes an irrelevant change to a CRD, so the detector queries discovery.
func (a *failureEnv) annotateCRD(mark string) {
	a.t.Helper()
	a.updateCRD(a.crd, func(def *apiextensionsv1.CustomResourceDefinition) { def.Annotations = map[string]string{"mark": mark} })
}

// TestPageNamesTheFailures compares the table "Tested failures" with the rows of TestFailures.
func TestPageNamesTheFailures(t *testing.T) {
	page, err := os.ReadFile("docs/manual.md")
	testenv.Must(t, err)
	_, table, _ := strings.Cut(string(page), "\n## Tested failures\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var numbers []int
	told := map[int]bool{}
	for _, line := range regexp.MustCompile(`(?m)^\| (\d+) \|.*\| (.*) \|$`).FindAllStringSubmatch(table, -1) {
		number, err := strconv.Atoi(line[1])
		testenv.Must(t, err)
		numbers = append(numbers, number)
		if strings.Contains(line[2], "*failures*") {
			told[number] = true
		}
	}
	var want []int
	for number := range 34 {
		want = append(want, number+1)
	}
	if diff := cmp.Diff(want, numbers); diff != "" {
		t.Errorf("rows of the page (-want +got):\n%s", diff)
	}
	shown := map[int]bool{}
	for _, row := range failures() {
		word, _, _ := strings.Cut(row.name, " ")
		number, err := strconv.Atoi(word)
		testenv.Must(t, err)
		shown[number] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(shown)), slices.Sorted(maps.Keys(told))); diff != "" {
		t.Errorf("rows that TestFailures shows (-tests +page):\n%s", diff)
	}
}
