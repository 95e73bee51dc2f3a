// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/admission"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const (
	system  = "torpor-system"
	started = korifiv1alpha1.StartedState
	stopped = korifiv1alpha1.StoppedState
)

var (
	suite  testenv.Suite
	shared = testenv.NewShared(&suite, newTestEnv)
)

func TestMain(m *testing.M) { os.Exit(suite.Run(m)) }

// testEnv is a real API server with the real admission webhooks for apps, and the real CF API.
type testEnv struct {
	*testenv.Environment
	// replica is the replica to which most tests send requests.
	*replica
	controllers *fakeControllers
	org         string
	log         testenv.LogBuffer
	// credentials holds all issued credentials.
	credentialsMu sync.Mutex
	credentials   []string
	// admissionDown makes admission fail.
	admissionDown atomic.Bool
}

func newTestEnv(t testing.TB) *testEnv {
	e := &testEnv{Environment: testenv.Start(t)}
	e.InstallCRDs(t, filepath.Join("testdata", "pod-metrics.yaml"))
	e.serveAdmission(t)
	e.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	e.ApplyManifest(t, "rbac/cf/api.yaml")
	e.ApplyManifest(t, "rbac/cf/roles.yaml")
	e.ApplyManifest(t, "rbac/cf/role_binding_policy.yaml")
	e.org = e.CreateNamespace(t)
	e.labelNamespace(t, e.org, map[string]string{korifiv1alpha1.OrgGUIDLabel: e.org})
	e.ExpectCreated(t, &korifiv1alpha1.CFOrg{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: e.org}, Spec: korifiv1alpha1.CFOrgSpec{DisplayName: "the-org"}})
	e.ExpectCreated(t, &korifiv1alpha1.CFDomain{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "example"}, Spec: korifiv1alpha1.CFDomainSpec{Name: "example.com"}})
	for _, name := range []string{"alice", "bob", "mallory"} {
		e.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name}})
	}
	t.Cleanup(func() { e.expectLogWithoutCredentials(t) })
	e.replica = e.startReplica(t, 1000)
	e.controllers = startFakeControllers(t, e.Environment)
	return e
}

// replica is one running replica of the API.
type replica struct {
	url, metricsAddress string
	client              *http.Client
	// stop stops the replica after its requests in flight have completed.
	stop func()
}

