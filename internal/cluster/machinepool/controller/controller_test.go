// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation/targetcluster"
	"github.com/torpor-dev/torpor/internal/cluster/machinepool"
	"github.com/torpor-dev/torpor/internal/cluster/targetcalls"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func setReplicas(n int64) func(*hivev1.MachinePoolSpec) {
	return func(s *hivev1.MachinePoolSpec) { s.Replicas, s.Autoscaling = new(n), nil }
}

func setAutoscaling(least, most int32) func(*hivev1.MachinePoolSpec) {
	return func(s *hivev1.MachinePoolSpec) {
		s.Replicas, s.Autoscaling = nil, &hivev1.MachinePoolAutoscaling{MinReplicas: least, MaxReplicas: most}
	}
}

func TestMachineSetsMatchThePool(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, "a", "b")
	other := e.newCluster(t, "a")
	// An upstream manifest has fields that Torpor does not define.
	manifest := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": hivev1.GroupVersion().String(), "kind": "MachinePool", "metadata": map[string]any{"namespace": c.cd.Namespace, "name": "pool"},
		"spec": map[string]any{
			"clusterDeploymentRef": map[string]any{"name": c.cd.Name}, "name": c.pool, "replicas": int64(5),
			"labels": map[string]any{"tier": "gold", "temporary": "yes"}, "taints": []any{map[string]any{"key": "gpu", "value": "yes", "effect": "NoSchedule"}},
			"machineLabels": map[string]any{"kept": "yes"}, "platform": map[string]any{"aws": map[string]any{"type": "m6i.large", "rootVolume": map[string]any{"size": int64(120)}}},
		},
	}}
	e.ExpectCreated(t, manifest)
	pool := c.buildPool("pool")
	pool.Generation = 1
	c.waitUntilSynced(t, pool)
	testenv.ExpectEqual(t, "the MachineSets", []string{"3 temporary=yes theirs=stays tier=gold gpu=yes:NoSchedule", "2 temporary=yes theirs=stays tier=gold gpu=yes:NoSchedule"}, c.readAll(t, "a", "b"))
	testenv.ExpectEqual(t, "the MachineSet of another cluster", "1 theirs=stays", other.read(t, "a"))
	testenv.ExpectEqual(t, "the status", []hivev1.MachineSetStatus{
		{Name: c.nameOf("a"), Replicas: 3, MinReplicas: 3, MaxReplicas: 3}, {Name: c.nameOf("b"), Replicas: 2, MinReplicas: 2, MaxReplicas: 2},
	}, pool.Status.MachineSets)
	if pool.Status.Replicas != 5 || !meta.IsStatusConditionFalse(pool.Status.Conditions, hivev1.UnsupportedConfigurationCondition) || !meta.IsStatusConditionFalse(pool.Status.Conditions, hivev1.NotEnoughReplicasCondition) {
		t.Errorf("expected 5 replicas and no error, found %+v", pool.Status)
	}
	if n := c.proxy.Accepted.Load(); n != 1 {
		t.Errorf("expected one connection, found %d", n)
	}
	e.WaitForEvent(t, c.cd.Namespace, machinepool.EventMachineSetsChanged, c.nameOf("a")+": replicas from 1 to 3, labels, taints")
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), client.ObjectKeyFromObject(manifest), manifest))
	if size, _, _ := unstructured.NestedInt64(manifest.Object, "spec", "platform", "aws", "rootVolume", "size"); size != 120 {
		t.Errorf("expected upstream's fields to stay, found %v", manifest.Object["spec"])
	}

	// Labels and taints removed from the pool are removed from the MachineSets. Those of other owners stay.
	c.changePool(t, pool, func(s *hivev1.MachinePoolSpec) {
		s.Labels, s.Taints = map[string]string{"tier": "tin"}, nil
		s.Replicas = new(int64(0))
	})
	c.waitUntilSynced(t, pool)
	testenv.ExpectEqual(t, "the MachineSets", []string{"0 theirs=stays tier=tin", "0 theirs=stays tier=tin"}, c.readAll(t, "a", "b"))
	if kept, _, _ := unstructured.NestedString(manifest.Object, "spec", "machineLabels", "kept"); kept != "yes" {
		t.Errorf("expected fields that Torpor does not know to stay, found %v", manifest.Object["spec"])
	}
}

