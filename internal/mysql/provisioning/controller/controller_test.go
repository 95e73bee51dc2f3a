// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// TestController shares one API server; every story has a namespace of its own.
func TestController(t *testing.T) {
	w := newTestEnv(t)
	for name, story := range map[string]func(*testing.T, *clusterEnv){
		"everything is made, and nothing is written twice":   testObjectsAreMade,
		"what others change or delete comes back":            testDriftIsUndone,
		"a stop of reconciliation keeps everything as it is": testReconciliationStop,
		"what is stopped is deleted all the same":            testDeletionWhileStopped,
		"a missing ConfigMap is told, and made good":         testMissingConfigMap,
		"a rollout goes on one by one, the primary last":     testRollout,
		"a rollout waits while clustering is stopped":        testRolloutWhileClusteringStops,
		"passwords that are there stay":                      testPasswordsStay,
		"what the API server refuses is told":                testRefusedObject,
		"a configuration stays while a Pod uses it":          testUsedConfigMapStays,
		"offline means no Pods":                              testOfflineCluster,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story(t, w.newCluster(t))
		})
	}
	for _, file := range exampleFiles(t) {
		t.Run("the example "+filepath.Base(file)+" is accepted", func(t *testing.T) {
			t.Parallel()
			testExample(t, w.newCluster(t), file)
		})
	}
}

func testObjectsAreMade(t *testing.T, s *clusterEnv) {
	s.addCluster(t, nil)
	s.waitUntilReconciled(t)
	c := s.cluster(t)
	if !controllerutil.ContainsFinalizer(c, mocov1beta2.Finalizer) || c.Spec.ServerIDBase <= 0 {
		t.Errorf("expected the finalizer and server ids, found %q and %d", c.Finalizers, c.Spec.ServerIDBase)
	}
	set := s.statefulSet(t)
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
		if err := s.get(t, name, obj); err != nil {
			t.Errorf("%T %s: %v", obj, name, err)
		} else if !metav1.IsControlledBy(obj, c) {
			t.Errorf("%T %s is not owned by the cluster", obj, name)
		}
	}
	for _, obj := range []client.Object{&corev1.ServiceAccount{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}} {
		if err := s.get(t, "moco-test", obj); err != nil {
			t.Errorf("%T: %v", obj, err)
		}
	}
	s.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionTrue)
	s.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionTrue)
	s.waitForCondition(t, mocov1beta2.SpecFullySupportedCondition, metav1.ConditionTrue)
	s.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionFalse, "has not seen the newest template")
	before := s.requests.writesIn(s.name.Namespace)
	s.annotate(t, "example.com/look", "again")
	s.waitUntilSettled(t, func() error { return nil })
	if diff := cmp.Diff(before, s.requests.writesIn(s.name.Namespace)); diff != "" {
		t.Errorf("a pass with nothing to do writes (-before +after):\n%s", diff)
	}
}

