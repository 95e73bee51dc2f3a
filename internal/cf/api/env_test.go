// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	admission "github.com/torpor-dev/torpor/internal/cf/admission"
	"github.com/torpor-dev/torpor/internal/testenv"
)

const system = "torpor-system"

// testEnv is a real API server with the real admission of apps and the real API before it; a player stands in for the
// controllers.
type testEnv struct {
	*testenv.Environment
	url  string
	http *http.Client
	// serving is the process that most tests talk to.
	serving *replica
	org     string
	log     logBuffer
	// secrets are all credentials that were handed out.
	secretsMu sync.Mutex
	secrets   []string
	// admissionDown lets admission fail.
	admissionDown atomic.Bool
	controllers   *fakeControllers
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	w := &testEnv{Environment: testenv.StartAPIServer(t)}
	w.InstallCRDs(t)
	w.serveAdmission(t)
	w.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: system}})
	w.ApplyManifest(t, "rbac/cf/api.yaml")
	w.ApplyManifest(t, "rbac/cf/roles.yaml")
	org := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "org-"}}
	w.ExpectCreated(t, org)
	w.org = org.Name
	org.Labels = map[string]string{korifiv1alpha1.OrgGUIDLabel: org.Name}
	if err := w.Client.Update(t.Context(), org); err != nil {
		t.Fatal(err)
	}
	w.ExpectCreated(t, &korifiv1alpha1.CFOrg{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: org.Name}, Spec: korifiv1alpha1.CFOrgSpec{DisplayName: "the-org"}})
	for _, name := range []string{"alice", "bob", "mallory"} {
		w.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name}})
	}
	t.Cleanup(func() { w.checkLogHasNoSecrets(t) })
	w.serving = w.startReplica(t, 1000)
	w.url, w.http = w.serving.url, w.serving.http
	return w
}

// replica is one process of the API.
type replica struct {
	url, metrics string
	http         *http.Client
	// stop lets it finish, and says how it ended.
	stop func() error
}

// startReplica runs the API with no more rights than its role gives it. What it logs, it logs into the world's log.
func (w *testEnv) startReplica(t *testing.T, perSecond float64) *replica {
	t.Helper()
	cfg := rest.AnonymousClientConfig(w.Config)
	cfg.BearerToken = w.requestToken(t, "torpor-cf-api")
	folder := t.TempDir()
	ready, ended := make(chan string, 1), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	o := Options{
		Address: "127.0.0.1:0", MetricsAddress: testenv.FreeAddress(t), Folder: folder, RequestsPerSecond: perSecond, Namespace: system,
		Ready: func(a string) { ready <- a }, Log: slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	go func() { ended <- Run(ctx, cfg, o) }()
	r := &replica{metrics: o.MetricsAddress, stop: sync.OnceValue(func() error {
		stop()
		return <-ended
	})}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("the API ended with %v", err)
		}
	})
	select {
	case address := <-ready:
		r.url = "https://" + address
	case err := <-ended:
		ended <- err
		t.Fatalf("the API did not start: %v", err)
	}
	ca, err := os.ReadFile(filepath.Join(folder, "tls.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	r.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}}
	t.Cleanup(r.http.CloseIdleConnections)
	return r
}

// logBuffer is a log that many write.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *logBuffer) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// checkLogHasNoSecrets fails if any credential that was ever shown to the API is in its log, which is at its most talkative.
func (w *testEnv) checkLogHasNoSecrets(t *testing.T) {
	t.Helper()
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	text := w.log.text.String()
	if !strings.Contains(text, "serving the CF API") {
		t.Error("expected a log, found none")
	}
	for _, secret := range w.secrets {
		if strings.Contains(text, secret) || strings.Contains(text, secret[len(secret)/2:]) {
			t.Error("found a credential in the log")
		}
	}
}

// serveAdmission serves the admission of apps, and tells the API server of it by address.
func (w *testEnv) serveAdmission(t *testing.T) {
	t.Helper()
	mux := &handlerMux{ServeMux: http.NewServeMux()}
	admission.RegisterWebhooks(mux, clock.RealClock{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.admissionDown.Load() {
			http.Error(rw, "down", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	w.InstallWebhooks(t, server.URL, ca)
	testenv.Eventually(t, "admission is asked", func() error {
		a := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "probe"}}
		a.Spec.DisplayName, a.Spec.DesiredState, a.Spec.Lifecycle.Type = "probe", korifiv1alpha1.StoppedState, korifiv1alpha1.DockerLifecycle
		if err := w.Client.Create(t.Context(), a, client.DryRunAll); err != nil {
			return err
		}
		if a.Annotations[korifiv1alpha1.RevisionAnnotation] == "" {
			return errors.New("expected a revision, found none")
		}
		return nil
	})
}

// handlerMux is what admission.Register needs of a server.
type handlerMux struct {
	webhook.Server
	*http.ServeMux
}

func (h *handlerMux) Register(path string, handler http.Handler) { h.Handle(path, handler) }

// requestToken lets in as a service account of the system's namespace.
func (w *testEnv) requestToken(t *testing.T, name string) string {
	t.Helper()
	return w.requestTokenOf(t, system, name)
}

func (w *testEnv) requestTokenOf(t *testing.T, namespace, name string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := w.Client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	w.secretsMu.Lock()
	defer w.secretsMu.Unlock()
	w.secrets = append(w.secrets, request.Status.Token)
	return request.Status.Token
}

// createSpace is a new space in which alice develops and bob looks on; mallory has no part in it.
func (w *testEnv) createSpace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "space-"}}
	w.ExpectCreated(t, ns)
	for name, role := range map[string]string{"alice": "torpor-space-developer", "bob": "torpor-space-auditor"} {
		w.createRoleBinding(t, ns.Name, role, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: name})
		w.awaitBinding(t, "system:serviceaccount:"+system+":"+name, nil, ns.Name)
	}
	w.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "default"}})
	ns.Labels = map[string]string{korifiv1alpha1.OrgGUIDLabel: w.org, korifiv1alpha1.SpaceGUIDLabel: ns.Name}
	if err := w.Client.Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	w.ExpectCreated(t, &korifiv1alpha1.CFSpace{ObjectMeta: metav1.ObjectMeta{Namespace: w.org, Name: ns.Name}, Spec: korifiv1alpha1.CFSpaceSpec{DisplayName: "dev-" + ns.Name}})
	alice := w.callerNamed(t, "alice")
	testenv.Eventually(t, "the API knows the space", func() error {
		if a := alice.get(t, "/v3/spaces/"+ns.Name); a.status != http.StatusOK {
			return fmt.Errorf("found %d", a.status)
		}
		return nil
	})
	return ns.Name
}

