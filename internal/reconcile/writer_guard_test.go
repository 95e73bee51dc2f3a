// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/coexist/otherwriter"
	"github.com/torpor-dev/torpor/internal/reconcile"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// guarded is a controller that only counts its passes, next to an upstream controller.
type guarded struct {
	env      *testenv.Environment
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	pass     *reconcile.Pass[*mocov1beta2.MySQLCluster, int, int]
	acts     int
}

func newGuarded(env *testenv.Environment) *guarded {
	g := &guarded{env: env, clock: clocktesting.NewFakeClock(time.Now()), recorder: events.NewFakeRecorder(10)}
	g.pass = &reconcile.Pass[*mocov1beta2.MySQLCluster, int, int]{
		Hub:     reconcile.Hub{Client: env.Client, Recorder: g.recorder, Clock: g.clock},
		Guard:   &reconcile.WriterGuard{Feature: "clustering", Signs: &reconcile.UpstreamSigns{Upstream: otherwriter.MOCO(), Reader: env.Client}},
		New:     func() *mocov1beta2.MySQLCluster { return &mocov1beta2.MySQLCluster{} },
		Observe: func(context.Context, *mocov1beta2.MySQLCluster) (int, error) { g.acts++; return 0, nil },
		Decide:  func(int) int { return 0 },
		Report: func(*mocov1beta2.MySQLCluster, int, int, *reconcile.RefusedError) reconcile.FollowUp {
			return reconcile.FollowUp{}
		},
	}
	return g
}

// reconcile runs passes and returns the number of writes to the object, the number of actions, and the reported
// condition.
func (g *guarded) reconcile(t *testing.T, cluster *mocov1beta2.MySQLCluster, passes int) (writes, acts int, report *metav1.Condition) {
	t.Helper()
	read := func() string {
		if err := g.env.Client.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster); err != nil {
			t.Fatal(err)
		}
		return cluster.ResourceVersion
	}
	last, before := read(), g.acts
	for range passes {
		if _, err := g.pass.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}); err != nil {
			t.Fatal(err)
		}
		if now := read(); now != last {
			writes, last = writes+1, now
		}
	}
	return writes, g.acts - before, meta.FindStatusCondition(cluster.Status.Conditions, torporv1alpha1.AnotherWriterCondition)
}

func (g *guarded) expect(t *testing.T, cluster *mocov1beta2.MySQLCluster, wantWrites int, words string) {
	t.Helper()
	const passes = 5
	writes, acts, report := g.reconcile(t, cluster, passes)
	if writes != wantWrites || acts != 0 || report == nil || report.Status != metav1.ConditionTrue || !strings.Contains(report.Message, words) {
		t.Errorf("expected %d writes in %d passes, no act and the words %q; found %d writes, %d acts and %v", wantWrites, passes, words, writes, acts, report)
	}
}