func TestThePoolReachesTheServerThatOverridesTheKubeconfigs(t *testing.T) {
	t.Parallel()
	c := shared.Get(t).newCluster(t, "a")
	c.OverrideServer(t, c.cd, c.proxy)
	c.waitUntilSynced(t, c.newPool(t, "pool", setReplicas(3)))
	testenv.ExpectEqual(t, "the MachineSet", "3 theirs=stays", c.read(t, "a"))
}

func TestAutoscalingComesAndGoes(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, "a", "b")
	pool := c.newPool(t, "pool", setAutoscaling(3, 7))
	c.waitUntilSynced(t, pool)
	testenv.ExpectEqual(t, "MachineAutoscalers", []string{"a: 2-4", "b: 1-3"}, c.autoscalers(t))
	testenv.ExpectEqual(t, "MachineSets", []string{"2 theirs=stays", "1 theirs=stays"}, c.readAll(t, "a", "b"))
	// Replicas that the autoscaler has set within its limits are kept.
	c.edit(t, "b", `{"spec":{"replicas":3}}`)
	c.edit(t, "a", `{"spec":{"replicas":4}}`)
	c.changePool(t, pool, setAutoscaling(3, 6))
	c.waitUntilSynced(t, pool)
	testenv.ExpectEqual(t, "MachineAutoscalers", []string{"a: 2-3", "b: 1-3"}, c.autoscalers(t))
	testenv.ExpectEqual(t, "MachineSets", []string{"3 theirs=stays", "3 theirs=stays"}, c.readAll(t, "a", "b"))
	c.changePool(t, pool, setReplicas(2))
	c.waitUntilSynced(t, pool)
	testenv.ExpectEqual(t, "MachineAutoscalers", []string(nil), c.autoscalers(t))
	testenv.ExpectEqual(t, "MachineSets", []string{"1 theirs=stays", "1 theirs=stays"}, c.readAll(t, "a", "b"))
}

// TestEditsInTheClusterAreRevertedAtTheNextPoll uses a fake clock.
func TestEditsInTheClusterAreRevertedAtTheNextPoll(t *testing.T) {
	t.Parallel()
	now := clocktesting.NewFakePassiveClock(time.Now())
	e, _ := shared.Get(t).withManager(t, now)
	c := e.newCluster(t, "a")
	pool := c.newPool(t, "pool", func(s *hivev1.MachinePoolSpec) {
		setReplicas(2)(s)
		s.Labels, s.Taints = map[string]string{"tier": "gold"}, []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	})
	c.waitUntilSynced(t, pool)
	want := c.read(t, "a")
	c.edit(t, "a", `{"spec":{"replicas":7,"template":{"spec":{"metadata":{"labels":{"tier":"lead","more":"yes"}},"taints":null}}}}`)
	c.edit(t, "a", `{"metadata":{"labels":null}}`)
	before := c.read(t, "a")
	// The machines never become ready here, so the next read is after five minutes.
	lookAt := func(after time.Duration, annotation string) {
		now.SetTime(now.Now().Add(after))
		e.ExpectAnnotated(t, pool, map[string]string{"example.com/look": annotation})
	}
	lookAt(4*time.Minute, "early")
	lookAt(2*time.Minute, "in time")
	e.WaitFor(t, "another read at the time of the second look", pool, func() error {
		isRead := pool.Status.LastSyncTime != nil && pool.Status.LastSyncTime.Unix() == now.Now().Unix()
		return testenv.ErrorIf(!isRead, "found %+v", pool.Status)
	})
	if found := c.read(t, "a"); before == want || found != strings.Replace(want, " theirs", " more=yes theirs", 1) {
		t.Errorf("expected %q with the label that the pool does not name, found %q", want, found)
	}
	if n := c.proxy.Accepted.Load(); n != 2 {
		t.Errorf("expected two connections, found %d", n)
	}
}

