// SPDX-License-Identifier: Apache-2.0

package extra

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/conditional"
	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// server is the API server of one test.
type server struct {
	t   *testing.T
	env *envtest.Environment
	cfg *rest.Config
}

func startServer(t *testing.T) *server {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set: it names the folder of etcd and kube-apiserver")
	}
	env, err := testenv.NewEnvironment(t.Context())
	testenv.Must(t, err)
	cfg, err := env.Start()
	testenv.Must(t, err)
	t.Cleanup(func() { testenv.Must(t, env.Stop()) })
	return &server{t, env, cfg}
}

func (s *server) newClient() client.Client {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	c, err := client.New(s.cfg, client.Options{Scheme: scheme})
	testenv.Must(s.t, err)
	return c
}

func (s *server) newManager(cfg *rest.Config) manager.Manager {
	s.t.Helper()
	mgr, err := conditional.NewManager(cfg, manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}, Logger: testr.New(s.t)})
	testenv.Must(s.t, err)
	return mgr
}

// setUp adds a group that has a condition, but no runnables.
func (s *server) setUp(mgr manager.Manager, when conditional.Condition) *conditional.Group {
	s.t.Helper()
	g, err := conditional.Setup(mgr, when, func(manager.Manager) error { return nil })
	testenv.Must(s.t, err)
	return g
}

func (s *server) startManager(mgr manager.Manager) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		testenv.Must(s.t, <-ended)
		mgr.GetHTTPClient().CloseIdleConnections()
	})
}

func (s *server) waitForPhase(g *conditional.Group, phase conditional.Phase) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), testenv.Patience)
	defer cancel()
	testenv.Must(s.t, g.Wait(ctx, phase))
}

func (s *server) waitForCondition(g *conditional.Group, state conditional.State) {
	s.t.Helper()
	testenv.Eventually(s.t, "the condition is "+state.String(), func(context.Context) (bool, error) { return g.Status().Condition.State == state, nil })
}

func widgetKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
}

// TestGroupOfAnotherCluster runs a group in one cluster while a kind is served in another cluster.
func TestGroupOfAnotherCluster(t *testing.T) {
	here, there := startServer(t), startServer(t)
	mgr := here.newManager(here.cfg)
	remote, err := cluster.New(there.cfg)
	testenv.Must(t, err)
	group := here.setUp(mgr, On(remote, conditional.Served(widgetKind())))
	here.startManager(mgr)
	def := testenv.NewCRD(widgetKind(), "widgets", apiextensionsv1.NamespaceScoped)
	testenv.Must(t, here.newClient().Create(t.Context(), def.DeepCopy()))
	here.waitForCondition(group, conditional.False)
	testenv.Must(t, there.newClient().Create(t.Context(), def.DeepCopy()))
	here.waitForPhase(group, conditional.Running)
	testenv.Must(t, there.newClient().Delete(t.Context(), def))
	here.waitForPhase(group, conditional.Dormant)
	remote.GetHTTPClient().CloseIdleConnections()
}

// TestObjectIsFollowed switches a group with a ConfigMap. The user may read only that ConfigMap.
func TestObjectIsFollowed(t *testing.T) {
	s := startServer(t)
	named := metav1.ObjectMeta{Namespace: "default", Name: "flags"}
	role := &rbacv1.Role{ObjectMeta: named, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"flags"}, Verbs: []string{"list", "watch"},
	}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: named,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "flags"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "poor"}},
	}
	poor, err := s.env.AddUser(envtest.User{Name: "poor"}, s.cfg)
	testenv.Must(t, err)
	mgr := s.newManager(poor.Config())
	enabled := func(obj client.Object) bool {
		flags, ok := obj.(*corev1.ConfigMap)
		return ok && flags.Data["widgets"] == "on"
	}
	when := Object(&corev1.ConfigMap{}, client.ObjectKey{Namespace: "default", Name: "flags"}, enabled)
	group := s.setUp(mgr, when)
	s.startManager(mgr)
	testenv.Eventually(t, "the watch is refused", func(context.Context) (bool, error) {
		c := group.Status().Condition
		return c.State == conditional.Unknown && c.Reason == "ObserveFailed" && strings.Contains(c.Message, "default/flags"), nil
	})
	c := s.newClient()
	must := func(err error) {
		t.Helper()
		testenv.Must(t, err)
	}
	must(c.Create(t.Context(), role))
	must(c.Create(t.Context(), binding))
	s.waitForCondition(group, conditional.False) // The ConfigMap does not exist.

	must(c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "others"}, Data: map[string]string{"widgets": "on"}}))
	flags := &corev1.ConfigMap{ObjectMeta: named, Data: map[string]string{"widgets": "on"}}
	must(c.Create(t.Context(), flags))
	s.waitForPhase(group, conditional.Running)

	flags.Data["widgets"] = "off"
	must(c.Update(t.Context(), flags))
	s.waitForPhase(group, conditional.Dormant)
	if got := group.Status().Condition.Reason; got != "ObjectFalse" {
		t.Errorf("reason is %q, want ObjectFalse", got)
	}
	flags.Data["widgets"] = "on"
	must(c.Update(t.Context(), flags))
	s.waitForPhase(group, conditional.Running)

	must(c.Delete(t.Context(), flags))
	s.waitForPhase(group, conditional.Dormant)
	if got := group.Status().Condition.Reason; got != "NotFound" {
		t.Errorf("reason is %q, want NotFound", got)
	}
}

