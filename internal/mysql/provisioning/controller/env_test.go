// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	clustering "github.com/torpor-dev/torpor/internal/mysql/clustering/controller"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// parallelTests is how many tests run at once: they wait for the API server more than they compute.
const parallelTests = "8"

var (
	suite  testenv.Suite
	shared = testenv.NewShared(&suite, newTestEnv)
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", parallelTests); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	log.SetLogger(logr.Discard())
	os.Exit(suite.Run(m))
}

// testEnv is an API server with a manager. The tests stand in for the StatefulSet controller and the kubelet.
type testEnv struct {
	*testenv.Environment
	requests *requestRecorder
}

func newTestEnv(t testing.TB) *testEnv {
	t.Helper()
	e := &testEnv{Environment: testenv.Start(t), requests: &requestRecorder{underWay: map[string]int{}, lastEnded: map[string]time.Time{}}}
	startManager(t, e.WithTransport(func(next http.RoundTripper) http.RoundTripper {
		e.requests.next = next
		return e.requests
	}), Controller{Clock: clock.RealClock{}}.SetupWithManager)
	return e
}

// startManager leaves Secrets uncached, as the real manager does.
func startManager(t testing.TB, env *testenv.Environment, setup func(manager.Manager) error) {
	t.Helper()
	testenv.StartManager(t, env, setup, func(o *manager.Options) {
		o.Client = client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}}
	})
}

// startClustering runs the other controller of the kind as well.
func (e *testEnv) startClustering(t *testing.T) {
	t.Helper()
	startManager(t, e.Environment, clustering.Controller{
		HostOf: clustering.ServiceHost, Clock: clock.RealClock{}, Metrics: clustering.NewMetrics(),
	}.SetupWithManager)
}

// requestRecorder records which requests of the manager write, without events, and when it last asked for anything.
type requestRecorder struct {
	mu     sync.Mutex
	next   http.RoundTripper
	writes []string
	// underWay counts requests, and lastEnded is when the last one ended, by namespace.
	underWay  map[string]int
	lastEnded map[string]time.Time
}

// RoundTrip implements http.RoundTripper.
func (w *requestRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	_, rest, _ := strings.Cut(r.URL.Path, "/namespaces/")
	namespace, _, _ := strings.Cut(rest, "/")
	w.mu.Lock()
	w.underWay[namespace]++
	if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") {
		w.writes = append(w.writes, r.Method+" "+r.URL.Path)
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.underWay[namespace]--
		w.lastEnded[namespace] = time.Now()
	}()
	return w.next.RoundTrip(r)
}

// quietFor returns for how long nothing was asked for in a namespace; 0 while something is.
func (w *requestRecorder) quietFor(namespace string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.underWay[namespace] > 0 {
		return 0
	}
	return time.Since(w.lastEnded[namespace])
}

func (w *requestRecorder) writesIn(namespace string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.writes), func(write string) bool { return !strings.Contains(write, "/namespaces/"+namespace+"/") })
}

type clusterEnv struct {
	*testEnv
	name types.NamespacedName
}

func newClusterEnv(t *testing.T, e *testEnv) *clusterEnv {
	t.Helper()
	return &clusterEnv{testEnv: e, name: types.NamespacedName{Namespace: e.CreateNamespace(t), Name: "test"}}
}

func (e *clusterEnv) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: e.name.Namespace, Name: name}
}

func (e *clusterEnv) addCluster(t *testing.T, change func(*mocov1beta2.MySQLCluster)) {
	t.Helper()
	cluster := testenv.BuildMySQLCluster(t, e.name, 3)
	if change != nil {
		change(cluster)
	}
	e.ExpectCreated(t, cluster)
}

func (e *clusterEnv) changeCluster(t *testing.T, change func(*mocov1beta2.MySQLCluster)) {
	t.Helper()
	testenv.ExpectPatched(t, e.Environment, e.cluster(t), change, client.FieldOwner("kubectl-moco"))
}

// annotate sets an annotation; an empty value takes it away.
func (e *clusterEnv) annotate(t *testing.T, name, value string) {
	t.Helper()
	e.changeCluster(t, func(c *mocov1beta2.MySQLCluster) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, name, value)
		if value == "" {
			delete(c.Annotations, name)
		}
	})
}