func TestHibernatingClusterIsUpdatedOnceAfterTheResume(t *testing.T) {
	t.Parallel()
	e, stop := shared.Get(t).withManager(t, clock.RealClock{})
	c, witness := e.newCluster(t, "a", "b"), e.newCluster(t, "a")
	pool, unchanged := c.newPool(t, "pool", setReplicas(2)), witness.newPool(t, "witness", setReplicas(1))
	c.waitUntilSynced(t, pool)
	witness.waitUntilSynced(t, unchanged)
	replicas := int64(1)
	// restart restarts the manager and changes a pool of another cluster. Once this pool is synced, the manager has
	// evaluated all pools.
	restart := func() {
		t.Helper()
		stop()
		stop = e.startManager(t)
		replicas++
		witness.changePool(t, unchanged, setReplicas(replicas))
		witness.waitUntilSynced(t, unchanged)
	}
	e.PutClusterToSleep(t, c.cd)
	c.proxy.Accepted.Store(0)
	c.changePool(t, pool, setReplicas(4))
	e.WaitForCondition(t, pool, hivev1.MachinePoolSyncedCondition, metav1.ConditionFalse, hivev1.MachinePoolWaitingReason)
	restart()
	e.WaitForCondition(t, pool, hivev1.MachinePoolSyncedCondition, metav1.ConditionFalse, hivev1.MachinePoolWaitingReason)
	if n := c.proxy.Accepted.Load(); n != 0 {
		t.Fatalf("expected no connection to a hibernating cluster, found %d", n)
	}
	resume := new(metav1.NewTime(time.Now()).Rfc3339Copy())
	e.WakeCluster(t, c.cd, resume)
	c.waitUntilSynced(t, pool)
	testenv.ExpectEqual(t, "the MachineSets", []string{"2 theirs=stays", "2 theirs=stays"}, c.readAll(t, "a", "b"))
	e.WaitForEvent(t, c.cd.Namespace, machinepool.EventMachinePoolCaughtUp, "after the resume")
	restart()
	if n := c.proxy.Accepted.Load(); n != 1 || !pool.Status.SyncedResume.Equal(resume) {
		t.Errorf("expected one connection after the resume, found %d and %+v", n, pool.Status)
	}
	// An unchanged pool is also read once after a resume.
	e.PutClusterToSleep(t, c.cd)
	again := new(metav1.NewTime(time.Now().Add(time.Minute)).Rfc3339Copy())
	e.WakeCluster(t, c.cd, again)
	e.WaitFor(t, "the second resume is recorded", pool, func() error {
		return testenv.ErrorIf(!pool.Status.SyncedResume.Equal(again), "found %+v", pool.Status)
	})
	if n := c.proxy.Accepted.Load(); n != 2 {
		t.Errorf("expected one connection more, found %d", n)
	}
}

// TestResumeAfterAnExpiredStopIsDetected uses a cluster with an expired stop in its status.
func TestResumeAfterAnExpiredStopIsDetected(t *testing.T) {
	testenv.ExpectWakeAfterExpiredStop(t, func(cd *hivev1.ClusterDeployment, now time.Time) bool { return readGate(cd, now).MayDial }, gateChanged())
}

func TestJobEndsWhenItsClusterHibernates(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, "a", "b", "c")
	job := &poolJob{Cluster: client.ObjectKeyFromObject(c.cd), Server: targetcalls.Server{KubeconfigSecret: "admin"}}
	job.Spec, job.InfraID = c.buildPool("unused").Spec, c.cd.Spec.ClusterMetadata.InfraID
	setReplicas(6)(&job.Spec)
	for allowed, want := range map[int64][]string{
		0: {"1 theirs=stays", "1 theirs=stays", "1 theirs=stays"},
		4: {"2 theirs=stays", "1 theirs=stays", "1 theirs=stays"}, // The connection, two lists and one MachineSet.
	} {
		var asked atomic.Int64
		c.proxy.Accepted.Store(0)
		runner := newPoolRunner(targetcalls.Connector{
			ReadSecret: targetcalls.ReadSecretWith(e.Client),
			MayDial:    func(context.Context, types.NamespacedName) bool { return asked.Add(1) <= allowed },
		}, clock.RealClock{}, NewMetrics())
		answer := runner.run(t.Context(), job)
		if answer.IsComplete || answer.Refusal != nil || answer.NoAnswer != "" || len(answer.Changes) != int(min(allowed, 1)) {
			t.Errorf("%d requests: expected the job to end without a result, found %+v", allowed, answer)
		}
		if n := c.proxy.Accepted.Load(); n != min(allowed, 1) {
			t.Errorf("%d requests: expected a connection only where it is allowed, found %d", allowed, n)
		}
		testenv.ExpectEqual(t, fmt.Sprintf("the MachineSets after %d requests", allowed), want, c.readAll(t, "a", "b", "c"))
		c.edit(t, "a", `{"spec":{"replicas":1}}`)
	}
}