func TestObjectOfAnotherWriterIsLeftAlone(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	namespace := env.CreateNamespace(t)
	moco := client.FieldOwner("moco-controller")
	createByMOCO := func(name string) *mocov1beta2.MySQLCluster {
		cluster := testenv.BuildMySQLCluster(t, types.NamespacedName{Namespace: namespace, Name: name}, 3)
		if err := env.Client.Create(t.Context(), cluster, moco); err != nil {
			t.Fatal(err)
		}
		return cluster
	}
	setHealthy := func(cluster *mocov1beta2.MySQLCluster) {
		t.Helper()
		cluster.Status.Conditions = []metav1.Condition{{Type: "Healthy", Status: "True", Reason: "Healthy", LastTransitionTime: metav1.Unix(1, 0)}}
		if err := env.Client.Status().Update(t.Context(), cluster, moco); err != nil {
			t.Fatal(err)
		}
	}
	const written = "MOCO has written the object: its field manager is moco-controller. Torpor's clustering does not change the object"

	t.Run("an object that MOCO writes gets only one report", func(t *testing.T) {
		g, cluster := newGuarded(env), createByMOCO("written")
		setHealthy(cluster)
		g.expect(t, cluster, 1, written)
		if event := <-g.recorder.Events; len(g.recorder.Events) != 0 || !strings.HasPrefix(event, "Warning AnotherWriter MOCO has written the object") {
			t.Errorf("expected one event, found %q and %d more", event, len(g.recorder.Events))
		}
		if !meta.IsStatusConditionTrue(cluster.Status.Conditions, "Healthy") {
			t.Error("expected the other writer's condition to stay, found it gone")
		}
		t.Log("A report that the other writer removes is repeated after ten minutes, not immediately.")
		setHealthy(cluster)
		if writes, acts, report := g.reconcile(t, cluster, 5); writes != 0 || acts != 0 || report != nil {
			t.Errorf("expected nothing to be written, found %d writes, %d acts and %v", writes, acts, report)
		}
		g.clock.Step(10 * time.Minute)
		g.expect(t, cluster, 1, written)
		t.Log("Another feature of the same kind reports nothing.")
		other := newGuarded(env)
		other.pass.Guard.Feature = "provisioning"
		other.expect(t, cluster, 0, written)
		t.Log("The annotation makes Torpor handle the object, and removes the report.")
		env.ExpectAnnotated(t, cluster, map[string]string{torporv1alpha1.TakeOverAnnotation: "true"})
		if writes, acts, report := g.reconcile(t, cluster, 3); writes != 1 || acts != 2 || report != nil {
			t.Errorf("expected one write, two acts and no report, found %d, %d and %v", writes, acts, report)
		}
	})
	t.Run("the flag takes over objects that MOCO writes", func(t *testing.T) {
		g, cluster := newGuarded(env), createByMOCO("flag")
		g.pass.Guard.TakesOver = true
		if writes, acts, report := g.reconcile(t, cluster, 2); writes != 0 || acts != 2 || report != nil {
			t.Errorf("expected no write and two acts, found %d, %d and %v", writes, acts, report)
		}
	})
}

