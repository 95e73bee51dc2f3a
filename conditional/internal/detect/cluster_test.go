// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// patience bounds every wait of these tests; nothing in them should take a tenth of it.
const patience = testenv.Patience

// testCluster is a real kube-apiserver with its etcd, and an administrator's client.
type testCluster struct {
	env *envtest.Environment
	cfg *rest.Config
	client.Client
}

// TestOnARealAPIServer runs all tests that need one, on one.
func TestOnARealAPIServer(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set: it names the folder of etcd and kube-apiserver")
	}
	ctrllog.SetLogger(logr.Discard())
	c := &testCluster{env: testenv.NewEnvironment()}
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	var err error
	if c.cfg, err = c.env.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.env.Stop(); err != nil {
			t.Error(err)
		}
	})
	if c.Client, err = client.New(c.cfg, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, *testCluster){
		"a CRD comes, terminates, goes and comes again": testLifeOfACRD,
		"names that are taken end in calm":              testNamesThatAreTaken,
		"a storm of CRDs and subscribers":               testStorm,
		"a right to one CRD":                            testRightToOneCRD,
		"no right":                                      testNoRight,
		"a right that is revoked":                       testRevokedRight,
		"an aggregated API":                             testAggregatedAPI,
	} {
		t.Run(name, func(t *testing.T) { test(t, c) })
	}
}

// detectorLog is a detector of one user, its log, and what passes its line.
type detectorLog struct {
	*Detector
	*countingTransport

	t *testing.T

	mu  sync.Mutex
	log []string
}

// view returns a detector with the rights of a configuration.
func (c *testCluster) view(t *testing.T, cfg *rest.Config) *detectorLog {
	t.Helper()
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	v := &detectorLog{t: t, countingTransport: &countingTransport{next: hc.Transport, open: map[*body]struct{}{}}}
	t.Cleanup(hc.CloseIdleConnections)
	v.Detector, err = New(cfg, &http.Client{Transport: v.countingTransport}, funcr.New(func(_, args string) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.log = append(v.log, args)
	}, funcr.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *detectorLog) lines() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string(nil), v.log...)
}

// user makes a user with rules of a cluster role.
func (c *testCluster) user(t *testing.T, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	user, err := c.env.AddUser(envtest.User{Name: name}, nil)
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
	}
	for _, obj := range []client.Object{role, binding} {
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	return user.Config()
}

// mayWatchCRDs is the right to all CRDs, or to those of the names.
func mayWatchCRDs(names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{crdResource}, Verbs: []string{"list", "watch"}, ResourceNames: names}
}

// crdOf is a CRD of a kind, with a schema that keeps everything.
func crdOf(gvk schema.GroupVersionKind, plural string) *apiextensionsv1.CustomResourceDefinition {
	return testenv.NewCRD(gvk, plural, apiextensionsv1.NamespaceScoped)
}

func (c *testCluster) install(t *testing.T, def *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	if err := c.Create(t.Context(), def.DeepCopy()); err != nil {
		t.Fatal(err)
	}
}

// uninstall deletes an object if it is there, and waits until it is gone.
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

// verdictFeed is a subscription of the first kind of an interest.
type verdictFeed struct {
	t        *testing.T
	verdicts chan Verdict
	cancel   func()
}

func (v *detectorLog) follow(i Interest) *verdictFeed {
	v.t.Helper()
	f := &verdictFeed{t: v.t, verdicts: make(chan Verdict, 10_000)}
	verdicts, cancel, err := v.Subscribe(i)
	if err != nil {
		v.t.Fatal(err)
	}
	go func() {
		for all := range verdicts {
			f.verdicts <- all[0]
		}
	}()
	f.cancel = cancel
	v.t.Cleanup(cancel)
	return f
}

// expect returns the first verdict that is as wanted; never names a presence that must not come before.
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

// countingTransport counts requests and can be cut.
type countingTransport struct {
	next http.RoundTripper

	mu       sync.Mutex
	requests []string
	open     map[*body]struct{} // of watches
}

// RoundTrip passes a request on.
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

// count returns how many requests contain a text.
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

// cut breaks all watches, as a proxy does that restarts.
func (l *countingTransport) cut() {
	l.mu.Lock()
	var all []*body
	for b := range l.open {
		all = append(all, b)
	}
	l.mu.Unlock()
	for _, b := range all {
		_ = b.ReadCloser.Close() // It is broken on purpose.
	}
}

type body struct {
	io.ReadCloser

	line *countingTransport
}

// Read makes a cut look like a broken connection.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close forgets the watch.
func (b *body) Close() error {
	b.line.mu.Lock()
	delete(b.line.open, b)
	b.line.mu.Unlock()
	return b.ReadCloser.Close()
}