func TestClusterWithoutMachineSetsIsReported(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	plain := e.newClusterOf(t, e.Environment) // The hub is not an OpenShift cluster.
	pool := plain.newPool(t, "pool", setReplicas(1))
	e.WaitForCondition(t, pool, hivev1.MachinePoolSyncedCondition, metav1.ConditionFalse, hivev1.NoMachineAPIReason)
	e.WaitForCondition(t, pool, hivev1.UnsupportedConfigurationCondition, metav1.ConditionTrue, hivev1.NoMachineAPIReason)
	e.WaitForEvent(t, plain.cd.Namespace, machinepool.EventMachinePoolFailed, "Expected the cluster to serve MachineSets of OpenShift")

	empty := e.newCluster(t)
	pool = empty.newPool(t, "pool", setReplicas(1))
	found := e.WaitForCondition(t, pool, hivev1.UnsupportedConfigurationCondition, metav1.ConditionTrue, hivev1.NoMachineSetsReason)
	if !strings.Contains(found.Message, empty.nameOf("ZONE")) || !strings.Contains(found.Message, hivev1.MachinePoolNameLabel+": "+empty.pool) {
		t.Errorf("expected the message to contain the names of MachineSets, found %q", found.Message)
	}
	e.target.ExpectCreated(t, empty.machineSet("a"))
	empty.waitUntilSynced(t, pool) // The job is retried.
	e.WaitForEvent(t, empty.cd.Namespace, machinepool.EventMachinePoolRecovered, "")
	testenv.ExpectNoError(t, e.target.Client.Delete(t.Context(), empty.machineSet("a")))
	empty.changePool(t, pool, setReplicas(2))
	e.WaitForCondition(t, pool, hivev1.MachinePoolSyncedCondition, metav1.ConditionFalse, hivev1.NoMachineSetsReason)
	if pool.Status.Replicas != 0 || len(pool.Status.MachineSets) != 0 {
		t.Errorf("expected a deleted MachineSet to leave the status, found %+v", pool.Status)
	}
}

func TestRefusalOfTheClusterIsReported(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, "a", "b")
	pool := c.newPool(t, "pool", func(s *hivev1.MachinePoolSpec) {
		setReplicas(4)(s)
		s.Taints = []corev1.Taint{{Key: "k", Effect: "Wrong"}}
	})
	found := e.WaitForCondition(t, pool, hivev1.MachinePoolSyncedCondition, metav1.ConditionFalse, hivev1.MachinePoolRefusedReason)
	if !strings.Contains(found.Message, "apply MachineSet "+c.nameOf("a")) || !strings.Contains(found.Message, "422") {
		t.Errorf("expected the message to name the refused request, found %q", found.Message)
	}
	testenv.ExpectEqual(t, "the observed replicas", int32(2), pool.Status.Replicas)
	c.changePool(t, pool, func(s *hivev1.MachinePoolSpec) { s.Taints = nil })
	c.waitUntilSynced(t, pool)
	testenv.ExpectEqual(t, "the MachineSets", []string{"2 theirs=stays", "2 theirs=stays"}, c.readAll(t, "a", "b"))
}

func TestClusterThatDoesNotAnswerIsReported(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, "a")
	c.proxy.IsHung.Store(true)
	pool := c.newPool(t, "pool", setReplicas(2))
	found := e.WaitForCondition(t, pool, hivev1.MachinePoolSyncedCondition, metav1.ConditionFalse, hivev1.MachinePoolNoAnswerReason)
	if !strings.Contains(found.Message, "no answer in time") {
		t.Errorf("expected a message about an answer that is late, found %q", found.Message)
	}
	c.proxy.IsHung.Store(false)
	c.waitUntilSynced(t, pool)
}

func TestPoolWaitsForItsClusterDeployment(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, "a")
	pool := c.newPool(t, "pool", func(s *hivev1.MachinePoolSpec) { s.ClusterDeploymentRef.Name = "later" })
	found := e.WaitForCondition(t, pool, hivev1.MachinePoolSyncedCondition, metav1.ConditionFalse, hivev1.ClusterDeploymentMissingReason)
	if !strings.Contains(found.Message, "ClusterDeployment later") {
		t.Errorf("expected the message to name the missing object, found %q", found.Message)
	}
	later := testenv.BuildClusterDeployment(types.NamespacedName{Namespace: c.cd.Namespace, Name: "later"}, "none", "admin")
	later.Spec.ClusterMetadata.InfraID = c.cd.Spec.ClusterMetadata.InfraID
	e.ExpectCreated(t, later)
	e.WakeCluster(t, later, nil)
	c.waitUntilSynced(t, pool)
}

