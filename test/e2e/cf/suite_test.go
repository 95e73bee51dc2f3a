// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/conversation"
)

const (
	system = "torpor-system"
	// nodes is the number of nodes with 250 Pods each.
	nodes = 2
	// callerRate is higher than the request rate of any test.
	callerRate = "2000"
)

var (
	suite testenv.Suite
	// shared is used by all tests except the benchmarks; each test creates its own space in it.
	shared = testenv.NewShared(&suite, func(t testing.TB) *env { return newEnv(t, nil) })
)

// TestMain discards the logs of the tests' clients, which otherwise warn that no logger is set.
func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	testenv.SetParallel(2)
	os.Exit(suite.Run(m))
}

type env struct {
	*testenv.Environment
	// tb lives as long as the environment; it is used for everything that outlives a test.
	tb testing.TB
	// toHub is the configuration with which the manager and the API connect to the API server.
	toHub        clientcmdapi.Cluster
	manager      *testenv.Process
	managerFlags []string
	// managerEnvironment is added to the test's own environment.
	managerEnvironment []string
	// api is the CF API; url and http are its address and client.
	api  *testenv.Process
	url  string
	http *http.Client
	org  string
	// managerMetrics and apiMetrics are the addresses of the metrics of the manager and of the API.
	managerMetrics, apiMetrics string
}

// newEnv creates an environment with the users alice, a developer, bob, a viewer, and mallory, who has no role.
// through, if set, is a proxy in front of the API server that counts requests.
func newEnv(t testing.TB, through *requestCounter) *env {
	t.Helper()
	return newEnvOn(t, testenv.StartControlPlane(t, nodes), through)
}

// newEnvOn is newEnv for a given hub, which need not have Kubernetes' controllers or nodes, with flags for the
// manager.
func newEnvOn(t testing.TB, hub *testenv.Environment, through *requestCounter, flags ...string) *env {
	t.Helper()
	binary := testenv.TorporPath(t)
	w := &env{Environment: hub, tb: t, managerMetrics: testenv.FreeAddress(t), apiMetrics: testenv.FreeAddress(t)}
	w.toHub = clientcmdapi.Cluster{Server: w.Config.Host, CertificateAuthorityData: w.Config.CAData, CertificateAuthority: w.Config.CAFile}
	if through != nil {
		w.toHub = clientcmdapi.Cluster{}
		w.toHub.Server, w.toHub.CertificateAuthorityData = through.serve(t, w.Config)
	}
	w.InstallCRDs(t)
	w.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	for _, name := range []string{"alice", "bob", "mallory"} {
		w.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name}})
	}
	w.ApplyManagerRoles(t, system)
	for _, file := range []string{"api.yaml", "roles.yaml", "role_binding_policy.yaml"} {
		w.ApplyManifest(t, filepath.Join("rbac", "cf", file))
	}
	w.startManager(t, binary, flags...)
	w.startAPI(t, binary)
	w.org = "org-" + rand.String(5)
	w.ExpectCreated(t, &korifiv1alpha1.CFOrg{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: w.org}, Spec: korifiv1alpha1.CFOrgSpec{DisplayName: "the-org"}})
	w.ExpectCreated(t, &korifiv1alpha1.CFDomain{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "example"}, Spec: korifiv1alpha1.CFDomainSpec{Name: "example.com"}})
	testenv.Eventually(t, "the org has its namespace", func() error { return w.requireLabel(t, w.org, korifiv1alpha1.OrgGUIDLabel) })
	return w
}

func (w *env) startManager(t testing.TB, binary string, flags ...string) {
	t.Helper()
	address := testenv.FreeAddress(t)
	w.InstallWebhooks(t, "https://"+address, nil)
	w.managerFlags = append([]string{
		"manager", "--kubeconfig", w.writeKubeconfig(t, "torpor-manager"), "--namespace", system,
		"--metrics-address", w.managerMetrics, "--metrics-insecure", "--probe-address", "0", "--webhook-address", address, "--image-registries", "http://127.0.0.1",
	}, flags...)
	w.runManager(t, binary)
}

