// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// patience limits every wait of these tests. No wait should take more than a tenth of it.
const patience = testenv.Patience

// testCluster is a real kube-apiserver with its etcd, and an administrator's client.
type testCluster struct {
	env *envtest.Environment
	cfg *rest.Config
	client.Client
}

// TestOnARealAPIServer runs all tests that need a real server, on one server.
func TestOnARealAPIServer(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set: it names the folder of etcd and kube-apiserver")
	}
	ctrllog.SetLogger(logr.Discard())
	env, err := testenv.NewEnvironment(t.Context())
	testenv.Must(t, err)
	c := &testCluster{env: env}
	scheme := k8sruntime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	c.cfg, err = c.env.Start()
	testenv.Must(t, err)
	t.Cleanup(func() {
		if err := c.env.Stop(); err != nil {
			t.Error(err)
		}
	})
	c.Client, err = client.New(c.cfg, client.Options{Scheme: scheme})
	testenv.Must(t, err)
	for name, test := range map[string]func(*testing.T, *testCluster){
		"a CRD is installed, deleted and installed again": testLifeOfACRD,
		"many CRDs and subscribers at the same time":      testStorm,
		"a right to a single CRD":                         testRightToOneCRD,
		"a revoked right":                                 testRevokedRight,
		"an aggregated API":                               testAggregatedAPI,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// detectorLog is a detector for one user, with its log and the traffic on its connection.
type detectorLog struct {
	*Detector
	*countingTransport

	t *testing.T

	mu  sync.Mutex
	log []string
}

// view returns a detector with the credentials of a configuration.
func (c *testCluster) view(t *testing.T, cfg *rest.Config) *detectorLog {
	t.Helper()
	hc, err := rest.HTTPClientFor(cfg)
	testenv.Must(t, err)
	v := &detectorLog{t: t, countingTransport: &countingTransport{next: hc.Transport, open: map[*body]struct{}{}}}
	t.Cleanup(hc.CloseIdleConnections)
	v.Detector, err = New(cfg, &http.Client{Transport: v.countingTransport}, funcr.New(func(_, args string) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.log = append(v.log, args)
	}, funcr.Options{}))
	testenv.Must(t, err)
	return v
}

func (v *detectorLog) lines() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string(nil), v.log...)
}

// user creates a user with the rules of a cluster role.
func (c *testCluster) user(t *testing.T, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	user, err := c.env.AddUser(envtest.User{Name: name}, nil)
	testenv.Must(t, err)
	testenv.GrantRight(t, c.Client, name, name, rules...)
	return user.Config()
}

// mayWatchCRDs returns a rule that allows watching all CRDs, or those with the given names.
func mayWatchCRDs(names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{crdResource}, Verbs: []string{"list", "watch"}, ResourceNames: names}
}

// crdOf returns a namespaced CRD for a kind, with a schema that preserves unknown fields.
func crdOf(gvk schema.GroupVersionKind, plural string) *apiextensionsv1.CustomResourceDefinition {
	return testenv.NewCRD(gvk, plural, apiextensionsv1.NamespaceScoped)
}

func (c *testCluster) install(t *testing.T, def *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	testenv.Must(t, c.Create(t.Context(), def.DeepCopy()))
}

// uninstall deletes an object if it exists, and waits until it is deleted.
func (c *testCluster) uninstall(t *testing.T, obj client.Object) {
	t.Helper()
	if err := c.Delete(t.Context(), obj); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	eventually(t, "the object is gone", func(ctx context.Context) bool {
		return k8serrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(obj), obj))
	})
}

func eventually(t *testing.T, what string, ok func(context.Context) bool) {
	t.Helper()
	testenv.Eventually(t, what, func(ctx context.Context) (bool, error) { return ok(ctx), nil })
}

// verdictFeed is a subscription for the first kind of an interest.
type verdictFeed struct {
	t        *testing.T
	verdicts chan Verdict
	cancel   func()
}

func (v *detectorLog) follow(i Interest) *verdictFeed {
	v.t.Helper()
	f := &verdictFeed{t: v.t, verdicts: make(chan Verdict, 10_000)}
	verdicts, cancel := v.Subscribe(i, nil)
	go func() {
		for all := range verdicts {
			f.verdicts <- all[0]
		}
	}()
	f.cancel = cancel
	v.t.Cleanup(cancel)
	return f
}