// TestDeletedPoolLeavesTheMachines deletes a pool of a hibernating cluster.
func TestDeletedPoolLeavesTheMachines(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, "a")
	pool := c.newPool(t, "pool", setAutoscaling(2, 3))
	c.waitUntilSynced(t, pool)
	e.PutClusterToSleep(t, c.cd)
	c.proxy.Accepted.Store(0)
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), pool))
	e.WaitForDeletion(t, pool)
	e.WakeCluster(t, c.cd, new(metav1.NewTime(time.Now()).Rfc3339Copy()))
	next := c.newPool(t, "next", setAutoscaling(2, 3)) // This pool is evaluated after the earlier ones.
	c.waitUntilSynced(t, next)
	testenv.ExpectEqual(t, "MachineAutoscalers", []string{"a: 2-3"}, c.autoscalers(t))
	testenv.ExpectEqual(t, "the MachineSet", "2 theirs=stays", c.read(t, "a"))
	if n := c.proxy.Accepted.Load(); n != 1 {
		t.Errorf("expected only the connection of the next pool, found %d", n)
	}
}

func TestYoungerPoolOfTheSameNameWaits(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, "a")
	older := c.newPool(t, "a-older", setReplicas(3))
	c.waitUntilSynced(t, older)
	younger := c.newPool(t, "b-younger", setReplicas(5))
	e.WaitForCondition(t, younger, hivev1.UnsupportedConfigurationCondition, metav1.ConditionTrue, hivev1.AmbiguousPoolReason)
	testenv.ExpectEqual(t, "the MachineSet", "3 theirs=stays", c.read(t, "a"))
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), older))
	c.waitUntilSynced(t, younger)
	testenv.ExpectEqual(t, "the MachineSet", "5 theirs=stays", c.read(t, "a"))
}

// TestMachineSetsThatChangedAfterPlanningAreKept applies changes to MachineSets that were deleted, replaced or edited
// after planning.
func TestMachineSetsThatChangedAfterPlanningAreKept(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, "deleted", "replaced", "edited")
	job := &machinepool.Job{Spec: c.buildPool("unused").Spec, InfraID: c.cd.Spec.ClusterMetadata.InfraID}
	setReplicas(9)(&job.Spec)
	connection, err := targetcluster.Dialer{}.Dial(c.proxy.Kubeconfig, hibernation.ServerOverride{})
	testenv.ExpectNoError(t, err)
	defer connection.Close()
	var sets []machinepool.MachineSet
	testenv.ExpectNoError(t, connection.ListPage(t.Context(), parseVersion(machinepool.MachineSetVersion).WithResource(machinepool.MachineSetResource), machinepool.Namespace, func(item []byte) error {
		set, err := machinepool.DecodeMachineSet(item)
		sets = append(sets, set)
		return err
	}))
	changes, refused := machinepool.PlanChanges(job, sets, nil, true)
	if refused != nil || len(changes.MachineSets) != 3 {
		t.Fatalf("expected three changes, found %+v and %v", changes, refused)
	}
	for _, zone := range []string{"deleted", "replaced"} {
		testenv.ExpectNoError(t, e.target.Client.Delete(t.Context(), c.machineSet(zone)))
	}
	e.target.ExpectCreated(t, c.machineSet("replaced"))
	c.edit(t, "edited", `{"spec":{"replicas":2}}`)
	writer := connection.NewObjectWriter(Name)
	for _, change := range changes.MachineSets {
		if err := writer.Apply(t.Context(), nameObject(machinepool.MachineSetVersion, machinepool.MachineSetKind, change.Name), change.Manifest); err == nil {
			t.Errorf("expected %s to be refused, found it taken", change.Name)
		}
	}
	testenv.ExpectEqual(t, "the MachineSets", []string{"", "1 theirs=stays", "2 theirs=stays"}, c.readAll(t, "deleted", "replaced", "edited"))
}

