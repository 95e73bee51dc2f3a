// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// TestProposalAcceptance covers the acceptance criteria of the proposal "Conditionally Runnable Controllers".
func TestProposalAcceptance(t *testing.T) {
	s := startAPIServer(t)
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	widgets, maps := make(chan string), make(chan string)
	mgr := s.newManagerFor(s.cfg)
	group := mustSetUp(t, mgr, Served(widgetKind()), watching(widgetKind(), widgets))
	neighbour := watching(s.mustFindKind(&corev1.ConfigMap{}), maps)
	testenv.Must(t, neighbour(mgr))
	theNeighbourGoesOn := func(name string) {
		t.Helper()
		s.createConfigMap(name)
		s.expectReconcile(maps, name)
	}

	t.Log("1. Run the mgr without CRD installed yet and mgr should start successfully.")
	s.startManager(mgr)
	s.waitForCondition(group, False, "")
	s.waitForPhase(group, Dormant)
	theNeighbourGoesOn("one")

	t.Log("2. After CRD installation the controller should start and run successfully.")
	s.installCRD(def)
	s.createWidgetIn("default", "first")
	s.expectReconcile(widgets, "first")
	s.waitForPhase(group, Running)

	t.Log("3. Upon uninstalling the CRD, the controller should stop but the manager should continue running successfully.")
	s.uninstallCRD(def)
	s.waitForPhase(group, Dormant)
	s.waitUntilGone(def)
	theNeighbourGoesOn("two")

	t.Log("4. Upon CRD reinstallation, the controller should once again start and run successfully with no disruption to the manager and its other runnables.")
	s.installCRD(def)
	s.createWidgetIn("default", "second")
	s.expectReconcile(widgets, "second")
	s.waitForPhase(group, Running)
	theNeighbourGoesOn("three")
}

func TestRestartAfterAnotherShape(t *testing.T) {
	s := startAPIServer(t)
	seen := make(chan string)
	mgr := s.newManagerFor(s.cfg)
	group := mustSetUp(t, mgr, Served(widgetKind()), watching(widgetKind(), seen))
	s.startManager(mgr)
	shapes := []struct {
		what, namespace string
		def             *apiextensionsv1.CustomResourceDefinition
	}{
		{"namespaced", "default", newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)},
		{"cluster", "", newWidgetCRD("widgets", apiextensionsv1.ClusterScoped)},
		{"plural", "", newWidgetCRD("widgetz", apiextensionsv1.ClusterScoped)},
		{"back", "default", newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)},
	}
	for _, shape := range shapes {
		s.installCRD(shape.def)
		s.createWidgetIn(shape.namespace, shape.what)
		s.expectReconcile(seen, shape.what) // The reconciler has also written to the Widget with the scope's client.
		s.uninstallCRD(shape.def)
		s.waitUntilGone(shape.def)
	}
	s.waitForPhase(group, Dormant)
}

func TestBuiltInKindsNeedNoCRD(t *testing.T) {
	s := startAPIServer(t)
	seen := make(chan string, 100)
	mgr := s.newManagerFor(s.cfg)
	group := mustSetUp(t, mgr, ServedObject(&corev1.Namespace{}), watching(s.mustFindKind(&corev1.Namespace{}), seen))
	s.startManager(mgr)
	s.expectReconcile(seen, "default")
	s.waitForPhase(group, Running)
}

func TestWithoutTheRightToWatchCRDs(t *testing.T) {
	s := startAPIServer(t)
	def := newWidgetCRD("widgets", apiextensionsv1.NamespaceScoped)
	s.installCRD(def)
	seen := make(chan string, 100)
	mgr := s.newManagerFor(s.newUser("poor", fullRight("example.com", "widgets")))
	group := mustSetUp(t, mgr, Served(widgetKind()), watching(widgetKind(), seen))
	s.startManager(mgr)
	s.createWidgetIn("default", "first")
	s.expectReconcile(seen, "first")
	s.uninstallCRD(def)
	s.waitForPhase(group, Dormant)
}

// TestRestartedControllerLeaksNothing restarts a controller many times, while another controller watches the same kind
// through the outer cache.
func TestRestartedControllerLeaksNothing(t *testing.T) {
	s := startAPIServer(t)
	const cycles = 50
	when := switchedCondition{says: make(chan Status)}
	mine, theirs := make(chan string, 1000), make(chan string, 1000)
	kind := s.mustFindKind(&corev1.ConfigMap{})
	mgr := s.newManagerFor(s.cfg)
	group := mustSetUp(t, mgr, when, watching(kind, mine), RestartLimit(2*cycles, wait.Backoff{Duration: time.Second}))
	testenv.Must(t, watching(kind, theirs)(mgr))
	s.startManager(mgr)
	cycle := func() {
		when.says <- Status{State: True}
		s.waitForPhase(group, Running)
		s.expectReconcile(mine, "kube-root-ca.crt")
		when.says <- Status{State: False}
		s.waitForPhase(group, Dormant)
	}
	s.createConfigMap("kube-root-ca.crt")
	s.expectReconcile(theirs, "kube-root-ca.crt")
	cycle()
	before := settledGoroutines(s)
	for range cycles {
		cycle()
	}
	s.eventually("all goroutines of the restarts are gone", func(context.Context) (bool, error) { return runtime.NumGoroutine() <= before, nil })
	s.createConfigMap("after")
	s.expectReconcile(theirs, "after")
}

// settledGoroutines returns the number of goroutines once it is stable.
func settledGoroutines(s *apiServer) int {
	last, same := 0, 0
	s.eventually("the number of goroutines settles", func(context.Context) (bool, error) {
		if now := runtime.NumGoroutine(); now != last {
			last, same = now, 0
		}
		same++
		return same > 20, nil
	})
	return last
}
