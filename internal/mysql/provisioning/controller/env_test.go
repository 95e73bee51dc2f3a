// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	clustering "github.com/torpor-dev/torpor/internal/mysql/clustering/controller"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// testEnv is a hub, and the test in the place of the StatefulSet controller and the kubelet.
type testEnv struct {
	hub      *testenv.Environment
	requests *requestRecorder
}

// requestRecorder are the requests of the manager that change something, without events; and when it last asked for anything.
type requestRecorder struct {
	mu   sync.Mutex
	next http.RoundTripper
	list []string
	// asking counts the requests that are under way, and asked is when the last one ended, by namespace.
	asking map[string]int
	asked  map[string]time.Time
}

// RoundTrip implements http.RoundTripper.
func (w *requestRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	_, rest, _ := strings.Cut(r.URL.Path, "/namespaces/")
	namespace, _, _ := strings.Cut(rest, "/")
	w.mu.Lock()
	w.asking[namespace]++
	if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") {
		w.list = append(w.list, r.Method+" "+r.URL.Path)
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asking[namespace]--
		w.asked[namespace] = time.Now()
	}()
	return w.next.RoundTrip(r)
}

// quietFor says for how long nothing was asked for in a namespace; 0 while something is.
func (w *requestRecorder) quietFor(namespace string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asking[namespace] > 0 {
		return 0
	}
	return time.Since(w.asked[namespace])
}

// writesIn are the writes in a namespace.
func (w *requestRecorder) writesIn(namespace string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []string
	for _, one := range w.list {
		if strings.Contains(one, "/namespaces/"+namespace+"/") {
			found = append(found, one)
		}
	}
	return found
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	w := &testEnv{hub: testenv.StartAPIServer(t), requests: &requestRecorder{asking: map[string]int{}, asked: map[string]time.Time{}}}
	w.hub.InstallCRDs(t)
	cfg := rest.CopyConfig(w.hub.Config)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		w.requests.next = next
		return w.requests
	})
	w.startManager(t, cfg, Controller{Clock: clock.RealClock{}}.SetupWithManager)
	return w
}

// startClustering runs the other controller of the kind as well.
func (w *testEnv) startClustering(t *testing.T) {
	t.Helper()
	w.startManager(t, w.hub.Config, clustering.Controller{
		HostOf: clustering.ServiceHost, Clock: clock.RealClock{}, Metrics: clustering.NewMetrics(),
	}.SetupWithManager)
}

// startManager runs a manager for the rest of the test.
func (w *testEnv) startManager(t *testing.T, cfg *rest.Config, setup func(manager.Manager) error) {
	t.Helper()
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), mocov1beta2.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	mgr, err := manager.New(cfg, manager.Options{
		Scheme: known, Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := setup(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended with: %v", err)
		}
	})
}

// clusterEnv is one cluster in a namespace of its own.
type clusterEnv struct {
	*testEnv
	name types.NamespacedName
}

func (w *testEnv) newCluster(t *testing.T) *clusterEnv {
	t.Helper()
	return &clusterEnv{testEnv: w, name: types.NamespacedName{Namespace: w.hub.CreateNamespace(t), Name: "test"}}
}

const manifest = `{"apiVersion": "moco.cybozu.com/v1beta2", "kind": "MySQLCluster", "metadata": {}, "spec": {
	"replicas": 3, "podTemplate": {"spec": {"containers": [{"name": "mysqld", "image": "mysql:1"}]}},
	"volumeClaimTemplates": [{"metadata": {"name": "mysql-data"},
		"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}}]}}`

func (s *clusterEnv) addCluster(t *testing.T, change func(*mocov1beta2.MySQLCluster)) {
	t.Helper()
	cluster := &mocov1beta2.MySQLCluster{}
	if err := json.Unmarshal([]byte(manifest), cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Namespace, cluster.Name = s.name.Namespace, s.name.Name
	if change != nil {
		change(cluster)
	}
	s.create(t, cluster)
}

func (s *clusterEnv) create(t *testing.T, obj client.Object) {
	t.Helper()
	if err := s.hub.Client.Create(t.Context(), obj); err != nil {
		t.Fatalf("create: %v", err)
	}
}

// changeCluster writes the cluster, as a user does.
func (s *clusterEnv) changeCluster(t *testing.T, how func(*mocov1beta2.MySQLCluster)) {
	t.Helper()
	cluster := s.cluster(t)
	before := cluster.DeepCopy()
	how(cluster)
	if err := s.hub.Client.Patch(t.Context(), cluster, client.MergeFrom(before), client.FieldOwner("kubectl-moco")); err != nil {
		t.Fatalf("change the cluster: %v", err)
	}
}

// annotate sets an annotation; an empty value takes it away.
func (s *clusterEnv) annotate(t *testing.T, name, value string) {
	t.Helper()
	s.changeCluster(t, func(c *mocov1beta2.MySQLCluster) {
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[name] = value
		if value == "" {
			delete(c.Annotations, name)
		}
	})
}

func (s *clusterEnv) cluster(t *testing.T) *mocov1beta2.MySQLCluster {
	t.Helper()
	cluster := &mocov1beta2.MySQLCluster{}
	if err := s.hub.Client.Get(t.Context(), s.name, cluster); err != nil {
		t.Fatalf("get the cluster: %v", err)
	}
	return cluster
}

// waitForCondition waits until a condition has a status, and a message with these words.
func (s *clusterEnv) waitForCondition(t *testing.T, kind string, status metav1.ConditionStatus, words ...string) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%s becomes %s with %q", kind, status, words), func() error {
		c := meta.FindStatusCondition(s.cluster(t).Status.Conditions, kind)
		if c == nil {
			return errors.New("there is no such condition")
		}
		if c.Status != status || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(c.Message, w) }) {
			return fmt.Errorf("found %s %s: %s", c.Status, c.Reason, c.Message)
		}
		return nil
	})
}

