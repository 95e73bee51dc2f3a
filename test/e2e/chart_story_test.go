// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// releaseNamespace is the namespace of the release, which is not that of the manifests.
const releaseNamespace = "elsewhere"

// installedRelease is a release of the chart on a hub. There is no kubelet: the test runs the program of the
// Deployment's container, as its service account.
type installedRelease struct {
	*environment
	helm, kubeconfig string
}

// TestChartFromInstallToUninstall starts with an empty hub: check, dry run, installation, hibernation of a cluster,
// an upgrade while it hibernates, its resume, uninstallation. At the end, only the users' objects are left.
func TestChartFromInstallToUninstall(t *testing.T) {
	t.Parallel()
	r := installedRelease{helm: testenv.HelmPath(t)}
	testenv.TorporPath(t)
	r.environment = newEnvironmentWithoutCRDs(t)
	r.kubeconfig = r.hub.KubeconfigPath(t)
	before := r.listTorpors(t)
	r.runTorpor(t, "check", "--namespace", releaseNamespace)
	r.hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: releaseNamespace}})
	r.applyDryRun(t)

	// Install one feature, with a cluster that uses it.
	r.runHelm(t, "install", "torpor", chart, "--set", "image.repository=torpor", "--set", "features={hibernation}", "--set", "crds=true")
	r.cloud = testenv.StartCloud(t, "--allow-commands", "--start-latency", "200ms", "--stop-latency", "200ms")
	r.startedPIDs["cloud"] = r.cloud.PID()
	r.cloudProxy = r.traffic.startProxy(t, toCloud, &rest.Config{Host: r.cloud.URL})
	cluster := r.createCluster(t, "chart", time.Hour)
	m := r.startDeployedManager(t)
	r.waitForRecordPolicy(t, cluster)
	cluster.hibernate(t)
	stop := cluster.getClusterDeployment(t).Status.Stops
	if len(stop) != 1 || !stop[0].Requested {
		t.Fatalf("expected the stop in the record, found %+v", stop)
	}

	// The upgrade adds another feature while the cluster hibernates.
	r.runHelm(t, "upgrade", "torpor", chart, "--set", "image.repository=torpor", "--set", "features={hibernation,mysql}", "--set", "crds=true", "--set", "replicas=1")
	m.Stop(t)
	m = r.startDeployedManager(t)
	r.runTorpor(t, "check", "--namespace", releaseNamespace)
	cluster.requestPowerState(t, hivev1.PowerStateRunning)
	cluster.waitForRunning(t)
	m.Stop(t)

	r.runTorpor(t, "uninstall", "--namespace", releaseNamespace)
	r.runHelm(t, "uninstall", "torpor")
	if left := slices.DeleteFunc(r.listTorpors(t), func(name string) bool { return slices.Contains(before, name) }); len(left) > 0 {
		t.Errorf("expected nothing of Torpor but the users' objects and their definitions, found %q", left)
	}
	if cd := cluster.getClusterDeployment(t); cd.DeletionTimestamp != nil || len(cd.Status.Stops) != 1 || cd.Status.Stops[0].EndedAt == nil {
		t.Errorf("expected the cluster with its record, found %+v", cd.Status.Stops)
	}
}

func (r installedRelease) runHelm(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), r.helm, append(args, "--namespace", releaseNamespace, "--kubeconfig", r.kubeconfig)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	return runForOutput(t, cmd)
}

func (r installedRelease) runTorpor(t *testing.T, args ...string) {
	t.Helper()
	runForOutput(t, exec.CommandContext(t.Context(), testenv.TorporPath(t), append(args, "--kubeconfig", r.kubeconfig)...))
}

func runForOutput(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd.Args, err, out, problems.String())
	}
	return string(out)
}

