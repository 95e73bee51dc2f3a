// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/conditional"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestMain(m *testing.M) { os.Exit(testenv.RunWithoutLeaks(m)) }

// testGroup is a conditional group with a controller, which reads each object that is enqueued.
type testGroup struct {
	*conditional.Group
	mu sync.Mutex
	// requests counts the requests for each object.
	requests map[types.NamespacedName]int
	// share is the share of the group's latest start.
	share *Share
	// setupErr makes the group's next setup fail.
	setupErr error
}

// addGroup adds a group that watches the given kinds.
func addGroup(t *testing.T, mgr manager.Manager, name string, pods *Cache, kinds ...client.Object) *testGroup {
	t.Helper()
	g := &testGroup{requests: map[types.NamespacedName]int{}}
	setup := func(mgr manager.Manager) error {
		share, err := pods.ShareWith(mgr)
		if err != nil {
			return err
		}
		b := builder.ControllerManagedBy(mgr).Named(name)
		for _, kind := range kinds {
			b = b.WatchesRawSource(share.Watch(kind, &handler.EnqueueRequestForObject{}))
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.share = share
		return errors.Join(b.Complete(reconcile.Func(func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			err := share.Get(ctx, r.NamespacedName, &corev1.Pod{})
			g.mu.Lock()
			defer g.mu.Unlock()
			g.requests[r.NamespacedName]++
			return ctrl.Result{}, client.IgnoreNotFound(err)
		})), g.setupErr)
	}
	var err error
	g.Group, err = conditional.Setup(mgr, conditional.Served(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}), setup, conditional.Name(name))
	testenv.ExpectNoError(t, err)
	return g
}

func (g *testGroup) count(pod *corev1.Pod) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.requests[client.ObjectKeyFromObject(pod)]
}

func (g *testGroup) waitForRequest(t *testing.T, pod *corev1.Pod, more int) {
	t.Helper()
	testenv.Eventually(t, "the group receives an event of "+pod.Name, func() error {
		return testenv.ErrorIf(g.count(pod) < more, "found %d requests", g.count(pod))
	})
}

func (g *testGroup) stop(t *testing.T) {
	t.Helper()
	testenv.ExpectNoError(t, g.Stop(t.Context()))
}

// TestGroupsShareOneCache starts and stops two groups in every order, with all namespaces and with a selection of
// namespaces.
func TestGroupsShareOneCache(t *testing.T) {
	hub := testenv.StartAPIServer(t)
	namespace, another := hub.CreateNamespace(t), hub.CreateNamespace(t)
	for name, namespaces := range map[string][]string{"all namespaces": nil, "some namespaces": {namespace, another}} {
		t.Run(name, func(t *testing.T) {
			env, watches := hub.CountWatches()
			each := max(1, len(namespaces))
			expect := func(what string, pods, sets int) {
				t.Helper()
				testenv.Eventually(t, what, func() error {
					foundPods, foundSets := watches.Open("pods", korifiv1alpha1.ProcessGUIDLabel), watches.Open("statefulsets", korifiv1alpha1.ProcessGUIDLabel)
					return testenv.ErrorIf(foundPods != pods*each || foundSets != sets*each, "found %d watches of Pods and %d of StatefulSets", foundPods, foundSets)
				})
			}
			var first, second *testGroup
			testenv.StartManager(t, env, func(mgr manager.Manager) error {
				pods, err := New(mgr, namespaces)
				testenv.ExpectNoError(t, err)
				first, second = addGroup(t, mgr, "first", pods, &corev1.Pod{}), addGroup(t, mgr, "second", pods, &corev1.Pod{}, &appsv1.StatefulSet{})
				return nil
			})
			pod := createPod(t, hub, namespace, "process")
			first.waitForRequest(t, pod, 1)
			second.waitForRequest(t, pod, 1)
			expect("both groups share", 1, 1)
			first.expectFound(t, pod)

			second.stop(t)
			expect("the kinds of one group end with it", 1, 0)
			later := createPod(t, hub, another, "process")
			first.waitForRequest(t, later, 1)
			if n := second.count(later); n != 0 {
				t.Errorf("a stopped group received %d events", n)
			}
			second.Start()
			second.waitForRequest(t, later, 1)
			expect("a group joins again", 1, 1)

			first.stop(t)
			second.stop(t)
			expect("no group is left", 0, 0)
			before := first.count(pod)
			first.Start()
			first.waitForRequest(t, pod, before+1)
			expect("a group comes back", 1, 0)
			first.expectFound(t, pod)
			if most := watches.Most("pods", korifiv1alpha1.ProcessGUIDLabel); most > each {
				t.Errorf("expected at most %d watches of Pods at a time, found %d", each, most)
			}
		})
	}
}