// waitUntilReconciled waits until the newest spec has reached every object, and nothing is written any more.
func (s *clusterEnv) waitUntilReconciled(t *testing.T) {
	t.Helper()
	s.waitUntilSettled(t, func() error {
		c := s.cluster(t)
		if c.Status.ReconcileInfo.Generation != c.Generation {
			return fmt.Errorf("generation %d is reconciled, not %d", c.Status.ReconcileInfo.Generation, c.Generation)
		}
		return nil
	})
}

// waitUntilSettled waits until something holds and the manager has asked for nothing for a second. On a slow machine one request
// may take longer, and the next one follows it at once.
func (s *clusterEnv) waitUntilSettled(t *testing.T, holds func() error) {
	t.Helper()
	const quiet = time.Second
	began := time.Now()
	testenv.Eventually(t, "it settles", func() error {
		if err := holds(); err != nil {
			return err
		}
		if min(s.requests.quietFor(s.name.Namespace), time.Since(began)) < quiet {
			return errors.New("something was asked for just now")
		}
		return nil
	})
}

func (s *clusterEnv) get(t *testing.T, name string, obj client.Object) error {
	t.Helper()
	return s.hub.Client.Get(t.Context(), types.NamespacedName{Namespace: s.name.Namespace, Name: name}, obj)
}

func (s *clusterEnv) statefulSet(t *testing.T) *appsv1.StatefulSet {
	t.Helper()
	set := &appsv1.StatefulSet{}
	if err := s.get(t, "moco-test", set); err != nil {
		t.Fatalf("get the StatefulSet: %v", err)
	}
	return set
}

func (s *clusterEnv) waitUntilGone(t *testing.T, name string, obj client.Object) {
	t.Helper()
	testenv.Eventually(t, name+" is gone", func() error {
		if err := s.get(t, name, obj); !k8serrors.IsNotFound(err) {
			return fmt.Errorf("found it (%w)", err)
		}
		return nil
	})
}

// reportRevision is what the StatefulSet controller reports: it has seen the template.
func (s *clusterEnv) reportRevision(t *testing.T, revision string) {
	t.Helper()
	set := s.statefulSet(t)
	before := set.DeepCopy()
	set.Status.ObservedGeneration, set.Status.UpdateRevision, set.Status.Replicas = set.Generation, revision, 3
	if err := s.hub.Client.Status().Patch(t.Context(), set, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func podName(i int) string { return fmt.Sprintf("moco-test-%d", i) }

// addPod makes a Pod as the StatefulSet would, and says that it has been ready for a while.
func (s *clusterEnv) addPod(t *testing.T, i int, revision string) {
	t.Helper()
	template := s.statefulSet(t).Spec.Template
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: podName(i), Labels: template.Labels},
		Spec:       *template.Spec.DeepCopy(),
	}
	pod.Labels[appsv1.StatefulSetRevisionLabel] = revision
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "mysql-data"})
	pod.Spec.AutomountServiceAccountToken = new(false)
	s.create(t, pod)
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
	}}
	if err := s.hub.Client.Status().Patch(t.Context(), pod, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// reportHealthy is what clustering reports of a cluster that is well.
func (s *clusterEnv) reportHealthy(t *testing.T, primary int) {
	t.Helper()
	testenv.Eventually(t, "the status is written", func() error {
		c := s.cluster(t)
		before := c.DeepCopy()
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: mocov1beta2.HealthyCondition, Status: metav1.ConditionTrue, Reason: "Healthy"})
		c.Status.CurrentPrimaryIndex = primary
		c.Status.Instances = nil
		for i := range 3 {
			one := mocov1beta2.InstanceStatus{Ordinal: i, Role: mocov1beta2.RoleReplica}
			if i == primary {
				one.Role = mocov1beta2.RolePrimary
			}
			c.Status.Instances = append(c.Status.Instances, one)
		}
		return s.hub.Client.Status().Patch(t.Context(), c, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
}
