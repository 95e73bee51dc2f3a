// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"encoding/json"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cloud/aws"
	hibernationcontroller "github.com/torpor-dev/torpor/internal/cluster/hibernation/controller"
	provisioningcontroller "github.com/torpor-dev/torpor/internal/mysql/provisioning/controller"
	slumbercontroller "github.com/torpor-dev/torpor/internal/switches/slumber/controller"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const slumberName = "nights"

// createSlumber creates a Slumber that stops all objects of a kind in a namespace immediately.
func createSlumber(t *testing.T, env *testenv.Environment, namespace, kind string) *torporv1alpha1.Slumber {
	t.Helper()
	s := &torporv1alpha1.Slumber{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: slumberName}}
	s.Spec.Windows = []torporv1alpha1.SlumberWindow{{Sleep: "* * * * *", Wake: "0 0 1 1 *"}}
	s.Spec.Waves = []torporv1alpha1.SlumberWave{{Name: "all", Targets: []torporv1alpha1.SlumberTarget{{Kind: kind}}}}
	env.ExpectCreated(t, s)
	return s
}

// waitForState waits until a Slumber has one member and is in this state, and nothing is stalled.
func waitForState(t *testing.T, env *testenv.Environment, s *torporv1alpha1.Slumber, state torporv1alpha1.SlumberState) {
	t.Helper()
	env.WaitFor(t, "the Slumber is "+string(state), s, func() error {
		isStalled := meta.IsStatusConditionTrue(s.Status.Conditions, torporv1alpha1.SlumberStalledCondition)
		return testenv.ErrorIf(s.Status.State != state || s.Status.Members != 1 || isStalled, "found %+v", s.Status)
	})
}

// suspend suspends a Slumber, which ends its window, or resumes it.
func suspend(t *testing.T, env *testenv.Environment, s *torporv1alpha1.Slumber, isSuspended bool) {
	t.Helper()
	testenv.ExpectPatched(t, env, s, func(s *torporv1alpha1.Slumber) { s.Spec.Suspend = isSuspended })
}

// TestSlumberStopsAClusterWithHivesSchema also replaces the schema while a cluster hibernates, and deletes a
// Slumber.
func TestSlumberStopsAClusterWithHivesSchema(t *testing.T) {
	t.Parallel()
	env := testenv.StartAPIServer(t)
	limited, writes := asManager(t, env)
	env.InstallCRDs(t)
	env.InstallCRDs(t, crdFile("clusterdeployments"))
	cloud := testenv.StartCloud(t, "--allow-commands")
	sleepy := &sleepyCluster{hub: env, cloud: cloud, writes: writes, TargetCluster: testenv.CreateTargetCluster(t, env, cloud, testenv.ClusterOptions{
		Name: "sleepy", Nodes: 2, Certificates: time.Hour, Flags: []string{"--heartbeat", "1s"},
	})}
	testenv.StartManager(t, limited, func(mgr ctrl.Manager) error {
		if err := (slumbercontroller.Controller{Clock: clock.RealClock{}, Metrics: slumbercontroller.NewMetrics()}).SetupWithManager(mgr); err != nil {
			return err
		}
		return hibernationcontroller.Controller{
			Actuators: map[string]actuator.Actuator{"aws": aws.New(aws.Options{})}, Clock: clock.RealClock{}, Metrics: hibernationcontroller.NewMetrics(),
		}.SetupWithManager(mgr)
	})
	expectMachines := func(state string) {
		t.Helper()
		testenv.Eventually(t, "the machines are "+state, func() error { return cloud.ExpectState(t, sleepy.InfraID, state) })
	}
	s := createSlumber(t, env, sleepy.Namespace, "ClusterDeployment")
	expectMachines("stopped")
	waitForState(t, env, s, torporv1alpha1.SlumberAsleep)

	t.Log("The schema is Torpor's, then Hive's again, while the cluster hibernates.")
	for _, paths := range [][]string{nil, {crdFile("clusterdeployments")}} {
		env.InstallCRDs(t, paths...)
		testenv.Consistently(t, 5*time.Second, "the machines stay stopped", func() error { return cloud.ExpectState(t, sleepy.InfraID, "stopped") })
	}
	suspend(t, env, s, true)
	expectMachines("running")
	waitForState(t, env, s, torporv1alpha1.SlumberAwake)

	t.Log("Torpor's own schema at first, and Hive's while the cluster hibernates.")
	env.InstallCRDs(t)
	suspend(t, env, s, false)
	expectMachines("stopped")
	waitForState(t, env, s, torporv1alpha1.SlumberAsleep)
	env.InstallCRDs(t, crdFile("clusterdeployments"))
	testenv.Consistently(t, 5*time.Second, "the machines stay stopped", func() error { return cloud.ExpectState(t, sleepy.InfraID, "stopped") })

	t.Log("The Slumber is deleted.")
	testenv.ExpectNoError(t, env.Client.Delete(t.Context(), s))
	env.WaitForDeletion(t, s)
	env.WaitForCondition(t, sleepy.get(t), hivev1.ClusterReadyCondition, metav1.ConditionTrue, hivev1.RunningHibernationReason)
	if text, isLeft := sleepy.get(t).Annotations[torporv1alpha1.SlumberAnnotationPrefix+slumberName]; isLeft {
		t.Errorf("expected no annotation of a Slumber that is gone, found %s", text)
	}

	t.Log("A stop of a Slumber that never existed.")
	forged, err := json.Marshal(torporv1alpha1.ScheduledStop{Slumber: slumberName, Stops: []torporv1alpha1.StopRecord{{Since: metav1.Unix(1, 0), By: "mallory", Requested: true}}})
	testenv.ExpectNoError(t, err)
	env.ExpectAnnotated(t, sleepy.get(t), map[string]string{torporv1alpha1.SlumberAnnotationPrefix + slumberName: string(forged)})
	env.WaitFor(t, "the stop is removed", sleepy.get(t), func() error {
		_, isLeft := sleepy.get(t).Annotations[torporv1alpha1.SlumberAnnotationPrefix+slumberName]
		return testenv.ErrorIf(isLeft, "found it")
	})
	env.WaitForCondition(t, sleepy.get(t), hivev1.ClusterReadyCondition, metav1.ConditionTrue, hivev1.RunningHibernationReason)
}

