// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	clusteringcontroller "github.com/torpor-dev/torpor/internal/mysql/clustering/controller"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestObjectsAreMadeAndNotWrittenTwice(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.addCluster(t, nil)
	e.waitUntilReconciled(t)
	c := e.cluster(t)
	if !controllerutil.ContainsFinalizer(c, mocov1beta2.Finalizer) || c.Spec.ServerIDBase <= 0 {
		t.Errorf("expected the finalizer and server ids, found %q and %d", c.Finalizers, c.Spec.ServerIDBase)
	}
	set := e.statefulSet(t)
	config := ""
	for _, v := range set.Spec.Template.Spec.Volumes {
		if v.ConfigMap != nil {
			config = v.ConfigMap.Name
		}
	}
	for name, obj := range map[string]client.Object{
		"moco-test": &corev1.Secret{}, "moco-my-cnf-test": &corev1.Secret{}, config: &corev1.ConfigMap{},
		"moco-test-primary": &corev1.Service{}, "moco-test-replica": &corev1.Service{},
	} {
		if err := e.get(t, name, obj); err != nil {
			t.Errorf("%T %s: %v", obj, name, err)
		} else if !metav1.IsControlledBy(obj, c) {
			t.Errorf("%T %s is not owned by the cluster", obj, name)
		}
	}
	for _, obj := range []client.Object{&corev1.ServiceAccount{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}} {
		if err := e.get(t, "moco-test", obj); err != nil {
			t.Errorf("%T: %v", obj, err)
		}
	}
	e.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionTrue)
	e.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionTrue)
	e.waitForCondition(t, mocov1beta2.SpecFullySupportedCondition, metav1.ConditionTrue)
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionFalse, "has not observed the newest template")
	before := e.requests.writesIn(e.name.Namespace)
	e.annotate(t, "example.com/look", "again")
	e.waitUntilSettled(t, func() error { return nil })
	testenv.ExpectEqual(t, "writes of a pass with nothing to do", before, e.requests.writesIn(e.name.Namespace))
}

func TestChangesByOthersAreUndone(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.addCluster(t, nil)
	e.waitUntilReconciled(t)
	service := &corev1.Service{}
	testenv.ExpectNoError(t, e.get(t, "moco-test-primary", service))
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), service))
	testenv.Eventually(t, "the Service is back", func() error { return e.get(t, "moco-test-primary", &corev1.Service{}) })
	set := e.statefulSet(t)
	before := set.DeepCopy()
	set.Spec.Template.Spec.Containers[0].Image = "other"
	testenv.ExpectNoError(t, e.Client.Patch(t.Context(), set, client.MergeFrom(before)))
	testenv.Eventually(t, "the image is back", func() error { return e.expectImage(t, "mysql:1") })
}

func (e *clusterEnv) expectImage(t *testing.T, want string) error {
	t.Helper()
	found := e.statefulSet(t).Spec.Template.Spec.Containers[0].Image
	return testenv.ErrorIf(found != want, "expected the image %s, found %s", want, found)
}

func (e *clusterEnv) setImage(t *testing.T, image string) {
	t.Helper()
	e.changeCluster(t, func(c *mocov1beta2.MySQLCluster) {
		raw := strings.ReplaceAll(string(c.Spec.PodTemplate.Spec.Raw), "mysql:1", image)
		testenv.ExpectNoError(t, c.Spec.PodTemplate.Spec.UnmarshalJSON([]byte(raw)))
	})
}

func TestReconciliationStopKeepsEverything(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.addCluster(t, nil)
	e.waitUntilReconciled(t)
	t.Log("A value other than true stops nothing and causes one event.")
	e.annotate(t, mocov1beta2.ReconciliationStoppedAnnotation, "yes")
	e.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionTrue, "is ignored", `found "yes"`)
	e.annotate(t, "example.com/look", "again")
	e.waitUntilSettled(t, func() error { return nil })
	if n := e.countEvents(t, annotationIgnored); n != 1 {
		t.Errorf("expected one event, found %d", n)
	}

	t.Log("The status shows the requester, the reason and the end of the stop, and only the status is written.")
	e.annotate(t, torporv1alpha1.ReasonAnnotation, "moving disks")
	e.annotate(t, torporv1alpha1.UntilAnnotation, "2126-11-20T22:00:00Z")
	e.annotate(t, mocov1beta2.ReconciliationStoppedAnnotation, "true")
	e.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionFalse, "by unknown (field manager kubectl-moco)", "moving disks", "2126-11-20T22:00:00Z", "kubectl moco start reconciliation test")
	before := len(e.requests.writesIn(e.name.Namespace))
	e.setImage(t, "mysql:2")
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), &corev1.Service{ObjectMeta: e.meta("moco-test-primary")}))
	e.waitUntilSettled(t, func() error { return nil })
	for _, one := range e.requests.writesIn(e.name.Namespace)[before:] {
		if !strings.HasSuffix(one, "/mysqlclusters/test/status") {
			t.Errorf("written while stopped: %s", one)
		}
	}
	if err := e.expectImage(t, "mysql:1"); err != nil {
		t.Error(err)
	}
	record := e.cluster(t).Status.Pause
	if record == nil || record.Reconciliation == nil || record.Reconciliation.By != "unknown (field manager kubectl-moco)" || record.Reconciliation.Reason != "moving disks" || record.Reconciliation.Until == nil {
		t.Errorf("expected the requester, the reason and the end in status.pause, found %+v", record)
	}

	t.Log("A start applies the changes made during the stop.")
	e.annotate(t, mocov1beta2.ReconciliationStoppedAnnotation, "")
	e.waitUntilReconciled(t)
	e.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionTrue)
	if err := errors.Join(e.expectImage(t, "mysql:2"), e.get(t, "moco-test-primary", &corev1.Service{})); err != nil {
		t.Error(err)
	}
	if p := e.cluster(t).Status.Pause; p != nil {
		t.Errorf("expected no record of a stop, found %+v", p)
	}
}