func (w *testEnv) createRoleBinding(t *testing.T, namespace, role string, subject rbacv1.Subject) {
	t.Helper()
	if subject.Kind != rbacv1.ServiceAccountKind {
		subject.APIGroup = rbacv1.GroupName
	}
	w.ExpectCreated(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "cf-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{subject},
	})
}

// awaitBinding waits until the API server knows of a binding.
func (w *testEnv) awaitBinding(t *testing.T, user string, groups []string, namespace string) {
	t.Helper()
	testenv.Eventually(t, user+" is let in", func() error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: groups, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: "list", Group: korifiv1alpha1.GroupVersion().Group, Resource: "cfapps",
			},
		}}
		if err := w.Client.Create(t.Context(), review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return errors.New("not yet")
		}
		return nil
	})
}

// caller sends requests as somebody.
type caller struct {
	*testEnv
	authorization string
}

func (w *testEnv) callerNamed(t *testing.T, name string) caller {
	t.Helper()
	return caller{testEnv: w, authorization: "Bearer " + w.requestToken(t, name)}
}

// atReplica is the same somebody before another replica.
func (c caller) atReplica(r *replica) caller {
	return caller{testEnv: &testEnv{Environment: c.Environment, url: r.url, http: r.http}, authorization: c.authorization}
}

// response is what came back.
type response struct {
	status   int
	header   http.Header
	location string
	body     string
	took     time.Duration
}

func (c caller) get(t *testing.T, path string) response {
	t.Helper()
	return c.send(t, http.MethodGet, path, "")
}

func (c caller) send(t *testing.T, method, path, body string) response {
	t.Helper()
	a, err := c.try(t.Context(), method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (c caller) try(ctx context.Context, method, path, body string) (response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return response{}, err
	}
	if c.authorization != "" {
		r.Header.Set("Authorization", c.authorization)
	}
	begin := time.Now()
	answered, err := c.http.Do(r)
	if err != nil {
		return response{}, err
	}
	defer func() { _ = answered.Body.Close() }()
	raw, err := io.ReadAll(answered.Body)
	return response{status: answered.StatusCode, header: answered.Header, location: answered.Header.Get("Location"), body: string(raw), took: time.Since(begin)}, err
}
