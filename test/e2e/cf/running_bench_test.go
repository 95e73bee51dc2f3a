// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	// memoryOfApp is the manager's memory limit for each running app. It applies if the limit of the manager's
	// Deployment is smaller.
	memoryOfApp = 80 << 10
	// restartsAmongMany is the number of restarts of one app while many others run.
	restartsAmongMany = 40
	// lookInterval is the time between two scrapes, each of which lists all apps.
	lookInterval = 2 * time.Second
	// lookPatience is the time limit of the first passes of all apps.
	lookPatience = 30 * time.Minute
)

// benchRunning measures the manager with many running apps. One app of each space is started, and copied in
// etcd: starting them all is minutes of work for an API server, and is measured elsewhere. TORPOR_BENCH_APPS is the
// number of apps.
func benchRunning(t *testing.T, figures map[string]float64) {
	n, err := strconv.Atoi(cmp.Or(os.Getenv("TORPOR_BENCH_APPS"), strconv.Itoa(manyApps)))
	testenv.ExpectNoError(t, err)
	w := newEnvOn(t, testenv.Start(t), nil)
	w.createCopies(t, n)
	report := func(name string, value float64) { figures[fmt.Sprintf("%s_%d_running", name, n)] = value }
	w.managerEnvironment = deployedEnvironment(t, int64(n)*memoryOfApp)
	begin := time.Now()
	w.runManager(t, testenv.TorporPath(t))
	w.awaitPassOfEach(t, n)
	report("first_passes_seconds", time.Since(begin).Seconds())
	report("first_passes_cpu_seconds", w.readMetric(t, w.managerMetrics, "process_cpu_seconds_total"))
	report("first_passes_requests", w.countManagerRequests(t))
	w.restartAmongMany(t, report)
	report("manager_rss_bytes", w.readMetric(t, w.managerMetrics, "process_resident_memory_bytes"))
	report("manager_heap_bytes", w.readMetric(t, w.managerMetrics, "go_memstats_heap_alloc_bytes"))
	report("api_rss_bytes", w.readMetric(t, w.apiMetrics, "process_resident_memory_bytes"))
	t.Logf("the environment of the manager: %s", w.managerEnvironment)
}

// createCopies creates running apps in several spaces. It stops the manager, because a manager that observes the copies
// one after another would report missing objects.
func (w *env) createCopies(t *testing.T, n int) {
	t.Helper()
	spaces := make([]string, manySpaces)
	// The stub of the StatefulSet controller ends with this subtest, so it does not act on the copies.
	t.Run("originals", func(t *testing.T) {
		for i := range spaces {
			spaces[i] = w.createSpace(t)
			w.startOriginal(t, spaces[i], manyAppGUID(i))
		}
		w.reported(t, spaces, korifiv1alpha1.StartedState, manySpaces)
	})
	w.manager.Stop(t)
	store, begin, size := w.readEtcd(t), time.Now(), 0
	for i, space := range spaces {
		objects := objectsOfApp(store, space, manyAppGUID(i))
		for _, o := range objects {
			size += len(o.Value)
		}
		inParallel(t, n/manySpaces-1, func(ctx context.Context, copied int) error {
			return w.AskEtcd(ctx, "txn", copyApp(objects, manyAppGUID(i), manyAppGUID(manySpaces+copied*manySpaces+i)), nil)
		})
	}
	w.awaitServed(t, n)
	t.Logf("%d apps of %d bytes each copied after %s", n, size/manySpaces, time.Since(begin))
}