func (e *clusterEnv) countEvents(t *testing.T, reason string) int {
	t.Helper()
	var list eventsv1.EventList
	testenv.ExpectNoError(t, e.Client.List(t.Context(), &list, client.InNamespace(e.name.Namespace)))
	n := 0
	for _, e := range list.Items {
		if e.Reason == reason {
			n++
		}
	}
	return n
}

func TestStoppedClusterIsDeleted(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.addCluster(t, nil)
	e.waitUntilReconciled(t)
	e.addPod(t, 0, "one")
	e.annotate(t, mocov1beta2.ReconciliationStoppedAnnotation, "true")
	e.annotate(t, mocov1beta2.ClusteringStoppedAnnotation, "true")
	e.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionFalse)
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), e.cluster(t)))
	e.waitUntilGone(t, "moco-test", &appsv1.StatefulSet{})
	if !controllerutil.ContainsFinalizer(e.cluster(t), mocov1beta2.Finalizer) {
		t.Error("the finalizer is gone although a Pod is there")
	}
	e.deletePod(t, 0)
	e.waitUntilGone(t, e.name.Name, &mocov1beta2.MySQLCluster{})
}

func TestMissingConfigMapIsReported(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.addCluster(t, func(c *mocov1beta2.MySQLCluster) { c.Spec.MySQLConfigMapName = new("mycnf") })
	e.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionFalse, "expected the ConfigMap mycnf", "create it or remove the field")
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionFalse, "no StatefulSet")
	e.ExpectCreated(t, &corev1.ConfigMap{
		ObjectMeta: e.meta("mycnf"), Data: map[string]string{"long_query_time": "5", "read-only": "OFF"},
	})
	e.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionTrue)
	e.waitForCondition(t, mocov1beta2.SpecFullySupportedCondition, metav1.ConditionFalse, "settings of the ConfigMap mycnf have no effect", "read-only")
	config := &corev1.ConfigMap{}
	testenv.ExpectNoError(t, e.get(t, e.statefulSet(t).Spec.Template.Spec.Volumes[3].ConfigMap.Name, config))
	if !strings.Contains(config.Data["my.cnf"], "long_query_time=5\n") {
		t.Errorf("the setting is missing in:\n%s", config.Data["my.cnf"])
	}
}

// TestHarmfulSettingsReachNoServer writes harmful settings to a ConfigMap that servers use.
func TestHarmfulSettingsReachNoServer(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	settings := &corev1.ConfigMap{ObjectMeta: e.meta("mycnf"), Data: map[string]string{"default_time_zone": "Asia/Tokyo"}}
	e.ExpectCreated(t, settings)
	e.addCluster(t, func(c *mocov1beta2.MySQLCluster) { c.Spec.MySQLConfigMapName = new("mycnf") })
	e.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionFalse, "default_time_zone=Asia/Tokyo", "spec.initializeTimezoneData")
	setData := func(data map[string]string) {
		t.Helper()
		settings.Data = data
		testenv.ExpectNoError(t, e.Client.Update(t.Context(), settings))
	}
	setData(map[string]string{"lower_case_table_names": "1"})
	e.waitUntilReconciled(t)
	used := e.statefulSet(t).Spec.Template.Spec.Volumes[3].ConfigMap.Name
	setData(map[string]string{"binlog_ignore_db": "audit"})
	e.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionFalse, "spec.mysqlConfigMapName", "lower_case_table_names",
		"binlog_ignore_db=audit", "remove the setting")
	setData(map[string]string{"lower_case_table_names": "0", "gtid_mode": "OFF"})
	e.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionFalse, "expected 1, as in the existing data directories, found 0")
	e.waitForCondition(t, mocov1beta2.SpecFullySupportedCondition, metav1.ConditionFalse, "gtid_mode")
	testenv.ExpectEqual(t, "configuration of the Pods", used, e.statefulSet(t).Spec.Template.Spec.Volumes[3].ConfigMap.Name)
	setData(map[string]string{"lower_case_table_names": "1", "long_query_time": "5"})
	e.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionTrue)
	e.waitForCondition(t, mocov1beta2.SpecFullySupportedCondition, metav1.ConditionTrue)
}