// TestFailedSetupReleasesItsShare uses a group whose setup fails after it has created its share.
func TestFailedSetupReleasesItsShare(t *testing.T) {
	env, watches := testenv.StartAPIServer(t).CountWatches()
	var pods *Cache
	var g *testGroup
	testenv.StartManager(t, env, func(mgr manager.Manager) (err error) {
		pods, err = New(mgr, nil)
		testenv.ExpectNoError(t, err)
		g = addGroup(t, mgr, "failing", pods, &corev1.Pod{})
		g.setupErr = errors.New("this set-up fails")
		return nil
	})
	testenv.ExpectNoError(t, g.Wait(t.Context(), conditional.Failed))
	testenv.Eventually(t, "no share is taken between two attempts", func() error {
		pods.mu.Lock()
		defer pods.mu.Unlock()
		return testenv.ErrorIf(len(pods.kinds) != 0, "found %d kinds", len(pods.kinds))
	})
	if most := watches.Most("pods", korifiv1alpha1.ProcessGUIDLabel); most != 0 {
		t.Errorf("found %d watches", most)
	}
	g.mu.Lock()
	g.setupErr = nil
	g.mu.Unlock()
	testenv.Eventually(t, "the next set-up takes its share", func() error {
		return testenv.ErrorIf(watches.Open("pods", korifiv1alpha1.ProcessGUIDLabel) != 1, "found no watch")
	})
}

// TestAShareEndsOnce reads through a share after its group has stopped.
func TestAShareEndsOnce(t *testing.T) {
	hub := testenv.StartAPIServer(t)
	var g *testGroup
	testenv.StartManager(t, hub, func(mgr manager.Manager) error {
		pods, err := New(mgr, nil)
		testenv.ExpectNoError(t, err)
		g = addGroup(t, mgr, "ending", pods, &corev1.Pod{})
		return nil
	})
	pod := createPod(t, hub, hub.CreateNamespace(t), "process")
	g.waitForRequest(t, pod, 1)
	if err := g.share.List(t.Context(), &appsv1.StatefulSetList{}); err == nil || !strings.Contains(err.Error(), "expected a kind that the group watches, found StatefulSet") {
		t.Errorf("expected an error for a kind without a watch, found %v", err)
	}
	g.stop(t)
	if err := g.share.Watch(&corev1.Pod{}, &handler.EnqueueRequestForObject{}).Start(t.Context(), nil); !errors.Is(err, errShareEnded) {
		t.Errorf("expected that the share has ended, found %v", err)
	}
}

// expectFound expects that the cache returns a Pod by its process, without the trimmed fields, and does not contain a
// Pod without a process.
func (g *testGroup) expectFound(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	g.mu.Lock()
	share := g.share
	g.mu.Unlock()
	var list corev1.PodList
	testenv.ExpectNoError(t, share.List(t.Context(), &list, client.InNamespace(pod.Namespace), client.MatchingFields{ByProcess: "process"}))
	if len(list.Items) == 0 || list.Items[0].Spec.Containers[0].Image != "" {
		t.Errorf("found %+v", list.Items)
	}
	if err := share.Get(t.Context(), types.NamespacedName{Namespace: pod.Namespace, Name: "of-nobody"}, &corev1.Pod{}); !k8serrors.IsNotFound(err) {
		t.Errorf("found a Pod without labels (%v)", err)
	}
}

// createPod creates a Pod of a process and a Pod without a process.
func createPod(t *testing.T, hub *testenv.Environment, namespace, process string) *corev1.Pod {
	t.Helper()
	build := func(name string, labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "application", Image: "app:1"}}, AutomountServiceAccountToken: new(false),
		}}
	}
	if err := hub.Client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}); err != nil && !k8serrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	if err := hub.Client.Create(t.Context(), build("of-nobody", nil)); err != nil && !k8serrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	pod := build("", map[string]string{korifiv1alpha1.ProcessGUIDLabel: process})
	pod.GenerateName = "pod-"
	hub.ExpectCreated(t, pod)
	return pod
}
