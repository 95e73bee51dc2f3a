// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/torpor-dev/torpor/conditional/internal/process"
	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// patience limits every wait of these tests. No wait should take more than a tenth of it.
const patience = testenv.Patience

// scopeEnv is an outer manager for the real API server, with its own server state.
type scopeEnv struct {
	t      *testing.T
	outer  manager.Manager
	hub    *process.SharedState
	client client.Client // client without a cache
	asked  *atomic.Int64 // number of requests to discovery
	http   *http.Client  // of that client
}

// newScopeEnv returns an environment whose outer manager receives no responses for the given resources.
func newScopeEnv(t *testing.T, unanswered ...string) *scopeEnv {
	t.Helper()
	if apiServer == nil {
		t.Skip("KUBEBUILDER_ASSETS is not set: it names the folder of etcd and kube-apiserver")
	}
	before := goleak.IgnoreCurrent()
	r := &scopeEnv{t: t, asked: &atomic.Int64{}}
	cfg := rest.CopyConfig(apiServer)
	cfg.QPS = -1
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return selectiveTransport{next, r.asked, unanswered} })
	scheme := k8sruntime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	testenv.AddCustom(scheme, routeKind())
	var err error
	r.http, err = rest.HTTPClientFor(apiServer)
	testenv.Must(t, err)
	r.outer, err = ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"}, Logger: logr.Discard(),
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	testenv.Must(t, err)
	h, release, err := process.AcquireState(process.FromCluster(r.outer), logr.Discard())
	testenv.Must(t, err)
	r.hub = h
	t.Cleanup(func() {
		release()
		r.expectNoLeak(before)
	})
	r.client = r.freshClient()
	return r
}

// expectNoLeak checks several times, because a connection becomes idle a short time after its last request.
func (r *scopeEnv) expectNoLeak(before goleak.Option) {
	r.t.Helper()
	var leak error
	for range 10 {
		utilnet.CloseIdleConnectionsFor(r.outer.GetHTTPClient().Transport)
		utilnet.CloseIdleConnectionsFor(r.http.Transport)
		if leak = goleak.Find(before); leak == nil {
			return
		}
	}
	r.t.Error(leak)
}

// freshClient returns a client without cached results, because tests create and delete kinds and change their scope.
func (r *scopeEnv) freshClient() client.Client {
	r.t.Helper()
	c, err := client.New(apiServer, client.Options{Scheme: r.outer.GetScheme(), HTTPClient: r.http})
	testenv.Must(r.t, err)
	return c
}

// startOuter runs the outer manager for the rest of the test.
func (r *scopeEnv) startOuter() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.outer.Start(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("the manager ended with: %v", err)
		}
	})
}

// runningScope is a scope that was started.
type runningScope struct {
	*Manager
	cancel context.CancelFunc
	ended  chan error
}

// begin starts a scope and waits until its runnables have started.
func (r *scopeEnv) begin(o Options, setup func(*Manager)) *runningScope {
	r.t.Helper()
	m, err := New(r.outer, r.hub, o)
	testenv.Must(r.t, err)
	setup(m)
	ctx, cancel := context.WithCancel(context.Background())
	l := &runningScope{Manager: m, cancel: cancel, ended: make(chan error, 1)}
	up := make(chan struct{})
	go m.Run(ctx, Progress{Up: func() { close(up) }, Broke: func() {}, Ended: func(err error) { l.ended <- err }})
	r.t.Cleanup(cancel)
	select {
	case <-up:
	case err := <-l.ended:
		r.t.Fatalf("the scope ended before it was up: %v", err)
	case <-time.After(patience):
		r.t.Fatal("the scope does not come up")
	}
	return l
}

// end stops a scope and waits until it has stopped.
func (r *scopeEnv) end(l *runningScope) {
	r.t.Helper()
	l.cancel()
	if err := within(r.t, l.ended); err != nil {
		r.t.Fatalf("the scope ended with: %v", err)
	}
}

// within receives a value, or fails the test after a timeout.
func within[T any](t *testing.T, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Fatal("waited in vain")
	}
	return got
}

func (r *scopeEnv) eventually(what string, ok func(context.Context) (bool, error)) {
	r.t.Helper()
	testenv.Eventually(r.t, what, ok)
}

// expectInformers waits until there are the given numbers of informers and leases.
func (r *scopeEnv) expectInformers(informers, leases int) {
	r.t.Helper()
	err := wait.PollUntilContextTimeout(r.t.Context(), 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return r.hub.Informers.InformerCount() == informers && r.hub.Informers.LeaseCount() == leases, nil
	})
	if err != nil {
		r.t.Fatalf("expected %d informers and %d leases, found %d and %d",
			informers, leases, r.hub.Informers.InformerCount(), r.hub.Informers.LeaseCount())
	}
}

