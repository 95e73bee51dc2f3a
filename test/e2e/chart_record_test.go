// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	admincheck "github.com/torpor-dev/torpor/internal/admin/check"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestChartChoosesPoliciesOrWebhook renders the chart for hubs with and without policies, and with each value of
// record.
func TestChartChoosesPoliciesOrWebhook(t *testing.T) {
	t.Parallel()
	helm := testenv.HelmPath(t)
	const lists, serves = "apps/v1/Deployment", "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
	policies := []string{"MutatingAdmissionPolicy torpor-hibernation-record", "MutatingAdmissionPolicy torpor-mysql-record"}
	ofSlumbers := []string{"--webhook-address", "ClusterRole torpor-record", "MutatingWebhookConfiguration torpor-slumber-record", "Service torpor-webhook"}
	webhooks := []string{"--webhook-address", "ClusterRole torpor-record", "MutatingWebhookConfiguration torpor-hibernation-record", "MutatingWebhookConfiguration torpor-mysql-record", "Service torpor-webhook"}
	for name, row := range map[string]struct {
		version, features string
		args, want        []string
	}{
		"Kubernetes 1.36: policies":                                            {"1.36.0", "hibernation,mysql", nil, policies},
		"Kubernetes 1.35 that serves policies: policies":                       {"1.35.0", "hibernation,mysql", []string{"--api-versions", lists, "--api-versions", serves}, policies},
		"Kubernetes 1.35: the webhook":                                         {"1.35.0", "hibernation,mysql", nil, webhooks},
		"Kubernetes 1.36 that does not serve policies: the webhook":            {"1.36.0", "hibernation,mysql", []string{"--api-versions", lists}, webhooks},
		"record=webhook on Kubernetes 1.36: the webhook":                       {"1.36.0", "hibernation,mysql", []string{"--set", "record=webhook"}, webhooks},
		"record=policy on Kubernetes 1.35: policies":                           {"1.35.0", "hibernation,mysql", []string{"--set", "record=policy"}, policies},
		"record=off: neither policies nor the webhook":                         {"1.35.0", "hibernation,mysql", []string{"--set", "record=off"}, []string{}},
		"only the feature slumber on Kubernetes 1.35: the webhook of Slumbers": {"1.35.0", "slumber", nil, ofSlumbers},
		"only the feature cf: only the admission of apps":                      {"1.35.0", "cf", nil, []string{"--webhook-address", "Service torpor-webhook"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"template", "torpor", chart, "--set", "image.repository=torpor", "--kube-version", row.version, "--set", "features={" + row.features + "}"}, row.args...)
			out, err := exec.CommandContext(t.Context(), helm, args...).Output()
			testenv.ExpectNoError(t, err)
			found := []string{}
			for _, object := range regexp.MustCompile(`(?m)^kind: (MutatingAdmissionPolicy|MutatingWebhookConfiguration|Service|ClusterRole)\nmetadata:\n  name: (torpor-\S*record|torpor-webhook)$`).FindAllStringSubmatch(string(out), -1) {
				found = append(found, object[1]+" "+object[2])
			}
			if strings.Contains(string(out), "--webhook-address=:9443") {
				found = append(found, "--webhook-address")
			}
			slices.Sort(found)
			if diff := cmp.Diff(row.want, found); diff != "" {
				t.Errorf("objects that record stops (-want +found):\n%s", diff)
			}
		})
	}
	if out, err := exec.CommandContext(t.Context(), helm, "template", chart, "--set", "image.repository=torpor", "--kube-version", "1.36.0", "--set", "record=policies").CombinedOutput(); err == nil || !strings.Contains(string(out), "record") {
		t.Errorf("expected an error about record, found %v: %s", err, out)
	}
}

// TestChartOnAnOlderHub installs the chart on an API server that does not serve the policies that record requesters.
// The manager has only the permissions of its service account.
func TestChartOnAnOlderHub(t *testing.T) {
	t.Parallel()
	r := installedRelease{helm: testenv.HelmPath(t)}
	testenv.TorporPath(t)
	r.environment = newEnvironmentOn(t, func(t testing.TB) *testenv.Environment {
		return testenv.StartOlderAPIServer(t, admincheck.OldestKubernetes)
	})
	r.kubeconfig = r.hub.KubeconfigPath(t)
	before := r.listTorpors(t)
	r.hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: releaseNamespace}})
	r.runHelm(t, "install", "torpor", chart, "--set", "image.repository=torpor", "--set", "features={hibernation}", "--set", "crds=true")

	address := testenv.FreeAddress(t)
	r.leadRecordWebhookTo(t, address)
	m := r.startDeployedManager(t, "--webhook-address="+address)
	cd := testenv.BuildClusterDeployment(types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "noted"}, "missing", "missing")
	r.hub.ExpectCreated(t, cd)
	alice, err := client.New(r.hub.ImpersonateUser("alice", "system:masters"), client.Options{Scheme: r.hub.Client.Scheme(), Mapper: r.hub.Client.RESTMapper()})
	testenv.ExpectNoError(t, err)
	stop := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"powerState":"Hibernating"}}`))
	testenv.Eventually(t, "the API server trusts the webhook", func() error {
		tried := cd.DeepCopy()
		err := alice.Patch(t.Context(), tried, stop, client.DryRunAll)
		return testenv.ErrorIf(err != nil || len(tried.Annotations) == 0, "expected a note, found none (%v)", err)
	})
	testenv.ExpectNoError(t, alice.Patch(t.Context(), cd, stop))
	r.hub.WaitFor(t, "the stop is recorded", cd, func() error {
		return testenv.ErrorIf(len(cd.Status.Stops) != 1 || cd.Status.Stops[0].By != "alice", "expected a stop by alice, found %+v", cd.Status.Stops)
	})
	testenv.ExpectEqual(t, "spec.powerState", hivev1.PowerStateHibernating, cd.Spec.PowerState)
	judged := runForOutput(t, exec.CommandContext(t.Context(), testenv.TorporPath(t), "check", "--namespace", releaseNamespace, "--kubeconfig", r.kubeconfig))
	if !strings.Contains(judged, "a webhook records the requesters of stops while the manager is available: torpor-hibernation-record") {
		t.Errorf("expected the check to name the webhook, found\n%s", judged)
	}
	m.Stop(t)
	r.runTorpor(t, "uninstall", "--namespace", releaseNamespace)
	r.runHelm(t, "uninstall", "torpor")
	if left := slices.DeleteFunc(r.listTorpors(t), func(name string) bool { return slices.Contains(before, name) }); len(left) > 0 {
		t.Errorf("expected nothing of Torpor but the users' objects and their definitions, found %q", left)
	}
}

// leadRecordWebhookTo replaces the Service of the webhook with an address, since no Service in the test forwards to
// the manager.
func (r installedRelease) leadRecordWebhookTo(t *testing.T, address string) {
	t.Helper()
	noting := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "torpor-hibernation-record"}}
	testenv.ExpectPatched(t, r.hub, noting, func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
		of := &c.Webhooks[0].ClientConfig
		testenv.ExpectEqual(t, "the Service of the webhook", releaseNamespace+"/torpor-webhook", fmt.Sprintf("%s/%s", of.Service.Namespace, of.Service.Name))
		of.URL, of.Service = new("https://"+address+*of.Service.Path), nil
	})
}