// TestABadFunctionStopsNothing runs a group whose function panics, fails and blocks, together with a plain controller.
func TestABadFunctionStopsNothing(t *testing.T) {
	s := startServer(t)
	release := make(chan struct{})
	var calls, blocked, starts atomic.Int32
	bad := Func("bad", 50*time.Millisecond, func(context.Context) (bool, error) {
		switch calls.Add(1) {
		case 1:
			panic("boom")
		case 2:
			return false, errors.New("boom")
		case 4:
			blocked.Add(1)
			<-release
			blocked.Add(-1)
			return false, nil // The call has exceeded its deadline, so its result is ignored.
		}
		return true, nil
	})
	mgr := s.newManager(s.cfg)
	g, err := conditional.Setup(mgr, bad, func(manager.Manager) error { starts.Add(1); return nil })
	testenv.Must(t, err)
	seen := make(chan string, 100)
	testenv.Must(t, ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Named("plain").Complete(reconcile.Func(
		func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			seen <- req.Name
			return reconcile.Result{}, nil
		})))
	s.startManager(mgr)
	s.waitForPhase(g, conditional.Running)
	testenv.Eventually(t, "a call ignores its context", func(context.Context) (bool, error) { return blocked.Load() == 1, nil })
	s.waitForCondition(g, conditional.Unknown)
	testenv.Must(t, s.newClient().Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}}))
	for name := range seen {
		if name == "late" {
			break
		}
	}
	if calls.Load() != 4 {
		t.Errorf("%d calls, want 4: none while one has not returned", calls.Load())
	}
	close(release)
	s.waitForCondition(g, conditional.True)
	if g.Status().Phase != conditional.Running || starts.Load() != 1 {
		t.Errorf("it is %s after %d starts, want Running after 1", g.Status().Phase, starts.Load())
	}
}

// otherCluster implements the part of a cluster that a condition needs.
type otherCluster struct {
	cluster.Cluster
	cfg    *rest.Config
	client *http.Client
	scheme *runtime.Scheme
}

func (c otherCluster) GetCache() cache.Cache       { return nil }
func (c otherCluster) GetConfig() *rest.Config     { return c.cfg }
func (c otherCluster) GetHTTPClient() *http.Client { return c.client }
func (c otherCluster) GetScheme() *runtime.Scheme  { return c.scheme }

// sourcesCondition records the Sources that it receives.
type sourcesCondition struct{ with *conditional.Sources }

func (sourcesCondition) String() string { return "asked" }

func (a sourcesCondition) Observe(_ context.Context, src conditional.Sources, report func(conditional.Status)) error {
	*a.with = src
	report(conditional.Status{State: conditional.True})
	return nil
}

func TestOnReplacesTheSources(t *testing.T) {
	there := otherCluster{cfg: &rest.Config{Host: "there"}, client: &http.Client{}, scheme: runtime.NewScheme()}
	var with conditional.Sources
	c := On(there, sourcesCondition{&with})
	if got := c.String(); got != "On(asked)" {
		t.Errorf("it is called %s", got)
	}
	here := conditional.Sources{Config: &rest.Config{Host: "here"}, HTTPClient: &http.Client{}, Scheme: runtime.NewScheme()}
	var got conditional.Status
	testenv.Must(t, c.Observe(t.Context(), here, func(s conditional.Status) { got = s }))
	if with.Config != there.cfg || with.HTTPClient != there.client || with.Scheme != there.scheme {
		t.Errorf("observed with %+v", with)
	}
	if got.State != conditional.True {
		t.Errorf("reported %+v", got)
	}
}

func TestOnFindsKindsInTheSchemeOfItsCluster(t *testing.T) {
	there := otherCluster{cfg: &rest.Config{}, client: &http.Client{}, scheme: runtime.NewScheme()}
	utilruntime.Must(corev1.AddToScheme(there.scheme))
	if err := (conditional.Sources{Scheme: runtime.NewScheme()}).Validate(On(there, conditional.ServedObject(&corev1.ConfigMap{}))); err != nil {
		t.Error(err)
	}
}