func TestSchemaRefusesInvalidPools(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t)
	for words, change := range map[string]func(*hivev1.MachinePoolSpec){
		"found both":                                func(s *hivev1.MachinePoolSpec) { setAutoscaling(1, 2)(s); s.Replicas = new(int64(1)) },
		"expected minReplicas to be at most":        setAutoscaling(3, 2),
		"should be less than or equal to 5000":      setReplicas(5001),
		"should be greater than or equal to 0":      setReplicas(-1),
		"must have at most 100 items":               func(s *hivev1.MachinePoolSpec) { s.Taints = make([]corev1.Taint, 101) },
		"spec.name in body should be at least 1 ch": func(s *hivev1.MachinePoolSpec) { s.Name = "" },
	} {
		pool := c.buildPool("refused")
		change(&pool.Spec)
		testenv.ExpectRefused(t, e.Client.Create(t.Context(), pool), words)
	}
}

// TestUpstreamsSchemaCostsNoConnections uses a schema that drops the time of the last read, as Hive's does.
func TestUpstreamsSchemaCostsNoConnections(t *testing.T) {
	t.Parallel()
	e, stop := shared.Get(t).withManager(t, clock.RealClock{})
	crd := &apiextensionsv1.CustomResourceDefinition{}
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), types.NamespacedName{Name: "machinepools." + hivev1.GroupVersion().Group}, crd))
	status := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	for _, field := range []string{"lastSyncTime", "syncedResume", "observedGeneration"} {
		delete(status.Properties, field)
	}
	status.XPreserveUnknownFields = nil
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"] = status
	testenv.ExpectNoError(t, e.Client.Update(t.Context(), crd))
	probe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": hivev1.GroupVersion().String(), "kind": "MachinePool", "metadata": map[string]any{"namespace": metav1.NamespaceDefault, "name": "probe"},
		"spec": map[string]any{"clusterDeploymentRef": map[string]any{"name": "none"}, "name": "probe", "platform": map[string]any{}},
	}}
	e.ExpectCreated(t, probe)
	testenv.Eventually(t, "the schema drops a field", func() error {
		err := e.Client.Status().Patch(t.Context(), probe, client.RawPatch(types.MergePatchType, []byte(`{"status":{"syncedResume":"2026-01-01T00:00:00Z"}}`)))
		found, isKept, _ := unstructured.NestedString(probe.Object, "status", "syncedResume")
		return errors.Join(err, testenv.ErrorIf(isKept, "found %s", found))
	})
	c, witness := e.newCluster(t, "a"), e.newCluster(t, "a")
	pool := c.newPool(t, "pool", setReplicas(2))
	e.WaitForCondition(t, pool, hivev1.MachinePoolSyncedCondition, metav1.ConditionTrue, hivev1.MachineSetsAsWishedReason)
	e.WaitForEvent(t, c.cd.Namespace, torporv1alpha1.SchemaLacksFieldReason, "status.lastSyncTime")
	stop()
	e.startManager(t)
	other := witness.newPool(t, "witness", setReplicas(2))
	e.WaitForCondition(t, other, hivev1.MachinePoolSyncedCondition, metav1.ConditionTrue, hivev1.MachineSetsAsWishedReason)
	if n := c.proxy.Accepted.Load(); n != 1 {
		t.Errorf("expected one connection, found %d", n)
	}
}

func TestMetricsShowPoolsAndCountJobs(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, "a")
	c.waitUntilSynced(t, c.newPool(t, "pool", setReplicas(2)))
	registry := prometheus.NewPedanticRegistry()
	testenv.ExpectNoError(t, registry.Register(e.metrics))
	testenv.Eventually(t, "the metrics have the pool and its job", func() error {
		families, err := registry.Gather()
		if err != nil {
			return fmt.Errorf("gather: %w", err)
		}
		found := map[string]bool{}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				for _, l := range m.GetLabel() {
					found[family.GetName()+" "+l.GetName()+" "+l.GetValue()] = m.GetGauge().GetValue() == 1 || m.GetCounter().GetValue() > 0
				}
			}
		}
		return testenv.ErrorIf(!found["torpor_machine_pool namespace "+c.cd.Namespace] || !found["torpor_machine_pool_jobs_total result changed"], "found %v", found)
	})
}

