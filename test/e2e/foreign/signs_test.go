// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// createDeployment creates a Deployment that reports ready Pods.
func createDeployment(t *testing.T, env *testenv.Environment, namespace, name string, ready int32) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app.kubernetes.io/name": name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: name}}}},
	}}
	env.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, d)
	reportReady(t, env, d, ready)
	return d
}

func reportReady(t *testing.T, env *testenv.Environment, d *appsv1.Deployment, ready int32) {
	t.Helper()
	d.Status.Replicas, d.Status.ReadyReplicas = ready, ready
	testenv.ExpectNoError(t, env.Client.Status().Update(t.Context(), d))
}

// TestMOCOThatRunsIsLeftAlone has a cluster without a writer, and only the permissions in config.
func TestMOCOThatRunsIsLeftAlone(t *testing.T) {
	t.Parallel()
	binary := testenv.TorporPath(t)
	env := testenv.StartAPIServer(t)
	env.InstallCRDs(t, crdFile("mysqlclusters"), filepath.Join("..", "..", "..", "config", "crd", "moco.cybozu.com_backuppolicies.yaml"))
	limited, err := clientcmd.LoadFromFile(env.KubeconfigPath(t))
	testenv.ExpectNoError(t, err)
	user := env.ApplyManagerRoles(t, "default")
	for _, identity := range limited.AuthInfos {
		identity.Impersonate = user
	}
	kubeconfig := filepath.Join(t.TempDir(), "manager.kubeconfig")
	testenv.ExpectNoError(t, clientcmd.WriteToFile(*limited, kubeconfig))

	theirs := createDeployment(t, env, "moco-system", "moco-controller", 1)
	createDeployment(t, env, "torpor-system", "torpor-manager", 2)
	webhook := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "moco-validating-webhook-configuration"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
		Name: "vmysqlcluster.kb.io", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
		ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "moco-system", Name: "moco-webhook-service"}},
		Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create}, Rule: admissionregistrationv1.Rule{
			APIGroups: []string{"moco.cybozu.com"}, APIVersions: []string{"v1beta2"}, Resources: []string{"mysqlclusters"},
		}}},
	}}}
	cluster := testenv.BuildMySQLCluster(t, types.NamespacedName{Namespace: env.CreateNamespace(t), Name: "test"}, 3)
	env.ExpectCreated(t, cluster, webhook)
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "moco-test"}}
	start := func() (stop func()) {
		p := testenv.StartProcess(t, binary, []string{
			"manager", "--kubeconfig", kubeconfig, "--controllers=clustering,provisioning,backup", "--metrics-address=0", "--probe-address=0",
		}, nil)
		return func() {
			t.Helper()
			p.Stop(t)
			if strings.Contains(p.LastOutput(), "Cannot determine whether the controller of another project runs") {
				t.Errorf("expected the permissions in config to suffice, found %s", p.LastOutput())
			}
		}
	}
	expectLeftAlone := func(says string) {
		t.Helper()
		env.WaitFor(t, "the cluster is not changed", cluster, func() error {
			c := meta.FindStatusCondition(cluster.Status.Conditions, torporv1alpha1.AnotherWriterCondition)
			return testenv.ErrorIf(c == nil || !strings.HasPrefix(c.Message, says), "found %+v", c)
		})
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(set), set); client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("expected no StatefulSet of Torpor's, found one (%v)", err)
		}
	}

	stop := start()
	expectLeftAlone("MOCO runs: its Deployment moco-system/moco-controller has ready Pods. ")
	stop()
	reportReady(t, env, theirs, 0)
	stop = start()
	expectLeftAlone("MOCO is installed: its webhook configuration is moco-validating-webhook-configuration. ")
	stop()
	testenv.ExpectNoError(t, env.Client.Delete(t.Context(), webhook))
	stop = start()
	testenv.Eventually(t, "Torpor creates the StatefulSet", func() error { return env.Client.Get(t.Context(), client.ObjectKeyFromObject(set), set) })
	env.WaitFor(t, "the report is removed", cluster, func() error {
		c := meta.FindStatusCondition(cluster.Status.Conditions, torporv1alpha1.AnotherWriterCondition)
		return testenv.ErrorIf(c != nil, "found %+v", c)
	})
	stop()
}