func (e *clusterEnv) cluster(t *testing.T) *mocov1beta2.MySQLCluster {
	t.Helper()
	cluster := &mocov1beta2.MySQLCluster{}
	if err := e.Client.Get(t.Context(), e.name, cluster); err != nil {
		t.Fatalf("get the cluster: %v", err)
	}
	return cluster
}

// waitForCondition waits until a condition has a status, and a message with these words.
func (e *clusterEnv) waitForCondition(t *testing.T, kind string, status metav1.ConditionStatus, words ...string) {
	t.Helper()
	cluster := e.cluster(t)
	e.WaitFor(t, fmt.Sprintf("%s becomes %s with %q", kind, status, words), cluster, func() error {
		c := meta.FindStatusCondition(cluster.Status.Conditions, kind)
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
func (e *clusterEnv) waitUntilReconciled(t *testing.T) {
	t.Helper()
	e.waitUntilSettled(t, func() error {
		c := e.cluster(t)
		if c.Status.ReconcileInfo.Generation != c.Generation {
			return fmt.Errorf("generation %d is reconciled, not %d", c.Status.ReconcileInfo.Generation, c.Generation)
		}
		return nil
	})
}

// waitUntilSettled waits until something holds and the manager has asked for nothing for a second. On a slow machine one request
// may take longer, and the next one follows it at once.
func (e *clusterEnv) waitUntilSettled(t *testing.T, holds func() error) {
	t.Helper()
	const quiet = time.Second
	began := time.Now()
	testenv.Eventually(t, "it settles", func() error {
		if err := holds(); err != nil {
			return err
		}
		if min(e.requests.quietFor(e.name.Namespace), time.Since(began)) < quiet {
			return errors.New("something was asked for just now")
		}
		return nil
	})
}

func (e *clusterEnv) get(t *testing.T, name string, obj client.Object) error {
	t.Helper()
	return e.Client.Get(t.Context(), types.NamespacedName{Namespace: e.name.Namespace, Name: name}, obj)
}

func (e *clusterEnv) statefulSet(t *testing.T) *appsv1.StatefulSet {
	t.Helper()
	set := &appsv1.StatefulSet{}
	if err := e.get(t, "moco-test", set); err != nil {
		t.Fatalf("get the StatefulSet: %v", err)
	}
	return set
}

func (e *clusterEnv) waitUntilGone(t *testing.T, name string, obj client.Object) {
	t.Helper()
	obj.SetNamespace(e.name.Namespace)
	obj.SetName(name)
	e.WaitForDeletion(t, obj)
}

func (e *clusterEnv) deletePod(t *testing.T, i int) {
	t.Helper()
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: e.meta(podName(i))}, client.GracePeriodSeconds(0)))
}

// reportRevision is what the StatefulSet controller reports: it has seen the template.
func (e *clusterEnv) reportRevision(t *testing.T, revision string) {
	t.Helper()
	set := e.statefulSet(t)
	before := set.DeepCopy()
	set.Status.ObservedGeneration, set.Status.UpdateRevision, set.Status.Replicas = set.Generation, revision, 3
	testenv.ExpectNoError(t, e.Client.Status().Patch(t.Context(), set, client.MergeFrom(before)))
}

func podName(i int) string { return fmt.Sprintf("moco-test-%d", i) }

// addPod makes a Pod as the StatefulSet would, and says that it has been ready for a while.
func (e *clusterEnv) addPod(t *testing.T, i int, revision string) {
	t.Helper()
	template := e.statefulSet(t).Spec.Template
	pod := &corev1.Pod{
		ObjectMeta: e.meta(podName(i)),
		Spec:       *template.Spec.DeepCopy(),
	}
	pod.Labels = template.Labels
	pod.Labels[appsv1.StatefulSetRevisionLabel] = revision
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "mysql-data"})
	pod.Spec.AutomountServiceAccountToken = new(false)
	e.ExpectCreated(t, pod)
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
	}}
	testenv.ExpectNoError(t, e.Client.Status().Patch(t.Context(), pod, client.MergeFrom(before)))
}

func (e *clusterEnv) reportHealthy(t *testing.T, primary int) {
	t.Helper()
	testenv.Eventually(t, "the status is written", func() error {
		c := e.cluster(t)
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
		return e.Client.Status().Patch(t.Context(), c, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
}