func TestConfigurationStaysWhileAPodUsesIt(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	settings := &corev1.ConfigMap{ObjectMeta: e.meta("mycnf"), Data: map[string]string{"long_query_time": "5"}}
	e.ExpectCreated(t, settings)
	e.addCluster(t, func(c *mocov1beta2.MySQLCluster) { c.Spec.MySQLConfigMapName = new("mycnf") })
	e.waitUntilReconciled(t)
	used := e.statefulSet(t).Spec.Template.Spec.Volumes[3].ConfigMap.Name
	e.addPod(t, 0, "one")
	settings.Data["long_query_time"] = "6"
	testenv.ExpectNoError(t, e.Client.Update(t.Context(), settings))
	testenv.Eventually(t, "the Pods get another configuration", func() error {
		return testenv.ErrorIf(e.statefulSet(t).Spec.Template.Spec.Volumes[3].ConfigMap.Name == used, "not yet")
	})
	e.reportRevision(t, "two")
	e.waitUntilSettled(t, func() error { return nil })
	if err := e.get(t, used, &corev1.ConfigMap{}); err != nil {
		t.Errorf("a configuration is gone although a Pod uses it: %v", err)
	}
	e.deletePod(t, 0)
	e.waitUntilGone(t, used, &corev1.ConfigMap{})
}

func TestExistingPasswordsStay(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.ExpectCreated(t, &corev1.Secret{
		ObjectMeta: e.meta("moco-test"), StringData: map[string]string{"ADMIN_PASSWORD": "mine"},
	})
	e.addCluster(t, nil)
	e.waitUntilReconciled(t)
	secret := &corev1.Secret{}
	testenv.ExpectNoError(t, e.get(t, "moco-test", secret))
	if string(secret.Data["ADMIN_PASSWORD"]) != "mine" || len(secret.Data["WRITABLE_PASSWORD"]) < 16 || len(secret.Data) != 8 {
		t.Errorf("expected eight passwords and the first as it was, found %d keys", len(secret.Data))
	}
	// Upstream's plugin rejects a Secret without this annotation: "does not have valid annotation".
	if got := secret.Annotations["moco.cybozu.com/secret-version"]; got != "1" {
		t.Errorf("expected the annotation of upstream's plugin with the value 1, found %q", got)
	}
}

func TestClusterIsReadyAgainAfterItsPasswordsChange(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.addCluster(t, nil)
	e.waitUntilReconciled(t)
	e.reportRevision(t, "one")
	for i := range 3 {
		e.addPod(t, i, "one")
	}
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionTrue)
	testenv.ExpectPatched(t, e.Environment, &corev1.Secret{ObjectMeta: e.meta("moco-test")}, func(s *corev1.Secret) {
		s.StringData = map[string]string{"AGENT_PASSWORD": "another"}
	})
	e.annotate(t, "example.com/looked", "at")
	e.waitUntilSettled(t, func() error {
		files := &corev1.Secret{}
		err := e.get(t, "moco-my-cnf-test", files)
		return errors.Join(err, testenv.ErrorIf(!strings.Contains(string(files.Data["moco-agent-my.cnf"]), "another"), "expected the new password, found another"))
	})
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionTrue)
}

func TestRefusedObjectIsReported(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.addCluster(t, func(c *mocov1beta2.MySQLCluster) {
		testenv.ExpectNoError(t, c.Spec.PodTemplate.Spec.UnmarshalJSON([]byte(`{"containers": [{"name": "mysqld", "image": "mysql", "fieldOfTomorrow": 1}]}`)))
	})
	e.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionFalse, "StatefulSet moco-test", "fieldOfTomorrow")
	if err := e.get(t, "moco-test", &corev1.Service{}); err != nil {
		t.Errorf("one refusal kept another object from being made: %v", err)
	}
}

