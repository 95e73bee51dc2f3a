// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/cluster/machinepool"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestMachinePoolOfAHibernatingClusterWaitsForTheResume changes a pool while its cluster's machines are stopped, and
// kills the manager before the resume.
func TestMachinePoolOfAHibernatingClusterWaitsForTheResume(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	cluster := w.createCluster(t, "pools", time.Hour)
	(&testenv.Environment{Config: cluster.Config}).InstallCRDs(t, filepath.Join("..", "..", "internal", "cluster", "machinepool", "controller", "testdata", "target"))
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": machinepool.MachineSetVersion, "kind": machinepool.MachineSetKind,
		"metadata": map[string]any{"namespace": machinepool.Namespace, "name": cluster.InfraID + "-worker-a"}, "spec": map[string]any{"replicas": int64(1)},
	}}
	for _, object := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: machinepool.Namespace}}, set} {
		testenv.ExpectNoError(t, cluster.Client.Create(t.Context(), object))
	}
	pool := &hivev1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "workers"}}
	pool.Spec.ClusterDeploymentRef.Name, pool.Spec.Name, pool.Spec.Replicas = cluster.Name, "worker", new(int64(2))
	pool.Spec.Platform = runtime.RawExtension{Raw: []byte(`{}`)}
	w.hub.ExpectCreated(t, pool)
	// expectReplicas waits until the cluster has the pool with this number of replicas.
	expectReplicas := func(want int64) {
		t.Helper()
		w.hub.WaitFor(t, "the cluster matches the pool", pool, func() error {
			isSynced := meta.IsStatusConditionTrue(pool.Status.Conditions, hivev1.MachinePoolSyncedCondition)
			return testenv.ErrorIf(!isSynced || int64(pool.Status.Replicas) != want, "found %+v", pool.Status)
		})
		testenv.ExpectNoError(t, cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(set), set))
		found, _, _ := unstructured.NestedInt64(set.Object, "spec", "replicas")
		testenv.ExpectEqual(t, "spec.replicas of the MachineSet", want, found)
	}
	manager := w.startManager(t)
	expectReplicas(2)
	cluster.reachPowerState(t, hivev1.PowerStateHibernating)
	before := cluster.proxy.connections.Load()
	testenv.ExpectPatched(t, w.hub, pool, func(p *hivev1.MachinePool) { p.Spec.Replicas = new(int64(3)) })
	w.hub.WaitForCondition(t, pool, hivev1.MachinePoolSyncedCondition, metav1.ConditionFalse, hivev1.MachinePoolWaitingReason)
	manager.KillAtOnce(t)
	w.startManager(t)
	testenv.ExpectPatched(t, w.hub, pool, func(p *hivev1.MachinePool) { p.Spec.Replicas = new(int64(4)) })
	w.hub.WaitFor(t, "the new manager has observed the pool", pool, func() error {
		c := meta.FindStatusCondition(pool.Status.Conditions, hivev1.MachinePoolSyncedCondition)
		return testenv.ErrorIf(c == nil || c.ObservedGeneration != pool.Generation || c.Reason != hivev1.MachinePoolWaitingReason, "found %+v", c)
	})
	if after := cluster.proxy.connections.Load(); after != before {
		t.Errorf("expected no connection to a cluster that hibernates, found %d", after-before)
	}
	cluster.reachPowerState(t, hivev1.PowerStateRunning)
	expectReplicas(4)
	if !pool.Status.SyncedResume.Equal(cluster.getClusterDeployment(t).Status.Hibernation.ResumeStartedAt) {
		t.Errorf("expected the resume to be followed, found %+v", pool.Status)
	}
}