// runManager starts or restarts the manager.
func (w *env) runManager(t testing.TB, binary string) {
	t.Helper()
	w.manager = testenv.StartProcess(t, binary, w.managerFlags, w.managerEnvironment)
	w.WaitForAppAdmission(t, system, korifiv1alpha1.FirstRevision)
}

func (w *env) startAPI(t testing.TB, binary string, flags ...string) {
	t.Helper()
	folder, address := t.TempDir(), testenv.FreeAddress(t)
	w.api = testenv.StartProcess(t, binary, append([]string{
		"cf-api", "--kubeconfig", w.writeKubeconfig(t, "torpor-cf-api"), "--address", address, "--tls-folder", folder, "--caller-rate", callerRate, "--metrics-address", w.apiMetrics,
	}, flags...), nil)
	w.url = "https://" + address
	testenv.Eventually(t, "the API answers", func() error {
		ca, err := os.ReadFile(filepath.Join(folder, "tls.crt"))
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca)
		w.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}}
		_, err = caller{env: w}.send(t.Context(), http.MethodGet, "/healthz", "")
		return err
	})
	t.Cleanup(w.http.CloseIdleConnections)
}

// writeKubeconfig writes a kubeconfig for a service account of the system's namespace.
func (w *env) writeKubeconfig(t testing.TB, account string) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["hub"] = &w.toHub
	c.AuthInfos[account] = &clientcmdapi.AuthInfo{Token: w.createToken(t, account)}
	c.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: account}
	c.CurrentContext = "hub"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	testenv.ExpectNoError(t, clientcmd.WriteToFile(*c, file))
	return file
}

func (w *env) createToken(t testing.TB, account string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: account}}
	testenv.ExpectNoError(t, w.Client.SubResource("token").Create(t.Context(), of, request))
	return request.Status.Token
}

// createSpace creates a space and waits for its namespace.
func (w *env) createSpace(t *testing.T) string {
	t.Helper()
	name := "space-" + rand.String(5)
	w.ExpectCreated(t, &korifiv1alpha1.CFSpace{ObjectMeta: metav1.ObjectMeta{Namespace: w.org, Name: name}, Spec: korifiv1alpha1.CFSpaceSpec{DisplayName: "dev-" + name}})
	testenv.Eventually(t, "the space has its namespace", func() error { return w.requireLabel(t, name, korifiv1alpha1.SpaceGUIDLabel) })
	for account, role := range map[string]string{"alice": "torpor-space-developer", "bob": "torpor-space-auditor"} {
		w.ExpectCreated(t, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: account},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: account}},
		})
		w.awaitMayList(t, account, name)
	}
	testenv.Eventually(t, "the API knows the space", func() error {
		a, err := w.newCaller(t, "alice").send(t.Context(), http.MethodGet, "/v3/spaces/"+name, "")
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("found %d", a.Status)
		}
		return err
	})
	return name
}

// awaitMayList waits until an account is allowed to list the apps of a namespace.
func (w *env) awaitMayList(t *testing.T, account, namespace string) {
	t.Helper()
	mayList := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Group: korifiv1alpha1.GroupVersion().Group, Resource: "cfapps"}
	w.AwaitRight(t, mayList, "system:serviceaccount:"+system+":"+account)
}

func (w *env) requireLabel(t testing.TB, namespace, label string) error {
	t.Helper()
	var ns corev1.Namespace
	if err := w.Client.Get(t.Context(), client.ObjectKey{Name: namespace}, &ns); err != nil {
		return err
	}
	return testenv.ErrorIf(ns.Labels[label] == "", "expected the label %s, found none", label)
}

type caller struct {
	*env
	authorization string
}

func (w *env) newCaller(t *testing.T, account string) caller {
	t.Helper()
	return caller{env: w, authorization: "Bearer " + w.createToken(t, account)}
}

