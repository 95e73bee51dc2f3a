// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const kubeconfigSecret = "admin-kubeconfig"

// env is a hub, which is also the target of its ClusterDeployments, and a manager.
type env struct {
	*testenv.Environment
	log     testenv.LogBuffer
	metrics *Metrics
}

var (
	suite  testenv.Suite
	shared = testenv.NewShared(&suite, func(t testing.TB) *env {
		e := &env{Environment: testenv.Start(t), metrics: NewMetrics()}
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
	return testenv.StartManager(t, e.Environment, Controller{Clock: clock.RealClock{}, Metrics: e.metrics}.SetupWithManager, func(o *manager.Options) { o.Logger = e.log.Logger(9) })
}

// testCluster is a hub's cluster behind a separate proxy.
type testCluster struct {
	*env
	cd *hivev1.ClusterDeployment
	// namespace is the namespace of the cluster's objects.
	namespace string
	proxy     *testenv.TargetProxy
}

// newCluster creates a reachable cluster.
func (e *env) newCluster(t *testing.T, namespace, name string, labels map[string]string) *testCluster {
	t.Helper()
	proxy := testenv.StartTargetProxy(t, e.Environment)
	return e.newClusterBehind(t, proxy, namespace, name, labels)
}

func (e *env) newClusterBehind(t *testing.T, proxy *testenv.TargetProxy, namespace, name string, labels map[string]string) *testCluster {
	t.Helper()
	c := &testCluster{env: e, namespace: e.CreateNamespace(t), proxy: proxy}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kubeconfigSecret + "-" + name}, Data: map[string][]byte{"kubeconfig": proxy.Kubeconfig}}
	c.cd = testenv.BuildClusterDeployment(types.NamespacedName{Namespace: namespace, Name: name}, "none", secret.Name)
	maps.Copy(c.cd.Labels, labels)
	e.ExpectCreated(t, secret, c.cd)
	c.wake(t, nil)
	return c
}

// wake and sleep set a cluster's status as the hibernation controller does.
func (c *testCluster) wake(t *testing.T, resume *metav1.Time) {
	t.Helper()
	c.WakeCluster(t, c.cd, resume)
}

func (c *testCluster) sleep(t *testing.T) {
	t.Helper()
	c.PutClusterToSleep(t, c.cd)
}

func (c *testCluster) sync() *hiveinternalv1alpha1.ClusterSync {
	return &hiveinternalv1alpha1.ClusterSync{ObjectMeta: metav1.ObjectMeta{Namespace: c.cd.Namespace, Name: c.cd.Name}}
}

// waitForSynced waits until the given sets are applied to the cluster at their current generations.
func (c *testCluster) waitForSynced(t *testing.T, sets ...client.Object) *hiveinternalv1alpha1.ClusterSync {
	t.Helper()
	cs := c.sync()
	c.WaitFor(t, "the sets are in the cluster", cs, func() error {
		if !meta.IsStatusConditionTrue(cs.Status.Conditions, hiveinternalv1alpha1.ClusterSyncedCondition) {
			return fmt.Errorf("found %+v", cs.Status)
		}
		for _, set := range sets {
			isApplied := false
			for _, status := range append(cs.Status.SyncSets, cs.Status.SelectorSyncSets...) {
				isApplied = isApplied || status.Name == set.GetName() && status.ObservedGeneration == set.GetGeneration()
			}
			if !isApplied {
				return fmt.Errorf("expected the generation %d of %s, found %+v", set.GetGeneration(), set.GetName(), cs.Status)
			}
		}
		return nil
	})
	return cs
}

// configMapData returns the data of a ConfigMap in the cluster, or nil if it does not exist.
func (c *testCluster) configMapData(t *testing.T, name string) map[string]string {
	t.Helper()
	var found corev1.ConfigMap
	if err := c.Client.Get(t.Context(), types.NamespacedName{Namespace: c.namespace, Name: name}, &found); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return found.Data
}

// configMap returns a manifest for a set.
func (c *testCluster) configMap(name, value string) runtime.RawExtension {
	return encode(&corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}, Data: map[string]string{"key": value},
	})
}

func encode(o any) runtime.RawExtension {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return runtime.RawExtension{Raw: text}
}

// newSyncSet creates a SyncSet of the cluster.
func (c *testCluster) newSyncSet(t *testing.T, name string, spec hivev1.SyncSetCommonSpec) *hivev1.SyncSet {
	t.Helper()
	set := &hivev1.SyncSet{ObjectMeta: metav1.ObjectMeta{Namespace: c.cd.Namespace, Name: name}}
	set.Spec.SyncSetCommonSpec, set.Spec.ClusterDeploymentRefs = spec, []hivev1.LocalObjectReference{{Name: c.cd.Name}}
	c.ExpectCreated(t, set)
	return set
}