func testDriftIsUndone(t *testing.T, s *clusterEnv) {
	s.addCluster(t, nil)
	s.waitUntilReconciled(t)
	service := &corev1.Service{}
	if err := s.get(t, "moco-test-primary", service); err != nil {
		t.Fatal(err)
	}
	if err := s.hub.Client.Delete(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the Service is back", func() error { return s.get(t, "moco-test-primary", &corev1.Service{}) })
	set := s.statefulSet(t)
	before := set.DeepCopy()
	set.Spec.Template.Spec.Containers[0].Image = "other"
	if err := s.hub.Client.Patch(t.Context(), set, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the image is back", func() error { return s.expectImage(t, "mysql:1") })
}

func (s *clusterEnv) expectImage(t *testing.T, want string) error {
	t.Helper()
	if found := s.statefulSet(t).Spec.Template.Spec.Containers[0].Image; found != want {
		return fmt.Errorf("expected the image %s, found %s", want, found)
	}
	return nil
}

func (s *clusterEnv) setImage(t *testing.T, image string) {
	t.Helper()
	s.changeCluster(t, func(c *mocov1beta2.MySQLCluster) {
		raw := strings.ReplaceAll(string(c.Spec.PodTemplate.Spec.Raw), "mysql:1", image)
		if err := c.Spec.PodTemplate.Spec.UnmarshalJSON([]byte(raw)); err != nil {
			t.Fatal(err)
		}
	})
}

func testReconciliationStop(t *testing.T, s *clusterEnv) {
	s.addCluster(t, nil)
	s.waitUntilReconciled(t)
	t.Log("Another value than true stops nothing, and is told once.")
	s.annotate(t, mocov1beta2.ReconciliationStoppedAnnotation, "yes")
	s.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionTrue, "is ignored", `found "yes"`)
	s.annotate(t, "example.com/look", "again")
	s.waitUntilSettled(t, func() error { return nil })
	if n := s.countEvents(t, annotationIgnored); n != 1 {
		t.Errorf("expected one event, found %d", n)
	}

	t.Log("A stop says who, why and until when, and nothing but the status is written.")
	s.annotate(t, torporv1alpha1.ReasonAnnotation, "moving disks")
	s.annotate(t, torporv1alpha1.UntilAnnotation, "2126-11-20T22:00:00Z")
	s.annotate(t, mocov1beta2.ReconciliationStoppedAnnotation, "true")
	s.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionFalse, "by kubectl-moco", "moving disks", "2126-11-20T22:00:00Z", "kubectl moco start reconciliation test")
	before := len(s.requests.writesIn(s.name.Namespace))
	s.setImage(t, "mysql:2")
	if err := s.hub.Client.Delete(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: "moco-test-primary"}}); err != nil {
		t.Fatal(err)
	}
	s.waitUntilSettled(t, func() error { return nil })
	for _, one := range s.requests.writesIn(s.name.Namespace)[before:] {
		if !strings.HasSuffix(one, "/mysqlclusters/test/status") {
			t.Errorf("written while stopped: %s", one)
		}
	}
	if err := s.expectImage(t, "mysql:1"); err != nil {
		t.Error(err)
	}
	record := s.cluster(t).Status.Pause
	if record == nil || record.Reconciliation == nil || record.Reconciliation.By != "kubectl-moco" || record.Reconciliation.Reason != "moving disks" || record.Reconciliation.Until == nil {
		t.Errorf("expected who, why and until when in status.pause, found %+v", record)
	}

	t.Log("A start catches up.")
	s.annotate(t, mocov1beta2.ReconciliationStoppedAnnotation, "")
	s.waitUntilReconciled(t)
	s.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionTrue)
	if err := errors.Join(s.expectImage(t, "mysql:2"), s.get(t, "moco-test-primary", &corev1.Service{})); err != nil {
		t.Error(err)
	}
	if p := s.cluster(t).Status.Pause; p != nil {
		t.Errorf("expected no record of a stop, found %+v", p)
	}
}

// countEvents counts those with a reason.
func (s *clusterEnv) countEvents(t *testing.T, reason string) int {
	t.Helper()
	var list eventsv1.EventList
	if err := s.hub.Client.List(t.Context(), &list, client.InNamespace(s.name.Namespace)); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range list.Items {
		if e.Reason == reason {
			n++
		}
	}
	return n
}

func testDeletionWhileStopped(t *testing.T, s *clusterEnv) {
	s.addCluster(t, nil)
	s.waitUntilReconciled(t)
	s.addPod(t, 0, "one")
	s.annotate(t, mocov1beta2.ReconciliationStoppedAnnotation, "true")
	s.annotate(t, mocov1beta2.ClusteringStoppedAnnotation, "true")
	s.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionFalse)
	if err := s.hub.Client.Delete(t.Context(), s.cluster(t)); err != nil {
		t.Fatal(err)
	}
	s.waitUntilGone(t, "moco-test", &appsv1.StatefulSet{})
	if !controllerutil.ContainsFinalizer(s.cluster(t), mocov1beta2.Finalizer) {
		t.Error("the finalizer is gone although a Pod is there")
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: podName(0)}}
	if err := s.hub.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s.waitUntilGone(t, s.name.Name, &mocov1beta2.MySQLCluster{})
}

