// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/coexist/otherwriter"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const korifiAppFinalizer = "cfApp.korifi.cloudfoundry.org"

// The objects have the field managers, finalizers and conditions that Hive, MOCO and Korifi leave.
func TestUpstreamObjectsAreTakenOverOnlyOnRequest(t *testing.T) {
	t.Parallel()
	hub := testenv.Start(t)
	hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	namespace := hub.CreateNamespace(t)
	named := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: namespace, Name: name} }

	cd := testenv.BuildClusterDeployment(named("cd"), "cd", "aws")
	cd.Finalizers = []string{"hive.openshift.io/deprovision"}
	cluster := testenv.BuildMySQLCluster(t, named("db"), 3)
	cluster.Finalizers = []string{mocov1beta2.Finalizer}
	app := testenv.BuildCFApp(named("app"))
	app.Finalizers = []string{korifiAppFinalizer}
	app.Annotations = map[string]string{korifiv1alpha1.RevisionAnnotation: "2"}
	healthy := []metav1.Condition{{Type: "Upstream", Status: metav1.ConditionTrue, Reason: "Upstream", LastTransitionTime: metav1.Unix(1, 0)}}
	lrp := testenv.DecodeObject(t, `{"metadata":{"name":"lrp","namespace":"`+namespace+`"},
		"spec":{"GUID":"lrp","version":"1","processType":"web","image":"x","instances":1,"memoryMB":1,"diskMB":1}}`, &eiriniv1.LRP{})
	all := map[client.Object]client.FieldOwner{cd: "hive1-hibernation", cluster: "moco-controller", app: "manager", lrp: "eirini-controller"}
	for obj, owner := range all {
		if err := hub.Client.Create(t.Context(), obj, owner); err != nil {
			t.Fatal(err)
		}
	}
	cd.Status.Conditions, cluster.Status.Conditions, app.Status.Conditions, lrp.Status.Conditions = healthy, healthy, healthy, healthy
	cluster.Status.CurrentPrimaryIndex = 2
	for obj, owner := range all {
		if err := hub.Client.Status().Update(t.Context(), obj, owner); err != nil {
			t.Fatal(err)
		}
	}

	deployment := &torporv1alpha1.CFDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "deployment"}}
	deployment.Spec.AppRef.Name, deployment.Spec.Strategy = app.Name, torporv1alpha1.RollingDeployment
	hub.ExpectCreated(t, deployment)

	startReplica(t, hub, system)
	hub.WaitFor(t, "a deployment does not change the app of another writer", deployment, func() error {
		return testenv.ErrorIf(!strings.Contains(deployment.Status.Message, "not changed: Korifi has written the object"), "found %q", deployment.Status.Message)
	})
	for obj, owner := range all {
		hub.WaitForCondition(t, obj, torporv1alpha1.AnotherWriterCondition, metav1.ConditionTrue, torporv1alpha1.AnotherWriterReason)
		hub.WaitForEvent(t, namespace, torporv1alpha1.AnotherWriterReason, "its field manager is "+string(owner))
		for _, f := range obj.GetManagedFields() {
			if f.Manager != string(owner) && f.Manager != otherwriter.FieldManager {
				t.Errorf("%T: expected no write but the report, found an entry of %s", obj, f.Manager)
			}
		}
	}
	var sets appsv1.StatefulSetList
	if err := hub.Client.List(t.Context(), &sets); err != nil || len(sets.Items) != 0 {
		t.Errorf("expected no StatefulSet of a cluster of MOCO, found %d (%v)", len(sets.Items), err)
	}

	t.Log("A user lets Torpor take over the objects.")
	for obj := range all {
		hub.ExpectAnnotated(t, obj, map[string]string{torporv1alpha1.TakeOverAnnotation: "true"})
	}
	hub.WaitForCondition(t, cd, hivev1.ClusterHibernatingCondition, metav1.ConditionUnknown, "")
	hub.WaitFor(t, "the cluster has its StatefulSet", &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "moco-db"}}, nil)
	hub.WaitFor(t, "the app has Torpor's finalizer", app, func() error {
		if !slices.Contains(app.Finalizers, korifiv1alpha1.AppFinalizer) {
			return fmt.Errorf("found %v", app.Finalizers)
		}
		return nil
	})
	hub.WaitFor(t, "the LRP has Torpor's finalizer", lrp, func() error {
		return testenv.ErrorIf(!slices.Contains(lrp.Finalizers, eiriniv1.LRPFinalizer), "found %v", lrp.Finalizers)
	})
	hub.WaitFor(t, "the deployment continues", app, func() error {
		return testenv.ErrorIf(app.Annotations[torporv1alpha1.DeploymentAnnotation] != deployment.Name, "found %v", app.Annotations)
	})
	for obj, conditions := range map[client.Object]func() []metav1.Condition{
		cd: func() []metav1.Condition { return cd.Status.Conditions }, cluster: func() []metav1.Condition { return cluster.Status.Conditions },
		app: func() []metav1.Condition { return app.Status.Conditions }, lrp: func() []metav1.Condition { return lrp.Status.Conditions },
	} {
		hub.WaitFor(t, "the report is removed, and the conditions of upstream are not", obj, func() error {
			has := func(kind string) bool {
				return slices.ContainsFunc(conditions(), func(c metav1.Condition) bool { return c.Type == kind })
			}
			if has(torporv1alpha1.AnotherWriterCondition) || !has("Upstream") {
				return errors.New("not yet")
			}
			return nil
		})
	}
	if cluster.Status.CurrentPrimaryIndex != 2 {
		t.Errorf("expected the primary that MOCO has chosen, found %d", cluster.Status.CurrentPrimaryIndex)
	}

	t.Log("An app is deleted once Korifi's finalizer is removed, too.")
	if err := hub.Client.Delete(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	hub.WaitFor(t, "only Korifi's finalizer is left", app, func() error {
		if !slices.Equal(app.Finalizers, []string{korifiAppFinalizer}) {
			return fmt.Errorf("found %v", app.Finalizers)
		}
		return nil
	})
	testenv.ExpectPatched(t, hub, app, func(a *korifiv1alpha1.CFApp) { a.Finalizers = nil })
	hub.WaitForDeletion(t, app)
}