// TestSlumberStopsAMySQLClusterWithMOCOsSchema has Pods without containers. The test writes the state of clustering
// to the status.
func TestSlumberStopsAMySQLClusterWithMOCOsSchema(t *testing.T) {
	t.Parallel()
	env := testenv.StartControlPlane(t, 1)
	limited, _ := asManager(t, env)
	env.InstallCRDs(t)
	env.InstallCRDs(t, crdFile("mysqlclusters"))
	testenv.StartManager(t, limited, func(mgr ctrl.Manager) error {
		if err := (slumbercontroller.Controller{Clock: clock.RealClock{}, Metrics: slumbercontroller.NewMetrics()}).SetupWithManager(mgr); err != nil {
			return err
		}
		return provisioningcontroller.Controller{Clock: clock.RealClock{}, Metrics: provisioningcontroller.NewMetrics(), ExporterImage: "exporter:1"}.SetupWithManager(mgr)
	})
	cluster := testenv.BuildMySQLCluster(t, types.NamespacedName{Namespace: env.CreateNamespace(t), Name: "db"}, 1)
	primary, err := json.Marshal(map[string]any{"instances": []mocov1beta2.InstanceStatus{{Ordinal: 0, Role: mocov1beta2.RolePrimary}}})
	testenv.ExpectNoError(t, err)
	cluster.Annotations = map[string]string{torporv1alpha1.StatusAnnotationPrefix + "torpor-clustering": string(primary)}
	env.ExpectCreated(t, cluster)
	report := func(status metav1.ConditionStatus) {
		t.Helper()
		before := cluster.DeepCopy()
		meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{Type: mocov1beta2.AvailableCondition, Status: status, Reason: "Reported"})
		testenv.ExpectNoError(t, env.Client.Status().Patch(t.Context(), cluster, client.MergeFrom(before)))
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "moco-db"}}
	waitForPods := func(want int) {
		t.Helper()
		testenv.Eventually(t, "the Pods exist as wanted", func() error {
			var pods corev1.PodList
			if err := env.Client.List(t.Context(), &pods, client.InNamespace(cluster.Namespace)); err != nil {
				return err
			}
			err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(set), set)
			return testenv.ErrorIf(err != nil || len(pods.Items) != want || *set.Spec.Replicas != int32(want), "expected %d, found %d Pods, %v", want, len(pods.Items), err)
		})
	}
	waitForPods(1)
	report(metav1.ConditionTrue)
	s := createSlumber(t, env, cluster.Namespace, "MySQLCluster")
	waitForPods(0)
	waitForState(t, env, s, torporv1alpha1.SlumberAsleep)
	report(metav1.ConditionFalse)
	suspend(t, env, s, true)
	waitForPods(1)
	report(metav1.ConditionTrue)
	waitForState(t, env, s, torporv1alpha1.SlumberAwake)
	expectNoSpecWrites(t, env, cluster, mocov1beta2.MySQLClusterKind().Kind)
}

// expectNoSpecWrites expects that no Slumber has written the spec of an object.
func expectNoSpecWrites(t *testing.T, env *testenv.Environment, obj client.Object, what string) {
	t.Helper()
	testenv.ExpectNoError(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
	for _, entry := range obj.GetManagedFields() {
		if entry.Manager != slumbercontroller.Name+"-"+slumberName || entry.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		testenv.ExpectNoError(t, json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields))
		if _, isWritten, _ := unstructured.NestedMap(fields, "f:spec"); isWritten {
			t.Errorf("expected no Slumber to write the spec of the %s, found %s", what, entry.FieldsV1.GetRawString())
		}
	}
}

// expectAppSleeps expects a Slumber to stop an app and to start it again.
func expectAppSleeps(t *testing.T, env *testenv.Environment, app *korifiv1alpha1.CFApp) {
	t.Helper()
	s := createSlumber(t, env, app.Namespace, "CFApp")
	env.WaitForCondition(t, app, korifiv1alpha1.ReadyCondition, metav1.ConditionTrue, korifiv1alpha1.StoppedReason)
	waitForState(t, env, s, torporv1alpha1.SlumberAsleep)
	if app.Spec.DesiredState != korifiv1alpha1.StartedState {
		t.Errorf("expected an unchanged spec, found %s", app.Spec.DesiredState)
	}
	suspend(t, env, s, true)
	env.WaitForCondition(t, app, korifiv1alpha1.ReadyCondition, metav1.ConditionTrue, korifiv1alpha1.RunningReason)
	waitForState(t, env, s, torporv1alpha1.SlumberAwake)
	expectNoSpecWrites(t, env, app, korifiv1alpha1.CFAppKind().Kind)
	testenv.ExpectNoError(t, env.Client.Delete(t.Context(), s))
	env.WaitForDeletion(t, s)
}