// TestSignsOfAnotherProject has every sign of a running MOCO on a hub; they are removed one by one, as an
// administrator would.
func TestSignsOfAnotherProject(t *testing.T) {
	t.Parallel()
	env := testenv.Start(t)
	tenant := env.CreateNamespace(t)
	for _, name := range []string{"moco-system", "databases", "torpor-system"} {
		env.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	now := time.Now()
	startDeployment := func(namespace, name string, ready int32) *appsv1.Deployment {
		labels := map[string]string{"app": name}
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}}},
		}}
		env.ExpectCreated(t, d)
		d.Status.Replicas, d.Status.ReadyReplicas = ready, ready
		testenv.ExpectNoError(t, env.Client.Status().Update(t.Context(), d))
		return d
	}
	holdLease := func(namespace string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "moco"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("pod"), LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(now))},
		}
		env.ExpectCreated(t, l)
		return l
	}
	addWebhook := func(name, namespace string) *admissionregistrationv1.MutatingWebhookConfiguration {
		c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "mmysqlcluster.kb.io", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy: new(admissionregistrationv1.Ignore), ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: "webhook"},
			},
		}}}
		env.ExpectCreated(t, c)
		return c
	}
	newCluster := func(name string) *mocov1beta2.MySQLCluster {
		cluster := testenv.BuildMySQLCluster(t, types.NamespacedName{Namespace: tenant, Name: name}, 3)
		env.ExpectCreated(t, cluster)
		return cluster
	}
	expectActs := func(g *guarded, cluster *mocov1beta2.MySQLCluster) {
		t.Helper()
		if _, acts, report := g.reconcile(t, cluster, 2); acts == 0 || report != nil {
			t.Errorf("expected Torpor to act and no report, found %d acts and %v", acts, report)
		}
	}
	handled := newCluster("handled")
	testenv.ExpectNoError(t, env.Client.Patch(t.Context(), handled, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["moco.cybozu.com/mysqlcluster"]}}`)), client.FieldOwner("torpor-provisioning")))

	t.Log("Torpor's own objects, and a tenant's objects with the names of another project, are not signs.")
	startDeployment("torpor-system", "torpor-manager", 2)
	addWebhook("torpor", "torpor-system")
	holdLease(tenant)
	startDeployment(tenant, "moco-controller", 1)
	expectActs(newGuarded(env), newCluster("tenants"))

	t.Log("A held Lease counts until it expires.")
	lease, cluster, g := holdLease("moco-system"), newCluster("lease"), newGuarded(env)
	g.expect(t, cluster, 1, "MOCO runs: its Lease moco-system/moco is held. Torpor's clustering does not change the object")
	g.clock.Step(time.Minute)
	expectActs(g, cluster)
	testenv.ExpectNoError(t, env.Client.Delete(t.Context(), lease))

	t.Log("A Deployment with ready Pods counts until it is scaled to 0, even for an object that Torpor has handled.")
	deployment, cluster, g := startDeployment("moco-system", "moco-controller", 1), newCluster("deployment"), newGuarded(env)
	g.expect(t, cluster, 1, "MOCO runs: its Deployment moco-system/moco-controller has ready Pods. Torpor's clustering does not change the object")
	g.expect(t, handled, 1, "MOCO runs: its Deployment")
	deployment.Status.Replicas, deployment.Status.ReadyReplicas = 0, 0
	testenv.ExpectNoError(t, env.Client.Status().Update(t.Context(), deployment))
	if _, acts, _ := g.reconcile(t, cluster, 1); acts != 0 {
		t.Error("expected the last look to count for half a minute, found that Torpor acted")
	}
	g.clock.Step(time.Minute)
	expectActs(g, cluster)
	expectActs(g, handled)

	t.Log("A webhook configuration names another namespace; without running Pods it counts until Torpor's first write.")
	webhook, elsewhere := addWebhook("moco-mutating-webhook-configuration", "databases"), startDeployment("databases", "moco-controller", 1)
	cluster, g = newCluster("webhook"), newGuarded(env)
	g.expect(t, cluster, 1, "MOCO runs: its Deployment databases/moco-controller has ready Pods")
	testenv.ExpectNoError(t, env.Client.Delete(t.Context(), elsewhere))
	g, cluster = newGuarded(env), newCluster("installed")
	g.expect(t, cluster, 1, "MOCO is installed: its webhook configuration is moco-mutating-webhook-configuration. Torpor's clustering does not change the object")
	expectActs(g, handled)
	env.ExpectAnnotated(t, cluster, map[string]string{torporv1alpha1.TakeOverAnnotation: "true"})
	expectActs(g, cluster)

	t.Log("Without the permission to read, Torpor logs this once, and relies on the field managers of the objects.")
	nobody := env.ImpersonateUser("nobody")
	reader, err := client.New(nobody, client.Options{Scheme: env.Client.Scheme()})
	testenv.ExpectNoError(t, err)
	var logs []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { logs = append(logs, args) }, funcr.Options{}))
	guard := &reconcile.WriterGuard{Feature: "clustering", Signs: &reconcile.UpstreamSigns{Upstream: otherwriter.MOCO(), Reader: reader}}
	for i := range 3 {
		if found := guard.FindOther(ctx, newCluster(fmt.Sprintf("blind-%d", i)), now.Add(time.Duration(i)*time.Minute)); found != "" {
			t.Errorf("expected no sign without rights, found %q", found)
		}
	}
	if len(logs) != 1 || !strings.Contains(logs[0], "Cannot determine whether the controller of another project runs") || !strings.Contains(logs[0], "forbidden") {
		t.Errorf("expected one line that names the missing right, found %q", logs)
	}
	testenv.ExpectNoError(t, env.Client.Delete(t.Context(), webhook))
	g = newGuarded(env)
	expectActs(g, newCluster("free"))
}
