// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/machinepool"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// env is a hub with a manager, and the API server of an OpenShift cluster.
type env struct {
	*testenv.Environment
	target  *testenv.Environment
	clock   clock.PassiveClock
	log     testenv.LogBuffer
	metrics *Metrics
}

var (
	suite  testenv.Suite
	shared = testenv.NewShared(&suite, func(t testing.TB) *env {
		e := &env{Environment: testenv.Start(t), target: testenv.StartAPIServer(t), clock: clock.RealClock{}, metrics: NewMetrics()}
		e.target.InstallCRDs(t, filepath.Join("testdata", "target"))
		e.target.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: machinepool.Namespace}})
		e.startManager(t)
		return e
	})
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(suite.Run(m))
}

func (e *env) startManager(t testing.TB) (stop func()) {
	t.Helper()
	return testenv.StartManager(t, e.Environment, Controller{Clock: e.clock, Metrics: e.metrics}.SetupWithManager, func(o *manager.Options) { o.Logger = e.log.Logger(9) })
}

// withManager returns an env with the same cluster, another hub and another manager.
func (e *env) withManager(t *testing.T, now clock.PassiveClock) (own *env, stop func()) {
	t.Helper()
	own = &env{Environment: testenv.Start(t), target: e.target, clock: now, metrics: NewMetrics()}
	return own, own.startManager(t)
}

// testCluster is a hub's cluster behind a separate proxy. Clusters share an API server, but each has its own infraID
// and pool.
type testCluster struct {
	*env
	cd    *hivev1.ClusterDeployment
	proxy *testenv.TargetProxy
	// pool is the name of the cluster's pool.
	pool string
}

// newCluster creates a reachable cluster, with a MachineSet of one machine in each of the given zones.
func (e *env) newCluster(t *testing.T, zones ...string) *testCluster {
	t.Helper()
	return e.newClusterOf(t, e.target, zones...)
}

func (e *env) newClusterOf(t *testing.T, target *testenv.Environment, zones ...string) *testCluster {
	t.Helper()
	namespace := e.CreateNamespace(t)
	// Namespaces on several hubs have different names, which distinguishes the objects on the shared API server.
	c := &testCluster{env: e, proxy: testenv.StartTargetProxy(t, target), pool: "pool-" + strings.TrimPrefix(namespace, "test-")}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "admin"}, Data: map[string][]byte{"kubeconfig": c.proxy.Kubeconfig}}
	c.cd = testenv.BuildClusterDeployment(types.NamespacedName{Namespace: namespace, Name: "c" + namespace}, "none", secret.Name)
	e.ExpectCreated(t, secret, c.cd)
	for _, zone := range zones {
		e.target.ExpectCreated(t, c.machineSet(zone))
	}
	e.WakeCluster(t, c.cd, nil)
	return c
}

// machineSet returns a MachineSet like those of the installer, with a label and no taints.
func (c *testCluster) machineSet(zone string) *unstructured.Unstructured {
	u := newObject(machinepool.MachineSetVersion, machinepool.MachineSetKind, c.nameOf(zone))
	u.Object["spec"] = map[string]any{
		"replicas": int64(1),
		"template": map[string]any{"spec": map[string]any{
			"metadata":     map[string]any{"labels": map[string]any{"theirs": "stays"}},
			"providerSpec": map[string]any{"value": map[string]any{"placement": map[string]any{"availabilityZone": zone}}},
		}},
	}
	return u
}

func (c *testCluster) nameOf(zone string) string {
	return c.cd.Spec.ClusterMetadata.InfraID + "-" + c.pool + "-" + zone
}

func newObject(version, kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(version)
	u.SetKind(kind)
	u.SetNamespace(machinepool.Namespace)
	u.SetName(name)
	return u
}