// awaitServed waits until the API server's own caches have the copies, which it did not write itself.
func (w *env) awaitServed(t *testing.T, n int) {
	t.Helper()
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for kind, each := range map[schema.GroupVersionKind]int{
		korifiv1alpha1.CFAppKind(): 1, eiriniv1.GroupVersion().WithKind("LRP"): 1,
		appsv1.SchemeGroupVersion.WithKind("StatefulSet"): 1, corev1.SchemeGroupVersion.WithKind("Pod"): runningInstances,
	} {
		for begin, found := time.Now(), 0; found < n*each; <-tick.C {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
			testenv.ExpectNoError(t, w.Client.List(t.Context(), list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}))
			if found = len(list.Items); time.Since(begin) > lookPatience {
				t.Fatalf("found %d objects of %s served, want %d", found, kind.Kind, n*each)
			}
		}
	}
}

// awaitPassOfEach waits until the manager has reconciled all apps and is idle.
func (w *env) awaitPassOfEach(t *testing.T, n int) {
	t.Helper()
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	const passes = `controller_runtime_reconcile_total{controller="torpor-restart-apps",`
	for begin := time.Now(); ; <-tick.C {
		done := sum(readMetrics(t, w.managerMetrics, passes))
		waiting := sum(readMetrics(t, w.managerMetrics, "workqueue_depth{")) + sum(readMetrics(t, w.managerMetrics, "controller_runtime_active_workers{"))
		t.Logf("%s: %.0f passes of apps, %.0f objects wait", time.Since(begin), done, waiting)
		if done >= float64(n) && waiting == 0 {
			return
		}
		if time.Since(begin) > lookPatience {
			t.Fatalf("found %.0f passes of %d apps after %s, and %.0f objects that wait", done, n, lookPatience, waiting)
		}
	}
}

// countManagerRequests returns the number of the manager's requests since its start.
func (w *env) countManagerRequests(t *testing.T) float64 {
	t.Helper()
	return sum(readMetrics(t, w.managerMetrics, "rest_client_requests_total{"))
}

// restartAmongMany restarts one app of two instances, whose Pods become ready and end immediately.
func (w *env) restartAmongMany(t *testing.T, report func(string, float64)) {
	t.Helper()
	const guid = "restarted-0000-4000-8000-000000000000"
	space, alice := w.createSpace(t), w.newCaller(t, "alice")
	seen := w.look(t, space)
	w.startOriginal(t, space, guid)
	seen.when(t, guid, settled("0", korifiv1alpha1.StartedState))
	before, took := w.countManagerRequests(t), times{}
	for i := range restartsAmongMany {
		alice.restarted(t, seen, guid, strconv.Itoa(i+1), &took)
	}
	report("restart_requests", (w.countManagerRequests(t)-before)/restartsAmongMany)
	for name, share := range map[string]float64{"p50": p50, "p95": p95} {
		report("restart_"+name+"_seconds", quantile(took.done, share))
		report("restart_settled_"+name+"_seconds", quantile(took.settled, share))
	}
}

func sum(values []float64) (total float64) {
	for _, value := range values {
		total += value
	}
	return total
}

// deployedEnvironment returns the environment of the manager's Deployment, which sets Go's memory limit, without fields
// of the Pod. A larger limit replaces that of the Deployment.
func deployedEnvironment(t *testing.T, larger int64) (all []string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "manager", "deployment.yaml"))
	testenv.ExpectNoError(t, err)
	var d appsv1.Deployment
	testenv.ExpectNoError(t, yaml.UnmarshalStrict(raw, &d))
	container := d.Spec.Template.Spec.Containers[0]
	for _, e := range container.Env {
		switch from := e.ValueFrom; {
		case from == nil:
			all = append(all, e.Name+"="+e.Value)
		case from.ResourceFieldRef != nil && from.ResourceFieldRef.Resource == "limits.memory":
			all = append(all, e.Name+"="+strconv.FormatInt(max(larger, container.Resources.Limits.Memory().Value()), 10))
		case from.FieldRef == nil:
			t.Fatalf("expected values, fields of the Pod and limits.memory in the manager's environment, found %s from elsewhere", e.Name)
		}
	}
	return all
}