// TestSlowClusterEndsItsJob uses a job with no time left at its start.
func TestSlowClusterEndsItsJob(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, "a")
	job := &poolJob{Cluster: client.ObjectKeyFromObject(c.cd), Server: targetcalls.Server{KubeconfigSecret: "admin"}}
	job.Spec, job.InfraID = c.buildPool("unused").Spec, c.cd.Spec.ClusterMetadata.InfraID
	runner := newPoolRunner(targetcalls.Connector{
		ReadSecret: targetcalls.ReadSecretWith(e.Client),
		MayDial: func(ctx context.Context, _ types.NamespacedName) bool {
			deadline, hasOne := ctx.Deadline()
			if !hasOne || time.Until(deadline) > jobTime {
				t.Errorf("expected at most %s for a job, found %s", jobTime, deadline)
			}
			return true
		},
	}, clock.RealClock{}, NewMetrics())
	over, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	answer, outcome := runner.do(over, job)
	if answer.NoAnswer == "" || !outcome.IsSilent || !outcome.HasFailed {
		t.Errorf("expected an answer without a response from the cluster, found %+v and %+v", answer, outcome)
	}
	if answer, _ = runner.do(t.Context(), job); !answer.IsComplete {
		t.Errorf("expected a cluster that is not slow to match the pool, found %+v", answer)
	}
}

// TestHostileMachineSetsAreNotKept uses a server whose list is within the byte budgets of an answer, but exceeds the
// limit for a pool. Lists of {} would multiply in size when they are decoded.
func TestHostileMachineSetsAreNotKept(t *testing.T) {
	t.Parallel()
	part := `[{"key":"` + strings.Repeat("k", 60_000) + `"}]` // One large key is decoded fast.
	item := `{"metadata":{"name":"a","labels":{"` + hivev1.MachinePoolNameLabel + `":"worker"}},"spec":{"template":{"spec":{"taints":` + part + `}}}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"items":[`+item+strings.Repeat(","+item, 200)+`]}`)
	}))
	defer server.Close()
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: server.URL}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c"}},
		CurrentContext: "c",
	})
	testenv.ExpectNoError(t, err)
	target, err := targetcluster.Dialer{AllowInsecure: true}.Dial(kubeconfig, hibernation.ServerOverride{})
	testenv.ExpectNoError(t, err)
	defer target.Close()
	runner := newPoolRunner(targetcalls.Connector{MayDial: func(context.Context, types.NamespacedName) bool { return true }}, clock.RealClock{}, NewMetrics())
	job := &poolJob{}
	job.Spec.Name = "worker"
	sets, _, _, err := (&poolConnection{runner: runner, job: job, client: target, answer: &machinepool.Answer{}}).list(t.Context())
	if !errors.Is(err, machinepool.ErrMalformed) || len(sets) > 0 {
		t.Errorf("expected a list that is too large to be refused, found %d MachineSets and %v", len(sets), err)
	}
}

// TestMachineSetThatChangesBeforeTheWriteIsReadAgain edits a MachineSet between Torpor's read and write, once or
// always.
func TestMachineSetThatChangesBeforeTheWriteIsReadAgain(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	const looks = 3 // Two lists, and one MachineSet.
	for edits, isComplete := range map[int]bool{1: true, maxLooks: false} {
		c := e.newCluster(t, "a")
		job := &poolJob{Cluster: client.ObjectKeyFromObject(c.cd), Server: targetcalls.Server{KubeconfigSecret: "admin"}}
		job.Spec, job.InfraID = c.buildPool("unused").Spec, c.cd.Spec.ClusterMetadata.InfraID
		setReplicas(5)(&job.Spec)
		asked := 0
		runner := newPoolRunner(targetcalls.Connector{
			ReadSecret: targetcalls.ReadSecretWith(e.Client),
			MayDial: func(context.Context, types.NamespacedName) bool {
				if round := asked / looks; asked > 0 && asked%looks == 0 && round <= edits {
					c.edit(t, "a", fmt.Sprintf(`{"spec":{"replicas":%d}}`, 10+round))
				}
				asked++
				return true
			},
		}, clock.RealClock{}, NewMetrics())
		c.proxy.Accepted.Store(0)
		answer := runner.run(t.Context(), job)
		if answer.IsComplete != isComplete || (answer.Refusal == nil) != isComplete || c.proxy.Accepted.Load() != 1 {
			t.Errorf("%d edits: expected one connection with success %t, found %d and %+v", edits, isComplete, c.proxy.Accepted.Load(), answer)
		}
		if want := map[bool]string{true: "5 theirs=stays", false: "13 theirs=stays"}[isComplete]; c.read(t, "a") != want {
			t.Errorf("%d edits: expected %s, found %s", edits, want, c.read(t, "a"))
		}
	}
}