// read returns the replicas, node labels and taints of a MachineSet, or "" if it does not exist.
func (c *testCluster) read(t *testing.T, zone string) string {
	t.Helper()
	u := newObject(machinepool.MachineSetVersion, machinepool.MachineSetKind, c.nameOf(zone))
	if err := c.target.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	} else if err != nil {
		return ""
	}
	replicas, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	parts := []string{fmt.Sprint(replicas)}
	labels, _, _ := unstructured.NestedStringMap(u.Object, "spec", "template", "spec", "metadata", "labels")
	for key, value := range labels {
		parts = append(parts, key+"="+value)
	}
	slices.Sort(parts[1:])
	taints, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "taints")
	for _, taint := range taints {
		if fields, ok := taint.(map[string]any); ok {
			parts = append(parts, fmt.Sprintf("%s=%s:%s", fields["key"], fields["value"], fields["effect"]))
		}
	}
	return strings.Join(parts, " ")
}

// readAll calls read for several zones.
func (c *testCluster) readAll(t *testing.T, zones ...string) []string {
	t.Helper()
	var all []string
	for _, zone := range zones {
		all = append(all, c.read(t, zone))
	}
	return all
}

// edit simulates a manual change to a MachineSet.
func (c *testCluster) edit(t *testing.T, zone, patch string) {
	t.Helper()
	u := newObject(machinepool.MachineSetVersion, machinepool.MachineSetKind, c.nameOf(zone))
	testenv.ExpectNoError(t, c.target.Client.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("somebody")))
}

// autoscalers returns the cluster's MachineAutoscalers as NAME: MIN-MAX.
func (c *testCluster) autoscalers(t *testing.T) []string {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(machinepool.AutoscalerVersion)
	list.SetKind(machinepool.AutoscalerKind)
	testenv.ExpectNoError(t, c.target.Client.List(t.Context(), list, client.InNamespace(machinepool.Namespace)))
	var all []string
	for _, u := range list.Items {
		target, _, _ := unstructured.NestedString(u.Object, "spec", "scaleTargetRef", "name")
		if zone, isOurs := strings.CutPrefix(target, c.nameOf("")); isOurs {
			least, _, _ := unstructured.NestedInt64(u.Object, "spec", "minReplicas")
			most, _, _ := unstructured.NestedInt64(u.Object, "spec", "maxReplicas")
			all = append(all, fmt.Sprintf("%s: %d-%d", zone, least, most))
		}
	}
	slices.Sort(all)
	return all
}

// newPool creates a pool of the cluster.
func (c *testCluster) newPool(t *testing.T, name string, change func(*hivev1.MachinePoolSpec)) *hivev1.MachinePool {
	t.Helper()
	pool := c.buildPool(name)
	change(&pool.Spec)
	c.ExpectCreated(t, pool)
	return pool
}

func (c *testCluster) buildPool(name string) *hivev1.MachinePool {
	pool := &hivev1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: c.cd.Namespace, Name: name}}
	pool.Spec.ClusterDeploymentRef.Name, pool.Spec.Name = c.cd.Name, c.pool
	pool.Spec.Platform = runtime.RawExtension{Raw: []byte(`{"aws":{"type":"m6i.large"}}`)}
	return pool
}

// waitUntilSynced waits until the pool's generation is applied to the cluster.
func (c *testCluster) waitUntilSynced(t *testing.T, pool *hivev1.MachinePool) {
	t.Helper()
	generation := pool.Generation
	c.WaitFor(t, "the cluster matches the pool", pool, func() error {
		isSynced := meta.IsStatusConditionTrue(pool.Status.Conditions, hivev1.MachinePoolSyncedCondition)
		return testenv.ErrorIf(!isSynced || pool.Status.ObservedGeneration != generation, "found %+v", pool.Status)
	})
}

func (c *testCluster) changePool(t *testing.T, pool *hivev1.MachinePool, change func(*hivev1.MachinePoolSpec)) {
	t.Helper()
	testenv.ExpectPatched(t, c.Environment, pool, func(p *hivev1.MachinePool) { change(&p.Spec) })
}
