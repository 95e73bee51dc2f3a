// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	testenv "github.com/torpor-dev/torpor/test/env"
)

var (
	suite  testenv.Suite
	shared = testenv.NewShared(&suite, newPageEnv)
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(suite.Run(m))
}

// pageEnv is an API server, and a page that runs with the rights of the manager.
type pageEnv struct {
	*testenv.Environment
	url string
	// prices is the folder of the mounted ConfigMap with prices.
	prices string
}

func newPageEnv(t testing.TB) *pageEnv {
	t.Helper()
	return newPageEnvWith(t)
}

// newPageEnvWith creates the objects before it starts the page.
func newPageEnvWith(t testing.TB, objects ...client.Object) *pageEnv {
	t.Helper()
	e := &pageEnv{Environment: testenv.Start(t), prices: t.TempDir()}
	for key, text := range map[string]string{"cpuHour": "0.42", "currency": "EUR", "ownerLabel": "team"} {
		testenv.ExpectNoError(t, os.WriteFile(filepath.Join(e.prices, key), []byte(text), 0o600))
	}
	e.ExpectCreated(t, objects...)
	manager := e.ApplyManagerRoles(t, metav1.NamespaceDefault)
	e.ApplyManifest(t, "record/hibernation.yaml")
	e.url = "http://" + e.startPage(t, e.ImpersonateUser(manager))
	return e
}

func (e *pageEnv) startPage(t testing.TB, cfg *rest.Config) (address string) {
	t.Helper()
	address = testenv.FreeAddress(t)
	server, err := New(Options{Address: address, PricesFolder: e.prices, Config: cfg, Clock: clock.RealClock{}, Log: logr.Discard(), Metrics: NewMetrics()})
	testenv.ExpectNoError(t, err)
	testenv.RunInBackground(t, "the page", server.Start)
	testenv.Eventually(t, "the page answers", func() error {
		answer, err := http.Get("http://" + address + "/assets/page.css")
		if err != nil {
			return err
		}
		return answer.Body.Close()
	})
	return address
}

// createAccount creates a service account and returns its token. The verbs are granted for all stoppable kinds in the
// namespace.
func (e *pageEnv) createAccount(t testing.TB, namespace, name string, verbs ...string) (user, token string) {
	t.Helper()
	user = "system:serviceaccount:" + namespace + ":" + name
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	e.ExpectCreated(t, account)
	if len(verbs) > 0 {
		meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
		e.ExpectCreated(t,
			&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{Verbs: verbs, APIGroups: []string{"*"}, Resources: []string{"clusterdeployments", "mysqlclusters", "cfapps", "deployments", "kustomizations"}}}},
			&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}}})
		e.AwaitRight(t, authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verbs[0], Group: "hive.openshift.io", Resource: "clusterdeployments"}, user)
	}
	request := &authenticationv1.TokenRequest{}
	testenv.ExpectNoError(t, e.Client.SubResource("token").Create(t.Context(), account, request))
	return user, request.Status.Token
}

// browser is an HTTP client that keeps cookies.
type browser struct {
	http.Client
	url string
}

func (e *pageEnv) openBrowser(t testing.TB) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	testenv.ExpectNoError(t, err)
	return &browser{Client: http.Client{Jar: jar}, url: e.url}
}

func (b *browser) logIn(t testing.TB, token string) {
	t.Helper()
	if status, text := b.post(t, "/login", url.Values{"token": {token}}, nil); status != http.StatusOK {
		t.Fatalf("expected to be let in, found %d: %s", status, text)
	}
}

func (b *browser) get(t testing.TB, path string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, http.NoBody)
	testenv.ExpectNoError(t, err)
	return b.send(t, request)
}

func (b *browser) post(t testing.TB, path string, form url.Values, header map[string]string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+path, strings.NewReader(form.Encode()))
	testenv.ExpectNoError(t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for k, v := range header {
		request.Header.Set(k, v)
	}
	return b.send(t, request)
}

func (b *browser) send(t testing.TB, request *http.Request) (status int, text string) {
	t.Helper()
	answer, err := b.Do(request)
	testenv.ExpectNoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	data, err := io.ReadAll(answer.Body)
	testenv.ExpectNoError(t, err)
	return answer.StatusCode, string(data)
}

// openStream opens the stream of changes. next returns the next event.
func (b *browser) openStream(t testing.TB, query string) (status int, next func() streamEvent) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/events?"+query, http.NoBody)
	testenv.ExpectNoError(t, err)
	answer, err := b.Do(request)
	testenv.ExpectNoError(t, err)
	t.Cleanup(func() { _ = answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return answer.StatusCode, func() streamEvent {
		t.Helper()
		var event streamEvent
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				testenv.ExpectNoError(t, json.Unmarshal([]byte(data), &event))
				return event
			}
		}
		t.Fatalf("expected an event, found the end of the stream: %v", lines.Err())
		return event
	}
}

// allowEvents grants a service account the right to list the events in a namespace.
func (e *pageEnv) allowEvents(t testing.TB, namespace, name string) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name + "-events"}
	e.ExpectCreated(t,
		&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"events"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}},
		})
}

func (e *pageEnv) createDeployment(t testing.TB, namespace, name string, annotations map[string]string) {
	t.Helper()
	e.ExpectCreated(t, testenv.DecodeObject(t, fmt.Sprintf(`{"metadata": {"namespace": %q, "name": %q}, "spec": {"replicas": 2, "selector": {"matchLabels": {"app": %[2]q}},
		"template": {"metadata": {"labels": {"app": %[2]q}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}}}`, namespace, name),
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}))
}