// TestVolumesGrow grows a volume, first with a StorageClass that does not allow it. The test acts as the garbage
// collector.
func TestVolumesGrow(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: e.name.Namespace}, Provisioner: "example.com/disk"}
	e.ExpectCreated(t, class)
	size := func(text string) func(c *mocov1beta2.MySQLCluster) {
		return func(c *mocov1beta2.MySQLCluster) {
			c.Spec.VolumeClaimTemplates[0].Spec = corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class.Name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}},
			}
		}
	}
	e.addCluster(t, size("1Gi"))
	e.waitUntilReconciled(t)
	set := e.statefulSet(t)
	e.reportRevision(t, "one")
	var pods [3]corev1.Pod
	for i := range pods {
		e.addPod(t, i, "one")
		testenv.ExpectNoError(t, e.get(t, podName(i), &pods[i]))
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: e.meta("mysql-data-" + podName(i)), Spec: set.Spec.VolumeClaimTemplates[0].Spec}
		claim.Spec.VolumeName = "disk"
		e.ExpectCreated(t, claim)
		before := claim.DeepCopy()
		claim.Status.Phase = corev1.ClaimBound
		testenv.ExpectNoError(t, e.Client.Status().Patch(t.Context(), claim, client.MergeFrom(before)))
	}
	e.changeCluster(t, size("2Gi"))
	e.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionFalse, "allowVolumeExpansion: true", "mysql-data-moco-test-0")
	if found := e.statefulSet(t); found.UID != set.UID || !found.DeletionTimestamp.IsZero() {
		t.Errorf("expected the StatefulSet to stay while its claims cannot grow, found %+v", found.ObjectMeta)
	}
	testenv.ExpectPatched(t, e.Environment, class, func(c *storagev1.StorageClass) { c.AllowVolumeExpansion = new(true) })
	e.annotate(t, "example.com/touched", "now")
	e.waitUntilSetIsReplaced(t, set)
	e.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionTrue)
	for i := range pods {
		claim, pod := &corev1.PersistentVolumeClaim{}, &corev1.Pod{}
		testenv.ExpectNoError(t, errors.Join(e.get(t, "mysql-data-"+podName(i), claim), e.get(t, podName(i), pod)))
		if found := claim.Spec.Resources.Requests.Storage().String(); found != "2Gi" || pod.UID != pods[i].UID {
			t.Errorf("expected a claim of 2Gi and the same Pod, found %s and %s instead of %s", found, pod.UID, pods[i].UID)
		}
	}
	if found := e.statefulSet(t).Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage().String(); found != "2Gi" {
		t.Errorf("expected new Pods to get 2Gi, found %s", found)
	}
	// As in MOCO, the growth of all claims of a cluster increments the counter once.
	e.expectMetrics(t, map[string]float64{"moco_cluster_volume_resized_total": 1, "moco_cluster_statefulset_recreate_total": 1})
	if failed := e.gatherMetrics(t)["moco_cluster_volume_resized_errors_total"]; failed == 0 {
		t.Error("expected the refused growth to be counted")
	}
}

// TestClaimTemplatesShrink reduces the size of a claim template, which is a step of MOCO's procedure for smaller
// volumes. The test acts as the garbage collector.
func TestClaimTemplatesShrink(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	size := func(text string) func(c *mocov1beta2.MySQLCluster) {
		return func(c *mocov1beta2.MySQLCluster) {
			c.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
		}
	}
	e.addCluster(t, size("2Gi"))
	e.waitUntilReconciled(t)
	set := e.statefulSet(t)
	e.reportRevision(t, "one")
	e.addPod(t, 0, "one")
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: e.meta("mysql-data-" + podName(0)), Spec: set.Spec.VolumeClaimTemplates[0].Spec}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	e.ExpectCreated(t, claim)
	for i, text := range []string{"1Gi", "2Gi"} {
		e.changeCluster(t, size(text))
		e.waitUntilSetIsReplaced(t, set)
		e.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionTrue)
		set = e.statefulSet(t)
		testenv.ExpectNoError(t, e.get(t, claim.Name, claim))
		template := set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage().String()
		if found := claim.Spec.Resources.Requests.Storage().String(); template != text || found != "2Gi" {
			t.Errorf("expected a template of %s and the claim of 2Gi, found %s and %s", text, template, found)
		}
		e.expectMetrics(t, map[string]float64{"moco_cluster_statefulset_recreate_total": float64(i + 1)})
	}
	if resized, ok := e.gatherMetrics(t)["moco_cluster_volume_resized_total"]; ok {
		t.Errorf("expected no claim to grow, found %v growths", resized)
	}
}

// waitUntilSetIsReplaced waits until the StatefulSet is deleted without its Pods, and created again. It acts as the
// garbage collector.
func (e *clusterEnv) waitUntilSetIsReplaced(t *testing.T, set *appsv1.StatefulSet) {
	t.Helper()
	testenv.Eventually(t, "the StatefulSet is deleted without its Pods, and created again", func() error {
		found := &appsv1.StatefulSet{}
		if err := e.get(t, "moco-test", found); err != nil {
			return err
		}
		if !found.DeletionTimestamp.IsZero() && slices.Contains(found.Finalizers, metav1.FinalizerOrphanDependents) {
			testenv.ExpectPatched(t, e.Environment, found, func(s *appsv1.StatefulSet) { s.Finalizers = nil })
		}
		return testenv.ErrorIf(found.UID == set.UID, "it is the old one")
	})
}