func testMissingConfigMap(t *testing.T, s *clusterEnv) {
	s.addCluster(t, func(c *mocov1beta2.MySQLCluster) { c.Spec.MySQLConfigMapName = new("mycnf") })
	s.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionFalse, "expected the ConfigMap mycnf", "make it or remove the field")
	s.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionFalse, "no StatefulSet")
	s.create(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: "mycnf"}, Data: map[string]string{"long_query_time": "5", "read-only": "OFF"},
	})
	s.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionTrue, "not heeded", "read-only")
	config := &corev1.ConfigMap{}
	if err := s.get(t, s.statefulSet(t).Spec.Template.Spec.Volumes[3].ConfigMap.Name, config); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(config.Data["my.cnf"], "long_query_time=5\n") {
		t.Errorf("the setting is missing in:\n%s", config.Data["my.cnf"])
	}
}

func testUsedConfigMapStays(t *testing.T, s *clusterEnv) {
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: "mycnf"}, Data: map[string]string{"long_query_time": "5"}}
	s.create(t, settings)
	s.addCluster(t, func(c *mocov1beta2.MySQLCluster) { c.Spec.MySQLConfigMapName = new("mycnf") })
	s.waitUntilReconciled(t)
	used := s.statefulSet(t).Spec.Template.Spec.Volumes[3].ConfigMap.Name
	s.addPod(t, 0, "one")
	settings.Data["long_query_time"] = "6"
	if err := s.hub.Client.Update(t.Context(), settings); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the Pods get another configuration", func() error {
		if s.statefulSet(t).Spec.Template.Spec.Volumes[3].ConfigMap.Name == used {
			return errors.New("not yet")
		}
		return nil
	})
	s.reportRevision(t, "two")
	s.waitUntilSettled(t, func() error { return nil })
	if err := s.get(t, used, &corev1.ConfigMap{}); err != nil {
		t.Errorf("a configuration is gone although a Pod uses it: %v", err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: podName(0)}}
	if err := s.hub.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s.waitUntilGone(t, used, &corev1.ConfigMap{})
}

func testPasswordsStay(t *testing.T, s *clusterEnv) {
	s.create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: "moco-test"}, StringData: map[string]string{"ADMIN_PASSWORD": "mine"},
	})
	s.addCluster(t, nil)
	s.waitUntilReconciled(t)
	secret := &corev1.Secret{}
	if err := s.get(t, "moco-test", secret); err != nil {
		t.Fatal(err)
	}
	if string(secret.Data["ADMIN_PASSWORD"]) != "mine" || len(secret.Data["WRITABLE_PASSWORD"]) < 16 || len(secret.Data) != 8 {
		t.Errorf("expected eight passwords and the first as it was, found %d keys", len(secret.Data))
	}
}

func testRefusedObject(t *testing.T, s *clusterEnv) {
	s.addCluster(t, func(c *mocov1beta2.MySQLCluster) {
		if err := c.Spec.PodTemplate.Spec.UnmarshalJSON([]byte(`{"containers": [{"name": "mysqld", "image": "mysql", "fieldOfTomorrow": 1}]}`)); err != nil {
			t.Fatal(err)
		}
	})
	s.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionFalse, "StatefulSet moco-test", "fieldOfTomorrow")
	if err := s.get(t, "moco-test", &corev1.Service{}); err != nil {
		t.Errorf("one refusal kept another object from being made: %v", err)
	}
}

func testOfflineCluster(t *testing.T, s *clusterEnv) {
	s.addCluster(t, func(c *mocov1beta2.MySQLCluster) { c.Spec.Offline = true })
	s.waitUntilReconciled(t)
	if n := *s.statefulSet(t).Spec.Replicas; n != 0 {
		t.Errorf("expected no replicas, found %d", n)
	}
	s.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionTrue)
}

func exampleFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../../../api/moco/v1beta2/testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("expected upstream's examples, found %d (%v)", len(files), err)
	}
	// Upstream's examples know no field of tomorrow.
	return slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "every-field.yaml") })
}

func testExample(t *testing.T, s *clusterEnv, file string) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	clusters := 0
	for d := yaml.NewYAMLOrJSONDecoder(f, 1<<16); ; {
		u := &unstructured.Unstructured{}
		err := d.Decode(u)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if u.Object == nil {
			continue
		}
		u.SetNamespace(s.name.Namespace)
		s.create(t, u)
		if u.GetKind() == "MySQLCluster" {
			s.name.Name, clusters = u.GetName(), clusters+1
		}
	}
	if clusters == 0 {
		t.Skip("the example has no MySQLCluster")
	}
	s.waitUntilReconciled(t)
	s.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionTrue)
}
