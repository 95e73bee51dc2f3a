// SPDX-License-Identifier: Apache-2.0

package browser

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/chromedp/chromedp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/cli/torpor"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestPluginLogsInInChromium has kubectl torpor page forward a port to a Pod of the manager, and opens the address that it
// prints. The browser never gets the token.
func TestPluginLogsInInChromium(t *testing.T) {
	findChromium(t)
	e := newPageEnv(t)
	e.createFleet(t)
	e.createManager(t)
	link := e.startPlugin(t)
	b := openTab(t)
	forEachLook(t, b, func(t *testing.T, l look) {
		b.do(t, "open the printed address", chromedp.Navigate(link), chromedp.WaitVisible("#rows"))
		b.waitFor(t, "the page is live", `document.getElementById("connection").dataset.state === "live" && document.querySelectorAll("#rows tr").length === 12`)
		testenv.ExpectEqual(t, "the user", e.user, evaluate[string](t, b, `document.querySelector(".user").innerText`))
		testenv.ExpectEqual(t, "cookies that scripts can read", "", evaluate[string](t, b, `document.cookie`))
		button := rowOf("CFApp", "mail", "app") + `.querySelector(".act button")`
		b.do(t, "stop an app", run(button+`.click()`), chromedp.WaitVisible("#flip"), chromedp.SendKeys(`#flip input[name=reason]`, l.String()), chromedp.Click(`#flip button[type=submit]`))
		b.waitFor(t, "the row follows", button+`.dataset.verb === "start"`)
		testenv.ExpectEqual(t, "the stop", "STOPPED "+l.String(), e.readApp(t, "mail"))
		b.undo(t)
		b.waitFor(t, "the row has the start", button+`.dataset.verb === "stop"`)
		b.do(t, "log out", chromedp.Click(`header button[type=submit]`), chromedp.WaitVisible("pre"))
		testenv.ExpectEqual(t, "the session has ended", true, evaluate[bool](t, b, `document.body.innerText.includes("You are logged out.")`))
	})
	b.expectNoComplaints(t)
}

// createManager creates the Deployment of the manager and its Pod, which runs on a kubelet that forwards to the page.
func (e *pageEnv) createManager(t *testing.T) {
	t.Helper()
	address, err := url.Parse(e.url)
	testenv.ExpectNoError(t, err)
	const namespace, name = "torpor-system", "torpor-manager"
	meta, labels := metav1.ObjectMeta{Namespace: namespace, Name: name}, map[string]string{"app.kubernetes.io/name": "torpor"}
	spec := corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "manager", Image: "torpor:1", Args: []string{"manager", "--page-address=" + address.Host}}}}
	manager := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
	}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-a", Labels: labels}, Spec: spec}
	pod.Spec.NodeName = e.StartKubelet(t, http.NotFoundHandler())
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
	e.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, account, manager, pod,
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"get"}, APIGroups: []string{"apps"}, Resources: []string{"deployments"}},
			{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}},
			{Verbs: []string{"get", "create"}, APIGroups: []string{""}, Resources: []string{"pods/portforward"}},
		}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: metav1.NamespaceDefault, Name: "alice"}},
		})
	before := client.MergeFrom(pod.DeepCopy())
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	testenv.ExpectNoError(t, e.Client.Status().Patch(t.Context(), pod, before))
}

// startPlugin runs kubectl torpor page with the token of alice, and returns the address that it prints.
func (e *pageEnv) startPlugin(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: e.Config.Host, CertificateAuthorityData: e.Config.CAData, CertificateAuthority: e.Config.CAFile}
	config.AuthInfos["alice"] = &clientcmdapi.AuthInfo{Token: e.token}
	config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "alice"}
	config.CurrentContext = "hub"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	testenv.ExpectNoError(t, clientcmd.WriteToFile(*config, path))
	out, printed := io.Pipe()
	testenv.RunInBackground(t, "kubectl torpor page", func(ctx context.Context) error {
		defer func() { _ = printed.Close() }()
		code := torpor.Run(ctx, torpor.Streams{Out: printed, Err: printed}, []string{"page", "--kubeconfig", path, "--port", "0", "--no-browser"})
		return testenv.ErrorIf(code != 0, "expected exit code 0, found %d", code)
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if link := regexp.MustCompile(`http://127\.0\.0\.1:\S+`).FindString(lines.Text()); link != "" {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return link
		}
		t.Log(lines.Text())
	}
	t.Fatal(fmt.Errorf("expected the address of the page, found the end of the output: %w", net.ErrClosed))
	return ""
}