// TestClaimTemplatesAreLabelled adds a label and an annotation to a claim template. The test acts as the garbage
// collector.
func TestClaimTemplatesAreLabelled(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.addCluster(t, func(*mocov1beta2.MySQLCluster) {})
	e.waitUntilReconciled(t)
	set := e.statefulSet(t)
	e.reportRevision(t, "one")
	e.addPod(t, 0, "one")
	pod := &corev1.Pod{}
	testenv.ExpectNoError(t, e.get(t, podName(0), pod))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: e.meta("mysql-data-" + podName(0)), Spec: set.Spec.VolumeClaimTemplates[0].Spec}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	e.ExpectCreated(t, claim)
	e.changeCluster(t, func(c *mocov1beta2.MySQLCluster) {
		c.Spec.VolumeClaimTemplates[0].Labels, c.Spec.VolumeClaimTemplates[0].Annotations = map[string]string{"foo": "bar"}, map[string]string{"note": "kept"}
	})
	e.waitUntilSetIsReplaced(t, set)
	e.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionTrue)
	found := &corev1.Pod{}
	testenv.ExpectNoError(t, errors.Join(e.get(t, claim.Name, claim), e.get(t, podName(0), found)))
	template := e.statefulSet(t).Spec.VolumeClaimTemplates[0]
	for of, meta := range map[string]metav1.ObjectMeta{"the template": template.ObjectMeta, "the existing claim": claim.ObjectMeta} {
		if isOnlyLabel := of != "the template" || len(meta.Labels) == 1; !isOnlyLabel || meta.Labels["foo"] != "bar" || meta.Annotations["note"] != "kept" {
			t.Errorf("expected the label and the annotation of %s, found %v and %v", of, meta.Labels, meta.Annotations)
		}
	}
	testenv.ExpectEqual(t, "Pod", pod.UID, found.UID)
}

// TestImageThatCannotBePulledIsNamed checks that the status includes the kubelet's report.
func TestImageThatCannotBePulledIsNamed(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.addCluster(t, func(*mocov1beta2.MySQLCluster) {})
	e.waitUntilReconciled(t)
	e.reportRevision(t, "one")
	e.addPod(t, 0, "one")
	pod := &corev1.Pod{}
	testenv.ExpectNoError(t, e.get(t, podName(0), pod))
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "Back-off pulling image, attempt 7"}}
	}
	report := func(status corev1.ContainerStatus) {
		before := pod.DeepCopy()
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "proxy", Image: "proxy", State: waiting("ContainerCreating")}, status}
		testenv.ExpectNoError(t, e.Client.Status().Patch(t.Context(), pod, client.MergeFrom(before)))
	}
	report(corev1.ContainerStatus{Name: "mysqld", Image: "mysql:invalid", State: waiting("ImagePullBackOff")})
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionFalse, "Pod "+podName(0)+": the image mysql:invalid of the mysqld container cannot be pulled")
	report(corev1.ContainerStatus{Name: "mysqld", Image: "mysql", State: waiting("CreateContainerConfigError")})
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionFalse, "the mysqld container cannot be created (CreateContainerConfigError)", "kubectl describe pod")
}

// TestSmallerReplicasRemoveNoInstance covers a cluster of three instances whose spec requests one. Upstream's schema
// allows this if there is no webhook.
func TestSmallerReplicasRemoveNoInstance(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.addCluster(t, func(c *mocov1beta2.MySQLCluster) { c.Spec.Replicas = 1 })
	e.reportHealthy(t, 2)
	e.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionFalse, "expected at least 3", "found 1", "all instances keep running")
	testenv.Eventually(t, "the StatefulSet has three Pods", func() error {
		found := *e.statefulSet(t).Spec.Replicas
		return testenv.ErrorIf(found != 3, "found %d", found)
	})
}

func TestOfflineClusterHasNoPods(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.addCluster(t, func(c *mocov1beta2.MySQLCluster) { c.Spec.Offline = true })
	e.waitUntilReconciled(t)
	if n := *e.statefulSet(t).Spec.Replicas; n != 0 {
		t.Errorf("expected no replicas, found %d", n)
	}
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionTrue)
}

// TestClusterStoppedByASlumberHasNoPods covers a cluster with one Pod that a Slumber stops and restarts.
func TestClusterStoppedByASlumberHasNoPods(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.addCluster(t, nil)
	e.waitUntilReconciled(t)
	e.addPod(t, 0, "one")
	stops := func(list string) {
		t.Helper()
		testenv.ExpectNoError(t, e.Client.Status().Patch(t.Context(), e.cluster(t), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status": {"scheduledStops": %s}}`, list))))
	}
	expect := func(what string, replicas int32, isOffline bool) {
		t.Helper()
		testenv.Eventually(t, what, func() error {
			c, set := e.cluster(t), e.statefulSet(t)
			return testenv.ErrorIf(*set.Spec.Replicas != replicas || (c.Status.OfflineSince != nil) != isOffline || c.Spec.Offline,
				"found %d replicas, offline since %v, spec.offline %t", *set.Spec.Replicas, c.Status.OfflineSince, c.Spec.Offline)
		})
	}
	stops(`[{"slumber": "nights", "stops": [{"since": "2026-11-24T20:00:00Z", "by": "Slumber nights", "requested": true}]}]`)
	expect("no Pod is wanted, and one is left", 0, false)
	e.deletePod(t, 0)
	expect("no Pod is left", 0, true)
	stops(`[{"slumber": "nights", "stops": [{"since": "2026-11-24T20:00:00Z", "by": "Slumber nights", "endedAt": "2026-11-25T06:00:00Z"}]}]`)
	expect("all Pods are wanted again", 3, false)
}

func TestExamplesAreAccepted(t *testing.T) {
	files, err := filepath.Glob("../../../../api/moco/v1beta2/testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("expected upstream's examples, found %d (%v)", len(files), err)
	}
	for _, file := range files {
		if filepath.Base(file) == "every-field.yaml" { // Torpor added this file for the fields that upstream's examples lack.
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			expectExampleAccepted(t, newClusterEnv(t, shared.Get(t)), file)
		})
	}
}

func expectExampleAccepted(t *testing.T, e *clusterEnv, file string) {
	t.Helper()
	f, err := os.Open(file)
	testenv.ExpectNoError(t, err)
	defer func() { _ = f.Close() }()
	clusters := 0
	for d := yaml.NewYAMLOrJSONDecoder(f, 1<<16); ; {
		u := &unstructured.Unstructured{}
		err := d.Decode(u)
		if errors.Is(err, io.EOF) {
			break
		}
		testenv.ExpectNoError(t, err)
		if u.Object == nil {
			continue
		}
		u.SetNamespace(e.name.Namespace)
		e.ExpectCreated(t, u)
		if u.GetKind() == "MySQLCluster" {
			e.name.Name, clusters = u.GetName(), clusters+1
		}
	}
	if clusters == 0 {
		t.Skip("the example has no MySQLCluster")
	}
	e.waitUntilReconciled(t)
	e.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionTrue)
}