// expect returns the first verdict with the wanted presence. It fails the test if a presence in never is reported
// before.
func (f *verdictFeed) expect(what string, ok func(Verdict) bool, never ...Presence) Verdict {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case v := <-f.verdicts:
			if ok(v) {
				return v
			}
			for _, p := range never {
				if v.Presence == p {
					f.t.Fatalf("got %+v while waiting for %s", v, what)
				}
			}
		case <-deadline:
			f.t.Fatalf("waited in vain for %s", what)
		}
	}
}

func is(p Presence) func(Verdict) bool { return func(v Verdict) bool { return v.Presence == p } }

// countingTransport counts requests, and its connections can be cut.
type countingTransport struct {
	next http.RoundTripper

	mu       sync.Mutex
	requests []string
	open     map[*body]struct{} // bodies of open watches
}

// RoundTrip passes a request through.
func (l *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	l.requests = append(l.requests, r.Method+" "+r.URL.RequestURI())
	l.mu.Unlock()
	res, err := l.next.RoundTrip(r)
	if err == nil && res.StatusCode == http.StatusOK && r.URL.Query().Get("watch") == "true" {
		b := &body{ReadCloser: res.Body, line: l}
		l.mu.Lock()
		l.open[b] = struct{}{}
		l.mu.Unlock()
		res.Body = b
	}
	return res, err
}

// count returns the number of requests that contain a text.
func (l *countingTransport) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.requests {
		if strings.Contains(r, text) {
			n++
		}
	}
	return n
}

// cut breaks all watches, like a proxy that restarts.
func (l *countingTransport) cut() {
	l.mu.Lock()
	var all []*body
	for b := range l.open {
		all = append(all, b)
	}
	l.mu.Unlock()
	for _, b := range all {
		_ = b.ReadCloser.Close() // The watch is broken on purpose.
	}
}

type body struct {
	io.ReadCloser

	line *countingTransport
}

// Read returns an error after a cut, as for a broken connection.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close removes the watch from the open watches.
func (b *body) Close() error {
	b.line.mu.Lock()
	delete(b.line.open, b)
	b.line.mu.Unlock()
	return b.ReadCloser.Close()
}

func kindIn(group, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
}

func testLifeOfACRD(t *testing.T, c *testCluster) {
	gvk := kindIn("life.example.com", "Widget")
	def := crdOf(gvk, "widgets")
	v := c.view(t, c.cfg)
	f := v.follow(Interest{Kinds: []schema.GroupVersionKind{gvk}})
	f.expect("absence", is(Absent), Served)
	var took []time.Duration
	uids := map[string]bool{}
	for range 20 {
		established := make(chan time.Time, 1)
		go func() { established <- c.established(t, def) }()
		served := f.expect("service", is(Served))
		took = append(took, max(0, time.Since(<-established)))
		if uids[served.UID] || served.UID == "" || served.Plural != "widgets" || !served.Namespaced {
			t.Fatalf("verdict %+v after the UIDs %v", served, uids)
		}
		uids[served.UID] = true
		c.uninstall(t, def.DeepCopy())
		f.expect("the end", is(Absent))
	}
	slices.Sort(took)
	t.Logf("established until reported: median %s, worst %s; %d requests in %d cycles: %v", took[len(took)/2], took[len(took)-1], v.count(""), len(took), v.ProbeCounts())
}

// established creates a CRD and returns once the server has established it.
func (c *testCluster) established(t *testing.T, def *apiextensionsv1.CustomResourceDefinition) time.Time {
	if err := c.Create(t.Context(), def.DeepCopy()); err != nil {
		t.Error(err)
	}
	for t.Context().Err() == nil {
		var now apiextensionsv1.CustomResourceDefinition
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(def), &now); err == nil && testenv.IsEstablished(&now) {
			return time.Now()
		}
	}
	return time.Time{}
}

// stormSize is the number of CRDs that are installed at the same time: ten kinds in each group.
const stormSize = 100