// startOriginal starts an app of two instances, and acts as the controller of StatefulSets, the scheduler and
// the nodes.
func (w *env) startOriginal(t *testing.T, space, guid string) {
	t.Helper()
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: space, Name: name} }
	lifecycle, of := korifiv1alpha1.Lifecycle{Type: korifiv1alpha1.DockerLifecycle}, korifiv1alpha1.Reference{Name: "shop"}
	w.watch(t, &appsv1.StatefulSetList{}, space, w.playStatefulSets(t))
	process := &korifiv1alpha1.CFProcess{ObjectMeta: at(revision.ProcessName(guid, korifiv1alpha1.WebProcess))}
	w.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: at("default")}, &korifiv1alpha1.CFPackage{ObjectMeta: at("shop"), Spec: korifiv1alpha1.CFPackageSpec{
		Type: korifiv1alpha1.DockerPackage, AppRef: of, Source: korifiv1alpha1.PackageSource{Registry: korifiv1alpha1.Registry{Image: "shop:1"}},
	}}, &korifiv1alpha1.CFBuild{ObjectMeta: at("shop"), Spec: korifiv1alpha1.CFBuildSpec{PackageRef: of, AppRef: of, Lifecycle: lifecycle}}, &korifiv1alpha1.CFApp{
		ObjectMeta: at(guid), Spec: korifiv1alpha1.CFAppSpec{DisplayName: "app", DesiredState: korifiv1alpha1.StoppedState, Lifecycle: lifecycle},
	})
	testenv.Eventually(t, "the app has its process", func() error {
		return w.Client.Get(t.Context(), types.NamespacedName{Namespace: space, Name: process.Name}, process)
	})
	testenv.ExpectPatched(t, w.Environment, process, func(p *korifiv1alpha1.CFProcess) {
		p.Spec.DesiredInstances, p.Spec.MemoryMB = new(int32(runningInstances)), 64
	})
	testenv.ExpectPatched(t, w.Environment, &korifiv1alpha1.CFApp{ObjectMeta: at(guid)}, func(a *korifiv1alpha1.CFApp) {
		a.Spec.DesiredState, a.Spec.CurrentDropletRef = korifiv1alpha1.StartedState, &of
	})
}

// readEtcd returns all objects in etcd.
func (w *env) readEtcd(t *testing.T) []testenv.EtcdObject {
	t.Helper()
	all, err := w.ListEtcd(t.Context(), false)
	testenv.ExpectNoError(t, err)
	return all
}

// objectsOfApp returns an app and the objects that were created for it, except Events.
func objectsOfApp(all []testenv.EtcdObject, space, guid string) (found []testenv.EtcdObject) {
	process := revision.ProcessName(guid, korifiv1alpha1.WebProcess)
	for _, o := range all {
		key := string(o.Key)
		if strings.Contains(key, "/"+space+"/") && !strings.Contains(key, "/events/") && (strings.Contains(key, guid) || strings.Contains(key, process)) {
			found = append(found, o)
		}
	}
	return found
}

// copyApp returns a transaction that creates a copy of the app with another GUID; all copied objects have new GUIDs
// and UIDs. In protobuf, a text can be replaced only by one of the same length.
func copyApp(objects []testenv.EtcdObject, guid, as string) any {
	uids := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	process := revision.ProcessName(guid, korifiv1alpha1.WebProcess)
	replace := func(text []byte) []byte {
		return uids.ReplaceAllFunc(text, func(found []byte) []byte {
			switch string(found) {
			case guid:
				return []byte(as)
			case process:
				return []byte(revision.ProcessName(as, korifiv1alpha1.WebProcess))
			default:
				return []byte(uuid.NewSHA1(uuid.Nil, append([]byte(as), found...)).String())
			}
		})
	}
	type put struct {
		RequestPut testenv.EtcdObject `json:"requestPut"`
	}
	var puts []put
	for _, o := range objects {
		puts = append(puts, put{testenv.EtcdObject{Key: replace(o.Key), Value: replace(o.Value)}})
	}
	return map[string]any{"success": puts}
}