// startRollout creates a healthy cluster of three instances, with instance 1 as the primary, and then changes the
// template.
func (e *clusterEnv) startRollout(t *testing.T) {
	t.Helper()
	e.addCluster(t, nil)
	e.waitUntilReconciled(t)
	e.reportRevision(t, "one")
	for i := range 3 {
		e.addPod(t, i, "one")
	}
	e.reportHealthy(t, 1)
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionTrue)
	e.setImage(t, "mysql:2")
	e.waitUntilReconciled(t)
}

func (e *clusterEnv) waitUntilReplaced(t *testing.T, i int) {
	t.Helper()
	e.waitUntilGone(t, podName(i), &corev1.Pod{})
	for other := range 3 {
		if err := e.get(t, podName(other), &corev1.Pod{}); other != i && err != nil {
			t.Errorf("while Pod %d is replaced, Pod %d: %v", i, other, err)
		}
	}
	e.addPod(t, i, "two")
}

func TestRolloutReplacesThePrimaryLast(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.startRollout(t)
	e.reportRevision(t, "two")
	e.waitUntilReplaced(t, 2)
	e.waitUntilReplaced(t, 0)
	e.expectMetrics(t, map[string]float64{"moco_cluster_updated_replicas": 2, "moco_cluster_current_replicas": 1})
	testenv.Eventually(t, "a switchover is requested", func() error {
		pod := &corev1.Pod{}
		if err := e.get(t, podName(1), pod); err != nil {
			t.Fatalf("the primary's Pod: %v", err)
		}
		return testenv.ErrorIf(pod.Annotations[mocov1beta2.DemoteAnnotation] != "true", "the primary's Pod has no annotation")
	})
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionFalse, "switchover", podName(1))
	e.reportHealthy(t, 0)
	e.waitUntilReplaced(t, 1)
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionTrue)
	testenv.Eventually(t, "events report replaced Pods", func() error {
		return testenv.ErrorIf(e.countEvents(t, podReplaced) == 0, "found none")
	})
	e.expectMetrics(t, map[string]float64{"moco_cluster_updated_replicas": 3, "moco_cluster_current_replicas": 3})
	if at := e.gatherMetrics(t)["moco_cluster_last_partition_updated"]; time.Since(time.Unix(int64(at), 0)) > time.Hour {
		t.Errorf("expected the time of the last replacement, found %v", at)
	}
}

// TestForcedRolloutNeedsNoHealth covers a cluster that becomes healthy only after its primary's Pod is replaced.
func TestForcedRolloutNeedsNoHealth(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.startRollout(t)
	e.reportHealth(t, 1, metav1.ConditionFalse)
	e.reportRevision(t, "two")
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionFalse, "until the cluster is healthy", mocov1beta2.ForceRolloutAnnotation)
	e.annotate(t, mocov1beta2.ForceRolloutAnnotation, "yes")
	e.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionTrue, mocov1beta2.ForceRolloutAnnotation, `expected "true", found "yes"`)
	e.waitUntilSettled(t, func() error { return nil })
	for i := range 3 {
		testenv.ExpectNoError(t, e.get(t, podName(i), &corev1.Pod{}))
	}
	e.annotate(t, mocov1beta2.ForceRolloutAnnotation, "true")
	e.waitUntilReplaced(t, 2)
	e.waitUntilReplaced(t, 0)
	e.waitUntilReplaced(t, 1)
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionTrue, "remove the annotation "+mocov1beta2.ForceRolloutAnnotation)
	e.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionTrue)
	if message := meta.FindStatusCondition(e.cluster(t).Status.Conditions, mocov1beta2.ReconciliationActiveCondition).Message; message != "" {
		t.Errorf("expected no annotation that is ignored, found %q", message)
	}
	testenv.Eventually(t, "events report forced steps", func() error {
		return testenv.ErrorIf(e.countEvents(t, rolloutForced) == 0, "found none")
	})
}