// expectStatus sends a request and returns the body of the answer. On an overloaded machine, calls of the admission
// webhook time out, and the answer asks the client to retry.
func (c caller) expectStatus(t *testing.T, want int, method, path, body string) string {
	t.Helper()
	var a conversation.APIAnswer
	var err error
	testenv.Eventually(t, method+" "+path+" is answered", func() error {
		a, err = c.send(t.Context(), method, path, body)
		isOverloaded := a.Status == http.StatusServiceUnavailable && want != a.Status && strings.Contains(a.Body, "; try again")
		return testenv.ErrorIf(isOverloaded, "found %s", a.Body)
	})
	if err != nil || a.Status != want {
		t.Fatalf("%s %s: found %d %s (%v), want %d", method, path, a.Status, a.Body, err, want)
	}
	return a.Body
}

func (c caller) send(ctx context.Context, method, path, body string) (conversation.APIAnswer, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return conversation.APIAnswer{}, err
	}
	if c.authorization != "" {
		r.Header.Set("Authorization", c.authorization)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return conversation.APIAnswer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	return conversation.APIAnswer{Status: response.StatusCode, Location: response.Header.Get("Location"), Body: string(raw)}, err
}

func (c caller) createApp(t *testing.T, space, name string, instances int32, state string) string {
	t.Helper()
	field := func(body, path string) string { return conversation.JSONField(t, body, path) }
	in := `"relationships":{"space":{"data":{"guid":"` + space + `"}}}`
	guid := field(c.expectStatus(t, http.StatusCreated, "POST", "/v3/apps", `{"name":"`+name+`","lifecycle":{"type":"docker"},`+in+`}`), "guid")
	of := `"relationships":{"app":{"data":{"guid":"` + guid + `"}}}`
	image := field(c.expectStatus(t, http.StatusCreated, "POST", "/v3/packages", `{"type":"docker","data":{"image":"shop:1"},`+of+`}`), "guid")
	build := field(c.expectStatus(t, http.StatusCreated, "POST", "/v3/builds", `{"package":{"guid":"`+image+`"}}`), "guid")
	droplet := field(c.expectStatus(t, http.StatusOK, "GET", "/v3/builds/"+build, ""), "droplet.guid")
	c.expectStatus(t, http.StatusOK, "PATCH", "/v3/apps/"+guid+"/relationships/current_droplet", `{"data":{"guid":"`+droplet+`"}}`)
	c.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+guid+"/processes/web/actions/scale", `{"instances":`+strconv.Itoa(int(instances))+`}`)
	if state == string(korifiv1alpha1.StartedState) {
		c.expectStatus(t, http.StatusOK, "POST", "/v3/apps/"+guid+"/actions/start", "")
		c.waitUntilRunning(t, guid, int(instances))
	}
	return guid
}

func (c caller) waitUntilRunning(t *testing.T, app string, instances int) {
	t.Helper()
	testenv.Eventually(t, "every instance runs", func() error {
		a, err := c.send(t.Context(), http.MethodGet, "/v3/apps/"+app+"/processes/web/stats", "")
		if err != nil {
			return err
		}
		return testenv.ErrorIf(strings.Count(a.Body, `"RUNNING"`) != instances || conversation.JSONField(t, a.Body, "resources#") != strconv.Itoa(instances), "found %s", a.Body)
	})
}

func (w *env) listPodRevisions(t *testing.T, space, app string) map[string]string {
	t.Helper()
	var list corev1.PodList
	testenv.ExpectNoError(t, w.Client.List(t.Context(), &list, client.InNamespace(space), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: app}))
	found := map[string]string{}
	for i := range list.Items {
		found[list.Items[i].Name] = list.Items[i].Labels[korifiv1alpha1.VersionLabel]
	}
	return found
}

func (w *env) waitForOnlyRevision(t *testing.T, space, app, revision string, instances int) {
	t.Helper()
	testenv.Eventually(t, "only revision "+revision+" is left", func() error {
		found := w.listPodRevisions(t, space, app)
		for name, of := range found {
			if of != revision {
				return fmt.Errorf("found %s of revision %s", name, of)
			}
		}
		return testenv.ErrorIf(len(found) != instances, "found %d Pods, want %d", len(found), instances)
	})
}
