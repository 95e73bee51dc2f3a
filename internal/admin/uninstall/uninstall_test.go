// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/admin/objecteditor"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// No manager runs, and the Service of the webhook does not exist.
func TestUninstallRemovesEverythingOfTorpor(t *testing.T) {
	t.Parallel()
	hub := testenv.Start(t)
	const system = "torpor-system"
	hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	namespace := hub.CreateNamespace(t)
	named := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: namespace, Name: name} }

	app := testenv.BuildCFApp(named("app"))
	app.Finalizers = []string{"example.com/theirs", korifiv1alpha1.AppFinalizer}
	cluster := testenv.BuildMySQLCluster(t, named("db"), 3)
	cluster.Finalizers = []string{mocov1beta2.Finalizer}
	upstreams := testenv.BuildMySQLCluster(t, named("upstreams"), 3)
	upstreams.Finalizers = []string{mocov1beta2.Finalizer}
	lrp := testenv.DecodeObject(t, `{"metadata":{"name":"lrp","namespace":"`+namespace+`","finalizers":["`+eiriniv1.LRPFinalizer+`"]},
		"spec":{"GUID":"lrp","version":"1","processType":"web","image":"x","instances":1,"memoryMB":1,"diskMB":1}}`, &eiriniv1.LRP{})
	asleep := testenv.BuildClusterDeployment(named("cd"), "cd", "aws")
	asleep.Spec.PowerState = hivev1.PowerStateHibernating
	timedOut := testenv.BuildClusterDeployment(named("timed-out"), "timed-out", "aws")
	ours := []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "torpor-manager"}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "torpor"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new(system)}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "torpor-manager"}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "torpor-clusters", Labels: map[string]string{torporv1alpha1.PartLabel: "clusters"}}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "torpor-webhook"}},
	}
	web, _ := ours[0].DeepCopyObject().(client.Object)
	web.SetNamespace(namespace)
	web.SetName("web")
	web.SetAnnotations(map[string]string{torporv1alpha1.RestoreAnnotation: "[]"})
	nights := testenv.DecodeObject(t, `{"metadata":{"name":"nights","namespace":"`+namespace+`","finalizers":["`+torporv1alpha1.SlumberFinalizer+`"]},
		"spec":{"windows":[{"sleep":"0 20 * * *","wake":"0 7 * * *"}],"waves":[{"name":"all","targets":[{"kind":"CFApp","selector":{}}]}]}}`, &torporv1alpha1.Slumber{})
	adapter := testenv.DecodeObject(t, `{"metadata":{"name":"things.example.com","finalizers":["`+torporv1alpha1.StopAdapterFinalizer+`"]},
		"spec":{"target":{"group":"example.com","version":"v1","kind":"Thing","resource":"things"},"stop":[{"op":"add","path":"/spec/suspend","value":true}]}}`, &torporv1alpha1.StopAdapter{})
	users := []client.Object{app, cluster, lrp, asleep, timedOut, web, nights, adapter}
	hub.ExpectCreated(t, append(slices.Clone(users), ours...)...)
	meta.SetStatusCondition(&timedOut.Status.Conditions, metav1.Condition{
		Type: hivev1.ClusterHibernatingCondition, Status: metav1.ConditionTrue, Reason: hivev1.HibernatingHibernationReason,
	})
	testenv.ExpectNoError(t, hub.Client.Status().Update(t.Context(), timedOut))
	if err := hub.Client.Create(t.Context(), upstreams, client.FieldOwner("moco-controller")); err != nil {
		t.Fatal(err)
	}
	hub.ApplyManifest(t, "webhook/manifests.yaml")
	hub.ApplyManifest(t, "record/webhook/hibernation.yaml")

	var out bytes.Buffer
	run := func(dryRun bool, installation string) []string {
		t.Helper()
		out.Reset()
		began := time.Now()
		if err := Run(t.Context(), Options{Editor: objecteditor.Editor{Client: hub.Client, DryRun: dryRun, Out: &out}, Namespace: installation, Clock: clock.RealClock{}}); err != nil {
			t.Fatal(err)
		}
		t.Logf("it took %s", time.Since(began))
		return strings.Split(strings.TrimSpace(strings.ReplaceAll(out.String(), namespace, "NS")), "\n")
	}
	const kept = "kept MySQLCluster NS/upstreams: its finalizer: MOCO has written the object: its field manager is moco-controller"
	const (
		sleeps      = "left asleep ClusterDeployment NS/cd: its machines stay off until they are started"
		isStopped   = "left stopped Deployment NS/web: its previous state is in its annotation torpor.dev/restore"
		hasTimedOut = "left asleep ClusterDeployment NS/timed-out: its machines stay off until they are started"
	)
	want := []string{
		"would delete MutatingWebhookConfiguration torpor",
		"would delete ValidatingWebhookConfiguration torpor",
		"would delete MutatingWebhookConfiguration torpor-hibernation-record",
		"would delete Deployment torpor-system/torpor-manager",
		"would release CFApp NS/app: from the finalizer " + korifiv1alpha1.AppFinalizer,
		"would release LRP NS/lrp: from the finalizer " + eiriniv1.LRPFinalizer,
		"would release MySQLCluster NS/db: from the finalizer " + mocov1beta2.Finalizer,
		kept,
		"would release Slumber NS/nights: from the finalizer " + torporv1alpha1.SlumberFinalizer,
		"would release StopAdapter things.example.com: from the finalizer " + torporv1alpha1.StopAdapterFinalizer,
		"would delete Lease kube-system/torpor",
		"would delete Lease torpor-system/torpor-clusters",
		"would delete Lease torpor-system/torpor-manager",
		"would delete Secret torpor-system/torpor-webhook",
		sleeps, hasTimedOut, isStopped,
	}
	if diff := cmp.Diff(want, run(true, system)); diff != "" {
		t.Errorf("a dry run (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("kept MutatingWebhookConfiguration torpor: it points to an installation in another namespace", run(true, "other")[0]); diff != "" {
		t.Errorf("of another installation (-want +got):\n%s", diff)
	}
	for i := range want {
		want[i] = strings.NewReplacer("would delete", "deleted", "would release", "released").Replace(want[i])
	}
	if diff := cmp.Diff(want, run(false, system)); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{kept, sleeps, hasTimedOut, isStopped}, run(false, system)); diff != "" {
		t.Errorf("lines of a second run (-want +got):\n%s", diff)
	}
	for _, obj := range ours {
		if err := hub.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); !k8serrors.IsNotFound(err) {
			t.Errorf("expected %T %s to be gone, found %v", obj, obj.GetName(), err)
		}
	}
	if err := hub.Client.Get(t.Context(), client.ObjectKeyFromObject(app), app); err != nil || !slices.Equal(app.Finalizers, []string{"example.com/theirs"}) {
		t.Errorf("expected the finalizer of others to stay, found %v (%v)", app.Finalizers, err)
	}
	for _, obj := range []client.Object{cluster, lrp, asleep, timedOut, nights, adapter} {
		if err := hub.Client.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		hub.WaitForDeletion(t, obj)
	}
}