// TestAnotherVersionOfTorporReplacesNoPods covers Pods with a template that another version created from the same spec.
func TestAnotherVersionOfTorporReplacesNoPods(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.addCluster(t, nil)
	e.waitUntilReconciled(t)
	for i := range 3 {
		e.addPod(t, i, "one")
	}
	e.reportHealthy(t, 1)
	e.reportRevision(t, "two")
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionTrue, "another version of Torpor", podName(2), "kubectl rollout restart statefulset moco-test")
	e.waitUntilSettled(t, func() error { return nil })
	for i := range 3 {
		testenv.ExpectNoError(t, e.get(t, podName(i), &corev1.Pod{}))
	}
	t.Log("A restart that the user requests is an ordinary rollout.")
	testenv.ExpectPatched(t, e.Environment, e.statefulSet(t), func(s *appsv1.StatefulSet) {
		s.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] = "2126-11-20T22:00:00Z"
	})
	e.waitUntilSettled(t, func() error { return nil })
	e.reportRevision(t, "three")
	e.waitUntilGone(t, podName(2), &corev1.Pod{})
}

// TestRolloutWaitsForFrozenClustering covers a condition Healthy that clustering has not updated since a Pod was
// replaced.
func TestRolloutWaitsForFrozenClustering(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.startRollout(t)
	e.reportRevision(t, "two")
	e.waitUntilGone(t, podName(2), &corev1.Pod{})
	e.addUnservedPod(t, 2, "two")
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionFalse, "until clustering sets the role label of Pod moco-test-2")
	for other := range 3 {
		testenv.ExpectNoError(t, e.get(t, podName(other), &corev1.Pod{}))
	}
	e.letClientsFind(t, 2)
	e.waitUntilReplaced(t, 0)
}

func TestRolloutWaitsWhileClusteringIsStopped(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.startRollout(t)
	e.annotate(t, mocov1beta2.ClusteringStoppedAnnotation, "true")
	e.reportRevision(t, "two")
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionFalse,
		"the rollout waits while clustering is stopped", podName(0), "kubectl moco start clustering test")
	e.waitUntilSettled(t, func() error { return nil })
	for i := range 3 {
		if err := e.get(t, podName(i), &corev1.Pod{}); k8serrors.IsNotFound(err) {
			t.Errorf("Pod %d is replaced while clustering is stopped", i)
		}
	}
	e.annotate(t, mocov1beta2.ClusteringStoppedAnnotation, "")
	e.waitUntilReplaced(t, 2)
}

// TestAFailingReconcileDoesNotDelayAStop runs both controllers of the kind. In upstream, a stop takes effect only after
// everything else has succeeded.
func TestAFailingReconcileDoesNotDelayAStop(t *testing.T) {
	t.Parallel()
	both := newTestEnv(t)
	both.startClustering(t)
	e := newClusterEnv(t, both)
	e.addCluster(t, func(c *mocov1beta2.MySQLCluster) { c.Spec.MySQLConfigMapName = new("missing") })
	e.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionFalse, "missing")
	e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, metav1.ConditionTrue)
	e.annotate(t, mocov1beta2.ClusteringStoppedAnnotation, "true")
	e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, metav1.ConditionFalse)
	e.annotate(t, mocov1beta2.ReconciliationStoppedAnnotation, "true")
	e.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionFalse)
	stops := e.cluster(t).Status.Pause
	if stops == nil || stops.Clustering == nil || stops.Reconciliation == nil {
		t.Errorf("expected both stops in status.pause, found %+v", stops)
	}
	e.annotate(t, mocov1beta2.ClusteringStoppedAnnotation, "")
	e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, metav1.ConditionTrue)
	e.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionFalse)
	if p := e.cluster(t).Status.Pause; p == nil || p.Reconciliation == nil {
		t.Errorf("the other controller has dropped a stop: %+v", p)
	}
}

var (
	suite  testenv.Suite
	shared = testenv.NewShared(&suite, newTestEnv)
)

func TestMain(m *testing.M) {
	testenv.SetParallel(8)
	log.SetLogger(logr.Discard())
	os.Exit(suite.Run(m))
}

// testEnv is an API server with a manager. The tests act as the StatefulSet controller and the kubelet.
type testEnv struct {
	*testenv.Environment
	requests *requestRecorder
	metrics  *Metrics
}

func newTestEnv(t testing.TB) *testEnv {
	t.Helper()
	e := &testEnv{Environment: testenv.Start(t), metrics: NewMetrics(), requests: &requestRecorder{underWay: map[string]int{}, lastEnded: map[string]time.Time{}}}
	startManager(t, e.WithTransport(func(next http.RoundTripper) http.RoundTripper {
		e.requests.next = next
		return e.requests
	}), Controller{Clock: clock.RealClock{}, Metrics: e.metrics, ExporterImage: "exporter:1"}.SetupWithManager)
	return e
}