func testStorm(t *testing.T, c *testCluster) {
	before, others := runtime.NumGoroutine(), goleak.IgnoreCurrent()
	v := c.view(t, c.cfg)
	kinds := make([]schema.GroupVersionKind, stormSize)
	feeds := make([]*verdictFeed, 5*stormSize)
	for i := range kinds {
		kinds[i] = kindIn(fmt.Sprintf("g%d.storm.example.com", i/10), fmt.Sprint("Kind", i))
	}
	for i := range feeds {
		feeds[i] = v.follow(Interest{Kinds: []schema.GroupVersionKind{kinds[i%stormSize]}})
	}
	for _, f := range feeds {
		f.expect("absence", is(Absent), Served)
	}
	eventually(t, "the looks have ended", func(context.Context) bool { return runtime.NumGoroutine()-before-len(feeds) <= 9 })
	t.Logf("%d goroutines for %d subscribers of %d kinds, %d requests", runtime.NumGoroutine()-before-len(feeds), len(feeds), stormSize, v.count(""))
	idle := v.count("")

	var created sync.WaitGroup
	for i := range 4 {
		created.Go(func() {
			for j := i; j < stormSize; j += 4 {
				if err := c.Create(t.Context(), crdOf(kinds[j], fmt.Sprint("kind", j, "s"))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	created.Wait()
	begin := time.Now()
	for _, f := range feeds {
		f.expect("service", is(Served))
	}
	t.Logf("%s after the last creation all are served, %d requests: %v", time.Since(begin), v.count("")-idle, v.ProbeCounts())
	for i := range kinds {
		if err := c.Delete(t.Context(), crdOf(kinds[i], fmt.Sprint("kind", i, "s"))); err != nil {
			t.Error(err)
		}
	}
	for _, f := range feeds {
		f.expect("the end", is(Absent))
		f.cancel()
	}
	http := goleak.IgnoreTopFunction("internal/poll.runtime_pollWait") // Connections are kept.
	if err := testenv.FindLeaks(func() error { return goleak.Find(others, http) }); err != nil {
		t.Errorf("after the last cancel: %v", err)
	}
}

func testRightToOneCRD(t *testing.T, c *testCluster) {
	gvk := kindIn("named.example.com", "Widget")
	def := crdOf(gvk, "widgets")
	v := c.view(t, c.user(t, "one-crd", mayWatchCRDs(def.Name)))
	f := v.follow(Interest{Kinds: []schema.GroupVersionKind{gvk}, CRDs: []string{def.Name}})
	f.expect("absence", is(Absent), Served)
	before := v.count("GET /apis/named.example.com/v1")
	c.install(t, def)
	if got := f.expect("service", is(Served)); got.UID == "" {
		t.Errorf("verdict %+v, want the UID that the watch tells", got)
	}
	if before != 1 || len(v.lines()) != 0 {
		t.Errorf("%d looks before the CRD came and the log %q, want one look and an empty log", before, v.lines())
	}
	c.uninstall(t, def.DeepCopy())
	f.expect("the end", is(Absent))

	all := v.follow(Interest{Kinds: []schema.GroupVersionKind{gvk}})
	all.expect("the known verdict", is(Absent), Served)
	v.wantOneLine("the watch of all CRDs")
}

func testRevokedRight(t *testing.T, c *testCluster) {
	gvk := kindIn("revoked.example.com", "Widget")
	def := crdOf(gvk, "widgets")
	v := c.view(t, c.user(t, "revoked", mayWatchCRDs()))
	f := v.follow(Interest{Kinds: []schema.GroupVersionKind{gvk}})
	f.expect("absence", is(Absent), Served)
	c.install(t, def)
	served := f.expect("service", is(Served))
	c.uninstall(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "revoked"}})
	v.cut() // A right is checked only when a watch begins. The server does not close an open watch.
	for len(v.lines()) == 0 {
		select { // The authorizer observes the change a short time later.
		case got := <-f.verdicts:
			if got.Presence == Absent || got.Presence == Served && got.Identity != served.Identity {
				t.Fatalf("got %+v after %+v", got, served)
			}
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		default:
			v.cut()
		}
	}
	if got, ok := v.KnownVerdict(gvk); !ok || got.Presence == Absent {
		t.Errorf("known %+v, want that what was served is kept", got)
	}
	c.uninstall(t, def.DeepCopy())
	f.expect("the end, found by a poll", is(Absent))
	v.wantOneLine("the watch of all CRDs")
}

func (v *detectorLog) wantOneLine(what string) {
	v.t.Helper()
	eventually(v.t, "the log has a line", func(context.Context) bool { return len(v.lines()) > 0 })
	if lines := v.lines(); len(lines) != 1 || !strings.Contains(lines[0], "discovery is polled") {
		v.t.Errorf("log %q, want one line about %s", lines, what)
	}
}

// testAggregatedAPI registers an API server that runs in this process. The kube-apiserver reaches it through a Service
// of type ExternalName, with the port in the APIService.
func testAggregatedAPI(t *testing.T, c *testCluster) {
	gvk := kindIn("aggregated.example.com", "Flunder")
	v := c.view(t, c.cfg)
	f := v.follow(Interest{Kinds: []schema.GroupVersionKind{gvk}, APIServices: true})
	f.expect("absence", is(Absent), Served)

	backend := startBackend(t, gvk, "localhost:0")
	address, ok := backend.Listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("the backend listens at %s", backend.Listener.Addr())
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "aggregated"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	registration := apiService(gvk, service.Name, address.Port)
	for _, obj := range []client.Object{service, registration} {
		testenv.Must(t, c.Create(t.Context(), obj))
	}
	served := f.expect("service", is(Served))
	if served.Plural != "flunders" || served.UID != "" {
		t.Errorf("verdict %+v, want flunders without a CRD", served)
	}

	backend.CloseClientConnections()
	backend.Close()
	c.poke(t, registration) // Without a change, the server checks its backends only every 30 seconds.
	lost := f.expect("doubt", is(Unclear), Absent)
	t.Logf("unavailable: %s", lost.Message)
	v.quietUnless(f, Absent)

	startBackend(t, gvk, address.String())
	again := f.expect("service again", is(Served), Absent)
	if again.Identity != served.Identity {
		t.Errorf("identity %s became %s", served.Identity, again.Identity)
	}
	testenv.Must(t, c.Delete(t.Context(), registration))
	f.expect("the end", is(Absent))
}

func apiService(gvk schema.GroupVersionKind, service string, port int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": gvk.Version + "." + gvk.Group},
		"spec": map[string]any{
			"group": gvk.Group, "version": gvk.Version, "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
			"insecureSkipTLSVerify": true,
			"service":               map[string]any{"namespace": metav1.NamespaceDefault, "name": service, "port": int64(port)},
		},
	}}
}

// poke makes an irrelevant change to an object.
func (c *testCluster) poke(t *testing.T, obj client.Object) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"poked":%q}}}`, t.Name()))
	testenv.Must(t, c.Patch(t.Context(), obj, patch))
}

// startBackend serves discovery, list and watch of one kind, with TLS, until the test ends.
func startBackend(t *testing.T, gvk schema.GroupVersionKind, address string) *httptest.Server {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	testenv.Must(t, err)
	path := "/apis/" + gvk.GroupVersion().String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+path, answer(metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: gvk.GroupVersion().String(),
		APIResources: []metav1.APIResource{{Name: "flunders", SingularName: "flunder", Kind: gvk.Kind, Namespaced: true, Verbs: []string{"list", "watch"}}},
	}))
	list := answer(map[string]any{
		"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind + "List", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{},
	})
	mux.HandleFunc("GET "+path+"/flunders", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "true" {
			list(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
	})
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}, EnableHTTP2: true}
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

func answer(what any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(what) // The client may have disconnected.
	}
}

// quietUnless waits for more failed queries than the misses after which a kind is absent. It fails the test if a
// verdict has the presence bad.
func (v *detectorLog) quietUnless(f *verdictFeed, bad Presence) {
	v.t.Helper()
	before := v.ProbeCounts()["unreadable"]
	eventually(v.t, "the outage was seen several times", func(context.Context) bool {
		select {
		case got := <-f.verdicts:
			if got.Presence == bad {
				v.t.Fatalf("got %+v in an outage", got)
			}
		default:
		}
		return v.ProbeCounts()["unreadable"] >= before+missesNeeded+2
	})
}
