// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// benchRunning measures the manager with many running apps. One app of each space is started, and copied in etcd,
// because starting all of them would take minutes, and is measured elsewhere.
func benchRunning(t *testing.T, figures map[string]float64) {
	w := newEnvOn(t, testenv.Start(t), nil)
	spaces := make([]string, manySpaces)
	// The stub of the StatefulSet controller ends with this part, and does not act on the copies.
	t.Run("originals", func(t *testing.T) {
		for i := range spaces {
			spaces[i] = w.createSpace(t)
			w.startOriginal(t, spaces[i], manyAppGUID(i))
		}
		w.reported(t, spaces, korifiv1alpha1.StartedState, manySpaces)
	})
	// A manager that receives the copies one after another would report missing objects.
	w.manager.Stop(t)
	store, begin := w.readEtcd(t), time.Now()
	for i, space := range spaces {
		objects := objectsOfApp(store, space, manyAppGUID(i))
		inParallel(t, manyApps/manySpaces-1, func(ctx context.Context, n int) error {
			return w.askEtcd(ctx, "txn", copyApp(objects, manyAppGUID(i), manyAppGUID(manySpaces+n*manySpaces+i)), nil)
		})
	}
	t.Logf("copied after %s", time.Since(begin))
	w.managerEnvironment = deployedEnvironment(t)
	w.runManager(t, testenv.TorporPath(t))
	testenv.Eventually(t, "the manager has reconciled all apps", func() error {
		if seen := len(readMetrics(t, w.managerMetrics, "torpor_app_revision{")); seen != manyApps {
			return fmt.Errorf("found %d apps", seen)
		}
		return testenv.ErrorIf(slices.Max(readMetrics(t, w.managerMetrics, "workqueue_depth{")) > 0, "it is still busy")
	})
	figures["manager_rss_bytes_5000_running"] = w.readMetric(t, w.managerMetrics, "process_resident_memory_bytes")
	t.Logf("%d apps run after %s; the manager uses %.0f MiB of memory, with the environment %s", manyApps, time.Since(begin),
		w.readMetric(t, w.managerMetrics, "go_memstats_heap_alloc_bytes")/(1<<20), w.managerEnvironment)
}

// deployedEnvironment returns the environment of the manager's container in its Deployment, which sets Go's
// memory limit.
func deployedEnvironment(t *testing.T) (all []string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "manager", "deployment.yaml"))
	testenv.ExpectNoError(t, err)
	var d appsv1.Deployment
	testenv.ExpectNoError(t, yaml.UnmarshalStrict(raw, &d))
	container := d.Spec.Template.Spec.Containers[0]
	for _, e := range container.Env {
		value := e.Value
		if e.ValueFrom != nil {
			if e.ValueFrom.ResourceFieldRef == nil || e.ValueFrom.ResourceFieldRef.Resource != "limits.memory" {
				t.Fatalf("expected values and limits.memory in the manager's environment, found %s from elsewhere", e.Name)
			}
			value = strconv.FormatInt(container.Resources.Limits.Memory().Value(), 10)
		}
		all = append(all, e.Name+"="+value)
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

// etcdObject is an object as the API server stores it: protobuf for built-in kinds, in which a text can be replaced
// by one of the same length.
type etcdObject struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// readEtcd returns all objects in etcd.
func (w *env) readEtcd(t *testing.T) []etcdObject {
	t.Helper()
	var answer struct {
		KVs []etcdObject `json:"kvs"`
	}
	testenv.ExpectNoError(t, w.askEtcd(t.Context(), "range", map[string][]byte{"key": []byte("/registry/"), "range_end": []byte("/registry0")}, &answer))
	return answer.KVs
}

// askEtcd sends a request to etcd's HTTP gateway.
func (w *env) askEtcd(ctx context.Context, what string, body, into any) error {
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(w.KubeconfigPath(w.tb)), "ports.json"))
	if err != nil {
		return err
	}
	var ports struct {
		EtcdClient int `json:"etcdClient"`
	}
	if err = json.Unmarshal(raw, &ports); err == nil {
		raw, err = json.Marshal(body)
	}
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/v3/kv/%s", ports.EtcdClient, what), bytes.NewReader(raw))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: found %s", what, answer.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// objectsOfApp returns an app and the objects that were created for it.
func objectsOfApp(all []etcdObject, space, guid string) (found []etcdObject) {
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
// and UIDs.
func copyApp(objects []etcdObject, guid, as string) any {
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
		RequestPut etcdObject `json:"requestPut"`
	}
	var puts []put
	for _, o := range objects {
		puts = append(puts, put{etcdObject{replace(o.Key), replace(o.Value)}})
	}
	return map[string]any{"success": puts}
}