// startManager starts a manager that, like the real one, does not cache Secrets.
func startManager(t testing.TB, env *testenv.Environment, setup func(manager.Manager) error) {
	t.Helper()
	testenv.StartManager(t, env, setup, func(o *manager.Options) {
		o.Client = client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}}
	})
}

// startClustering also runs the clustering controller.
func (e *testEnv) startClustering(t *testing.T) {
	t.Helper()
	startManager(t, e.Environment, clusteringcontroller.Controller{
		HostOf: clusteringcontroller.ServiceHost, Clock: clock.RealClock{}, Metrics: clusteringcontroller.NewMetrics(),
	}.SetupWithManager)
}

// requestRecorder records the manager's writes, except events, and the time of its last request.
type requestRecorder struct {
	mu     sync.Mutex
	next   http.RoundTripper
	writes []string
	// underWay is the number of requests in progress by namespace, and lastEnded the time at which the latest request
	// of a namespace ended.
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

// quietFor returns the time since the last request in a namespace; 0 while a request is in progress.
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

// expectMetrics waits until the metrics of the cluster have the given values.
func (e *clusterEnv) expectMetrics(t *testing.T, want map[string]float64) {
	t.Helper()
	testenv.Eventually(t, "the metrics have the expected values", func() error {
		found := e.gatherMetrics(t)
		for name, value := range want {
			if found[name] != value {
				return fmt.Errorf("%s: expected %v, found %v", name, value, found[name])
			}
		}
		return nil
	})
}

// gatherMetrics returns the metrics for the cluster's namespace, by name.
func (e *clusterEnv) gatherMetrics(t *testing.T) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(e.metrics)
	families, err := registry.Gather()
	testenv.ExpectNoError(t, err)
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "namespace" && label.GetValue() == e.name.Namespace {
					found[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	return found
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

// annotate sets an annotation; an empty value removes it.
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

// waitForCondition waits until a condition has a status, and its message contains the given words.
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

// waitUntilReconciled waits until the newest spec is applied to every object and no more writes follow.
func (e *clusterEnv) waitUntilReconciled(t *testing.T) {
	t.Helper()
	e.waitUntilSettled(t, func() error {
		c := e.cluster(t)
		return testenv.ErrorIf(c.Status.ReconcileInfo.Generation != c.Generation, "generation %d is reconciled, not %d", c.Status.ReconcileInfo.Generation, c.Generation)
	})
}

// waitUntilSettled waits until holds returns nil and the manager has not sent a request for one second. On a slow
// machine a request may take longer, but then the next one follows immediately.
func (e *clusterEnv) waitUntilSettled(t *testing.T, holds func() error) {
	t.Helper()
	const quiet = time.Second
	began := time.Now()
	testenv.Eventually(t, "it settles", func() error {
		if err := holds(); err != nil {
			return err
		}
		return testenv.ErrorIf(min(e.requests.quietFor(e.name.Namespace), time.Since(began)) < quiet, "something was asked for just now")
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

// reportRevision reports that the template was observed, as the StatefulSet controller does.
func (e *clusterEnv) reportRevision(t *testing.T, revision string) {
	t.Helper()
	set := e.statefulSet(t)
	before := set.DeepCopy()
	set.Status.ObservedGeneration, set.Status.UpdateRevision, set.Status.Replicas = set.Generation, revision, 3
	testenv.ExpectNoError(t, e.Client.Status().Patch(t.Context(), set, client.MergeFrom(before)))
}

func podName(i int) string { return fmt.Sprintf("moco-test-%d", i) }

// addPod creates a Pod as the StatefulSet controller would. The Pod has been ready for a while and has a role label.
func (e *clusterEnv) addPod(t *testing.T, i int, revision string) {
	t.Helper()
	e.addUnservedPod(t, i, revision)
	e.letClientsFind(t, i)
}

// letClientsFind sets a Pod's role label, as clustering does once the Pod replicates.
func (e *clusterEnv) letClientsFind(t *testing.T, i int) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata": {"labels": {%q: "replica"}}}`, mocov1beta2.RoleLabel)
	testenv.ExpectNoError(t, e.Client.Patch(t.Context(), &corev1.Pod{ObjectMeta: e.meta(podName(i))}, client.RawPatch(types.MergePatchType, patch)))
}

func (e *clusterEnv) addUnservedPod(t *testing.T, i int, revision string) {
	t.Helper()
	template := e.statefulSet(t).Spec.Template
	pod := &corev1.Pod{
		ObjectMeta: e.meta(podName(i)),
		Spec:       *template.Spec.DeepCopy(),
	}
	pod.Labels, pod.Annotations = template.Labels, template.Annotations
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
	e.reportHealth(t, primary, metav1.ConditionTrue)
}

// reportHealth sets the status as clustering would.
func (e *clusterEnv) reportHealth(t *testing.T, primary int, healthy metav1.ConditionStatus) {
	t.Helper()
	testenv.Eventually(t, "the status is written", func() error {
		c := e.cluster(t)
		before := c.DeepCopy()
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: mocov1beta2.HealthyCondition, Status: healthy, Reason: "Healthy"})
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