// The CRD of ClusterDeployments on this hub is Hive's.
func TestCRDsAreDeletedOnlyOnRequest(t *testing.T) {
	t.Parallel()
	hub := testenv.Start(t)
	hub.InstallCRDs(t, filepath.Join("..", "..", "..", "test", "e2e", "foreign", "testdata", "crds", "clusterdeployments.yaml"))
	hives := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "clusterdeployments.hive.openshift.io"}}
	hives.SetGroupVersionKind(newCRD().GroupVersionKind())
	testenv.ExpectNoError(t, hub.Client.Patch(t.Context(), hives, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`))))
	namespace := hub.CreateNamespace(t)
	app := testenv.BuildCFApp(types.NamespacedName{Namespace: namespace, Name: "app"})
	app.Finalizers = []string{korifiv1alpha1.AppFinalizer}
	cd := testenv.BuildClusterDeployment(types.NamespacedName{Namespace: namespace, Name: "cd"}, "cd", "aws")
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "torpor"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("torpor-system")}}
	hub.ExpectCreated(t, app, cd, lease)
	var out bytes.Buffer
	run := func(o Options) error {
		out.Reset()
		o.Client, o.Namespace, o.Clock, o.Out, o.DeletesCRDs = hub.Client, "torpor-system", clock.RealClock{}, &out, true
		return Run(t.Context(), o)
	}
	if err := run(Options{}); !errors.Is(err, ErrObjectsLeft) || !strings.Contains(err.Error(), namespace+"/app") {
		t.Fatalf("expected a refusal that names the app, found %v", err)
	}
	for _, obj := range []client.Object{app, lease} {
		testenv.ExpectNoError(t, hub.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj))
	}
	if !slices.Equal(app.Finalizers, []string{korifiv1alpha1.AppFinalizer}) {
		t.Error("expected no change after a refusal, found the finalizer gone")
	}
	testenv.ExpectNoError(t, run(Options{Editor: objecteditor.Editor{DryRun: true}, DeletesObjects: true}))
	testenv.ExpectNoError(t, hub.Client.Get(t.Context(), client.ObjectKeyFromObject(lease), lease))
	began := time.Now()
	testenv.ExpectNoError(t, run(Options{DeletesObjects: true}))
	t.Logf("it took %s", time.Since(began))
	for _, line := range []string{"kept CustomResourceDefinition clusterdeployments.hive.openshift.io: it belongs to another project\n", "deleted CustomResourceDefinition cfapps.korifi.cloudfoundry.org\n"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("expected %q, found %s", line, out.String())
		}
	}
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(newCRD().GroupVersionKind().GroupVersion().WithKind("CustomResourceDefinitionList"))
	if err := hub.Client.List(t.Context(), all); err != nil || len(all.Items) != 1 || all.Items[0].Name != hives.Name {
		t.Errorf("expected Hive's definition and no other, found %d (%v)", len(all.Items), err)
	}
	testenv.ExpectNoError(t, hub.Client.Get(t.Context(), client.ObjectKeyFromObject(cd), cd))
	testenv.ExpectNoError(t, run(Options{}))
}