// startReplica runs the API with only the rights of its ClusterRole.
func (e *testEnv) startReplica(t testing.TB, perSecond float64) *replica {
	t.Helper()
	cfg := rest.AnonymousClientConfig(e.Config)
	cfg.BearerToken = e.requestToken(t, system, "torpor-cf-api")
	ready := make(chan string, 1)
	o := Options{
		Address: "127.0.0.1:0", MetricsAddress: testenv.FreeAddress(t), Folder: t.TempDir(), RequestsPerSecond: perSecond, MaxInstances: 1000, FailuresPerSecond: 10, MaxStaleness: time.Minute, Namespace: system,
		Ready: func(address string) { ready <- address }, Log: e.log.StructuredLogger(),
	}
	ended := make(chan struct{})
	r := &replica{metricsAddress: o.MetricsAddress, stop: testenv.RunInBackground(t, "the API", func(ctx context.Context) error {
		defer close(ended)
		return Run(ctx, cfg, o)
	})}
	select {
	case address := <-ready:
		r.url = "https://" + address
	case <-ended:
		t.Fatal("expected the API to start, found that it ended")
	}
	ca, err := os.ReadFile(filepath.Join(o.Folder, "tls.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	r.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}}
	t.Cleanup(r.client.CloseIdleConnections)
	return r
}

// expectLogWithoutCredentials searches the API's log, including debug messages, for every credential that the API has
// received.
func (e *testEnv) expectLogWithoutCredentials(t testing.TB) {
	t.Helper()
	e.credentialsMu.Lock()
	defer e.credentialsMu.Unlock()
	text := e.log.String()
	if !strings.Contains(text, "serving the CF API") {
		t.Error("expected a log, found none")
	}
	for _, credential := range e.credentials {
		if strings.Contains(text, credential) || strings.Contains(text, credential[len(credential)/2:]) {
			t.Error("found a credential in the log")
		}
	}
}

// serveAdmission serves the admission webhooks for apps, and configures the API server to call them.
func (e *testEnv) serveAdmission(t testing.TB) {
	t.Helper()
	mux := &webhookMux{ServeMux: http.NewServeMux()}
	admission.Webhooks{Clock: clock.RealClock{}, Manager: admission.AskIdentity(e.Client)}.Register(mux)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if e.admissionDown.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	e.InstallWebhooks(t, server.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	e.WaitForAppAdmission(t, "default", korifiv1alpha1.FirstRevision)
}

// webhookMux implements only those methods of a webhook server that the admission webhooks use.
type webhookMux struct {
	webhook.Server
	*http.ServeMux
}

func (m *webhookMux) Register(path string, handler http.Handler) { m.Handle(path, handler) }

// requestToken returns a token of a service account.
func (e *testEnv) requestToken(t testing.TB, namespace, name string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := e.Client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	e.credentialsMu.Lock()
	defer e.credentialsMu.Unlock()
	e.credentials = append(e.credentials, request.Status.Token)
	return request.Status.Token
}

// createServiceAccount creates a service account, and returns its namespace and user name.
func (e *testEnv) createServiceAccount(t *testing.T, name string) (namespace, user string) {
	t.Helper()
	namespace = e.CreateNamespace(t)
	e.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	return namespace, "system:serviceaccount:" + namespace + ":" + name
}

func (e *testEnv) labelNamespace(t testing.TB, name string, labels map[string]string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	testenv.ExpectPatched(t, e.Environment, namespace, func(n *corev1.Namespace) { n.Labels = labels })
}

// createSpace returns a new space. In this space, alice is a developer, bob is an auditor, and mallory has no role.
func (e *testEnv) createSpace(t *testing.T) string {
	t.Helper()
	space := e.CreateNamespace(t)
	for name, role := range map[string]string{"alice": "torpor-space-developer", "bob": "torpor-space-auditor"} {
		e.bindRole(t, space, role, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: name})
		e.awaitBinding(t, "system:serviceaccount:"+system+":"+name, nil, space)
	}
	e.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: "default"}})
	e.labelNamespace(t, space, map[string]string{korifiv1alpha1.OrgGUIDLabel: e.org, korifiv1alpha1.SpaceGUIDLabel: space})
	e.ExpectCreated(t, &korifiv1alpha1.CFSpace{ObjectMeta: metav1.ObjectMeta{Namespace: e.org, Name: space}, Spec: korifiv1alpha1.CFSpaceSpec{DisplayName: "dev-" + space}})
	alice := e.callerNamed(t, "alice")
	// The API watches namespaces and CFSpaces separately. Until the API has observed the CFSpace, the returned space
	// has the name of the namespace.
	testenv.Eventually(t, "the API shows the space with its name", func() error {
		found := alice.send(t, http.MethodGet, "/v3/spaces/"+space, "")
		return testenv.ErrorIf(found.status != http.StatusOK || !strings.Contains(found.body, `"name":"dev-`+space+`"`), "found %d %s", found.status, found.body)
	})
	return space
}

func (e *testEnv) bindRole(t *testing.T, namespace, role string, subject rbacv1.Subject) {
	t.Helper()
	if subject.Kind != rbacv1.ServiceAccountKind {
		subject.APIGroup = rbacv1.GroupName
	}
	e.ExpectCreated(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "cf-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{subject},
	})
}

// awaitBinding waits until the API server enforces a binding.
func (e *testEnv) awaitBinding(t *testing.T, user string, groups []string, namespace string) {
	t.Helper()
	mayList := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Group: korifiv1alpha1.GroupVersion().Group, Resource: "cfapps"}
	e.AwaitRight(t, mayList, user, groups...)
}