// namespace creates a namespace for the test.
func (r *scopeEnv) namespace() string {
	r.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	testenv.Must(r.t, r.client.Create(r.t.Context(), ns))
	return ns.Name
}

func (r *scopeEnv) configMap(namespace, name string) *corev1.ConfigMap {
	r.t.Helper()
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	testenv.Must(r.t, r.client.Create(r.t.Context(), made))
	return made
}

// listen adds a handler that sends the names of the objects that are added in a namespace.
func (r *scopeEnv) listen(c cache.Cache, obj client.Object, namespace string) <-chan string {
	r.t.Helper()
	informer, err := c.GetInformer(r.t.Context(), obj)
	testenv.Must(r.t, err)
	names := make(chan string, 10_000)
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(added any) {
		if m, ok := added.(metav1.Object); ok && m.GetNamespace() == namespace {
			names <- m.GetName()
		}
	}})
	testenv.Must(r.t, err)
	return names
}

// goroutines returns the number of goroutines once it is stable.
func (r *scopeEnv) goroutines() int {
	r.t.Helper()
	last, same := 0, 0
	r.eventually("the number of goroutines settles", func(context.Context) (bool, error) {
		if now := runtime.NumGoroutine(); now != last {
			last, same = now, 0
		}
		same++
		return same > 20, nil
	})
	return last
}

func (r *scopeEnv) noMoreGoroutinesThan(before int) {
	r.t.Helper()
	r.eventually("the goroutines are gone", func(context.Context) (bool, error) { return runtime.NumGoroutine() <= before, nil })
}

// selectiveTransport is a transport that counts the requests to discovery.
type selectiveTransport struct {
	next       http.RoundTripper
	asked      *atomic.Int64
	unanswered []string
}

func (l selectiveTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	path := strings.Trim(req.URL.Path, "/")
	if depth := strings.Count(path, "/"); strings.HasPrefix(path, "apis") && depth <= 2 || path == "api" || path == "api/v1" {
		l.asked.Add(1)
	}
	if slices.ContainsFunc(l.unanswered, func(resource string) bool { return strings.HasSuffix(path, "/"+resource) }) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return l.next.RoundTrip(req)
}

// WrappedRoundTripper allows the idle connections to be closed.
func (l selectiveTransport) WrappedRoundTripper() http.RoundTripper { return l.next }

// apiServer is the kube-apiserver that all of these tests share; nil if none exists.
var apiServer *rest.Config

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	stop := func() error { return nil }
	if os.Getenv("KUBEBUILDER_ASSETS") != "" {
		env, err := testenv.NewEnvironment(context.Background())
		if err != nil {
			panic(err)
		}
		if apiServer, err = env.Start(); err != nil {
			panic(err)
		}
		stop = env.Stop
	}
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent(), goleak.Cleanup(func(code int) {
		if err := stop(); err != nil {
			panic(err)
		}
		os.Exit(code)
	}))
}

func routeKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Route"}
}

// Route is a kind that tests install and delete.
type Route = testenv.Custom

// RouteList is a list of Routes.
type RouteList = testenv.CustomList

// routes returns the CRD of Route.
func routes(plural string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	return testenv.NewCRD(routeKind(), plural, scope)
}

// install creates a CRD and waits until its objects can be created.
func (r *scopeEnv) install(def *apiextensionsv1.CustomResourceDefinition) {
	r.t.Helper()
	testenv.Must(r.t, r.client.Create(r.t.Context(), def.DeepCopy()))
	r.t.Cleanup(func() {
		if err := client.IgnoreNotFound(r.client.Delete(context.Background(), def.DeepCopy())); err != nil {
			r.t.Error(err)
		}
	})
	r.eventually("the kind is served", func(ctx context.Context) (bool, error) {
		return r.freshClient().List(ctx, &RouteList{}) == nil, nil
	})
}

// uninstall deletes a CRD and waits until it is deleted.
func (r *scopeEnv) uninstall(def *apiextensionsv1.CustomResourceDefinition) {
	r.t.Helper()
	testenv.Must(r.t, r.client.Delete(r.t.Context(), def.DeepCopy()))
	r.eventually("the CRD is gone", func(ctx context.Context) (bool, error) {
		err := r.client.Get(ctx, client.ObjectKeyFromObject(def), &apiextensionsv1.CustomResourceDefinition{})
		return k8serrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}