// applyDryRun applies the whole chart with all features by kubectl in a server-side dry run, as a GitOps tool would.
func (r installedRelease) applyDryRun(t *testing.T) {
	t.Helper()
	rendered := r.runHelm(t, "template", "torpor", chart, "--set", "image.repository=torpor", "--kube-version", "1.36.0", "--set", "networkPolicyEgress=true")
	kubectl := exec.CommandContext(t.Context(), testenv.KubectlPath(t), "apply", "--dry-run=server", "--kubeconfig", r.kubeconfig, "-f", "-")
	kubectl.Stdin = strings.NewReader(rendered)
	applied := runForOutput(t, kubectl)
	if objects, lines := strings.Count(rendered, "\nkind: "), strings.Count(applied, "(server dry run)\n"); lines < objects {
		t.Errorf("expected the server to take %d objects, found that it took %d:\n%s", objects, lines, applied)
	}
}

// startDeployedManager runs the program with the arguments of the Deployment on the hub, with only the permissions
// of its service account. It appends the given flags.
func (r installedRelease) startDeployedManager(t *testing.T, flags ...string) *testenv.Process {
	t.Helper()
	var d appsv1.Deployment
	testenv.ExpectNoError(t, r.hub.Client.Get(t.Context(), types.NamespacedName{Namespace: releaseNamespace, Name: "torpor-manager"}, &d))
	token := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: releaseNamespace, Name: d.Spec.Template.Spec.ServiceAccountName}}
	testenv.ExpectNoError(t, r.hub.Client.SubResource("token").Create(t.Context(), account, token))
	as := rest.AnonymousClientConfig(r.hub.Config)
	as.BearerToken = token.Status.Token
	r.hubProxy = r.traffic.startProxy(t, toHub, as)
	// Managers of several tests on one machine cannot use the same ports, so startManager chooses free ones.
	args := slices.DeleteFunc(slices.Clone(d.Spec.Template.Spec.Containers[0].Args), func(arg string) bool {
		return arg == "manager" || strings.HasPrefix(arg, "--metrics-address") || strings.HasPrefix(arg, "--probe-address")
	})
	if !slices.Contains(args, "--namespace="+releaseNamespace) {
		t.Errorf("expected the namespace of the release in %q, found another", args)
	}
	m := r.startManager(t, append(args, flags...)...)
	// The process stands in for all Pods of the Deployment. The test writes the status that the Deployment's controller
	// would report.
	d.Status.Replicas, d.Status.ReadyReplicas = *d.Spec.Replicas, *d.Spec.Replicas
	testenv.ExpectNoError(t, r.hub.Client.Status().Update(t.Context(), &d))
	return m
}

// waitForRecordPolicy changes a cluster as a user until the API server records that user, because it loads policies
// in the background.
func (r installedRelease) waitForRecordPolicy(t *testing.T, cluster *powerCycledCluster) {
	t.Helper()
	testenv.Eventually(t, "the API server records the requesters of stops", func() error {
		cd := cluster.getClusterDeployment(t)
		cd.Spec.PowerState = hivev1.PowerStateHibernating
		if err := r.hub.Client.Update(t.Context(), cd, client.DryRunAll); err != nil {
			return fmt.Errorf("try a stop: %w", err)
		}
		for name := range cd.Annotations {
			if strings.HasSuffix(name, "/requested-by") {
				return nil
			}
		}
		return fmt.Errorf("expected a requester, found the annotations %v", cd.Annotations)
	})
}

// listTorpors lists all objects that an installation could leave behind.
func (r installedRelease) listTorpors(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, kind := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "ServiceAccount"},
		{Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "Secret"},
		{Version: "v1", Kind: "ConfigMap"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
		{Group: "coordination.k8s.io", Version: "v1", Kind: "Lease"},
		{Group: "flowcontrol.apiserver.k8s.io", Version: "v1", Kind: "FlowSchema"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicy"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingAdmissionPolicyBinding"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicyBinding"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := r.hub.Client.List(t.Context(), list); !meta.IsNoMatchError(err) { // An older hub does not serve mutating policies.
			testenv.ExpectNoError(t, err)
		}
		for _, item := range list.Items {
			if strings.Contains(item.GetName(), "torpor") || item.GetNamespace() == releaseNamespace && kind.Kind == "Deployment" {
				found = append(found, kind.Kind+" "+item.GetNamespace()+"/"+item.GetName())
			}
		}
	}
	return found
}