// createApp creates an app with a droplet, like a push does.
func (e *testEnv) createApp(t *testing.T, space, name string, instances int32, state korifiv1alpha1.AppState) string {
	t.Helper()
	alice := e.callerNamed(t, "alice")
	app := alice.send(t, "POST", "/v3/apps", `{"name":"`+name+`","lifecycle":{"type":"docker"},"relationships":{"space":{"data":{"guid":"`+space+`"}}}}`).field(t, "guid")
	image := alice.send(t, "POST", "/v3/packages", `{"type":"docker","data":{"image":"shop:1"},`+relatedTo(app)+`}`).field(t, "guid")
	build := alice.send(t, "POST", "/v3/builds", `{"package":{"guid":"`+image+`"}}`).field(t, "guid")
	droplet := alice.get(t, "/v3/builds/"+build).field(t, "droplet.guid")
	alice.send(t, "PATCH", "/v3/apps/"+app+"/relationships/current_droplet", `{"data":{"guid":"`+droplet+`"}}`)
	alice.send(t, "POST", "/v3/apps/"+app+"/processes/web/actions/scale", `{"instances":`+strconv.Itoa(int(instances))+`}`)
	if state == started {
		alice.send(t, "POST", "/v3/apps/"+app+"/actions/start", "")
		alice.get(t, "/v3/apps/"+app+"/processes/web/stats")
	}
	return app
}

// relatedTo returns the part of a request body that refers to an app.
func relatedTo(app string) string { return `"relationships":{"app":{"data":{"guid":"` + app + `"}}}` }

// createShop creates a space with an app.
func (e *testEnv) createShop(t *testing.T, instances int32, state korifiv1alpha1.AppState) (space, app string) {
	t.Helper()
	space = e.createSpace(t)
	return space, e.createApp(t, space, "shop", instances, state)
}

// createPodOn creates a Pod on a node, with the labels of an app instance.
func (e *testEnv) createPodOn(t *testing.T, node, space, app, index string) string {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: space, GenerateName: "shop-", Labels: map[string]string{
			korifiv1alpha1.AppGUIDLabel: app, korifiv1alpha1.ProcessTypeLabel: korifiv1alpha1.WebProcess, appsv1.PodIndexLabel: index,
			korifiv1alpha1.ProcessGUIDLabel: revision.ProcessName(app, korifiv1alpha1.WebProcess),
			korifiv1alpha1.VersionLabel:     e.getApp(t, space, app).Annotations[korifiv1alpha1.RevisionAnnotation],
		}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: eiriniv1.ApplicationContainer, Image: "shop:1"}}},
	}
	e.ExpectCreated(t, pod)
	return pod.Name
}

func (e *testEnv) getApp(t *testing.T, space, app string) *korifiv1alpha1.CFApp {
	t.Helper()
	var found korifiv1alpha1.CFApp
	if err := e.Client.Get(t.Context(), client.ObjectKey{Namespace: space, Name: app}, &found); err != nil {
		t.Fatal(err)
	}
	return &found
}

func (e *testEnv) countAppsNamed(t *testing.T, space, name string) (found int) {
	t.Helper()
	var apps korifiv1alpha1.CFAppList
	if err := e.Client.List(t.Context(), &apps, client.InNamespace(space)); err != nil {
		t.Fatal(err)
	}
	for i := range apps.Items {
		if apps.Items[i].Spec.DisplayName == name {
			found++
		}
	}
	return found
}

// expectUnchanged fails the test if the app has been written since it was read.
func (e *testEnv) expectUnchanged(t *testing.T, before *korifiv1alpha1.CFApp) {
	t.Helper()
	if after := e.getApp(t, before.Namespace, before.Name); after.ResourceVersion != before.ResourceVersion {
		t.Error("expected the app unchanged, found it changed")
	}
}
