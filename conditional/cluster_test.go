// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/torpor-dev/torpor/conditional/internal/testenv"
)

// patience limits every wait of these tests.
const patience = testenv.Patience

func widgetKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
}

// apiServer is a real kube-apiserver with its etcd, and an administrator's client.
type apiServer struct {
	t      *testing.T
	env    *envtest.Environment
	cfg    *rest.Config
	scheme *runtime.Scheme
}

func startAPIServer(t *testing.T, adjust ...func(*envtest.Environment)) *apiServer {
	t.Helper()
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set: it names the folder of etcd and kube-apiserver")
	}
	ctrllog.SetLogger(logr.Discard())
	env, err := testenv.NewEnvironment(t.Context())
	testenv.Must(t, err)
	s := &apiServer{t: t, env: env, scheme: runtime.NewScheme()}
	isShared := len(adjust) == 0
	utilruntime.Must(clientgoscheme.AddToScheme(s.scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(s.scheme))
	for _, a := range adjust {
		a(s.env)
	}
	if idle, found := idleServers.take(isShared); found {
		s.env, s.cfg = idle.env, idle.cfg
	} else {
		s.cfg, err = s.env.Start()
		testenv.Must(t, err)
	}
	t.Cleanup(func() {
		end := s.env.Stop
		if isShared && !t.Failed() {
			end = func() error { return idleServers.giveBack(s) }
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// newClient returns a client without cached results, because tests create and delete kinds and change their scope.
func (s *apiServer) newClient() client.Client {
	c, err := client.New(s.cfg, client.Options{Scheme: s.scheme})
	testenv.Must(s.t, err)
	return c
}

// newManagerFor returns a manager without servers. Groups inherit its options.
func (s *apiServer) newManagerFor(cfg *rest.Config, adjust ...func(*ctrl.Options)) manager.Manager {
	s.t.Helper()
	o := ctrl.Options{
		Scheme: s.scheme, Metrics: server.Options{BindAddress: "0"}, Logger: testr.New(s.t),
		Controller: config.Controller{SkipNameValidation: new(true)},
	}
	for _, a := range adjust {
		a(&o)
	}
	mgr, err := NewManager(cfg, o)
	testenv.Must(s.t, err)
	return mgr
}

// startManager runs a manager until stop is called, or for the rest of the test.
func (s *apiServer) startManager(mgr manager.Manager) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("the manager ended with: %v", err)
		}
		mgr.GetHTTPClient().CloseIdleConnections()
	})
	s.t.Cleanup(stop)
	return stop
}

// mustSetUp adds a group to a manager.
func mustSetUp(t *testing.T, mgr manager.Manager, when Condition, setup SetupFunc, opts ...Option) *Group {
	t.Helper()
	g, err := Setup(mgr, when, setup, opts...)
	testenv.Must(t, err)
	return g
}

// newWidgetCRD returns the CRD of Widget.
func newWidgetCRD(plural string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	return testenv.NewCRD(widgetKind(), plural, scope)
}

// installCRD creates a CRD and waits until it is established.
func (s *apiServer) installCRD(def *apiextensionsv1.CustomResourceDefinition) {
	s.t.Helper()
	testenv.Must(s.t, s.newClient().Create(s.t.Context(), def.DeepCopy()))
	s.eventually("the CRD is established", func(ctx context.Context) (bool, error) {
		var now apiextensionsv1.CustomResourceDefinition
		if err := s.newClient().Get(ctx, client.ObjectKeyFromObject(def), &now); err != nil {
			return false, err
		}
		return testenv.IsEstablished(&now), nil
	})
}

// uninstallCRD deletes a CRD and waits until it no longer exists.
func (s *apiServer) uninstallCRD(def *apiextensionsv1.CustomResourceDefinition) {
	s.t.Helper()
	testenv.Must(s.t, s.newClient().Delete(s.t.Context(), def.DeepCopy()))
}

func (s *apiServer) waitUntilGone(def *apiextensionsv1.CustomResourceDefinition) {
	s.t.Helper()
	s.eventually("the CRD is gone", func(ctx context.Context) (bool, error) {
		err := s.newClient().Get(ctx, client.ObjectKeyFromObject(def), &apiextensionsv1.CustomResourceDefinition{})
		return k8serrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// createWidgetIn creates a Widget. An empty namespace creates a cluster-scoped Widget.
func (s *apiServer) createWidgetIn(namespace, name string, finalizers ...string) {
	s.t.Helper()
	w := newObject(widgetKind(), name)
	w.SetNamespace(namespace)
	w.SetFinalizers(finalizers)
	s.createSoon(w)
}

// createSoon creates an object as soon as the API server accepts it. A new kind may not accept objects immediately.
func (s *apiServer) createSoon(obj client.Object) {
	s.t.Helper()
	s.eventually("the object can be created", func(ctx context.Context) (bool, error) { return s.newClient().Create(ctx, obj) == nil, nil })
}

// createConfigMap creates a ConfigMap in the default namespace.
func (s *apiServer) createConfigMap(name string) {
	s.t.Helper()
	testenv.Must(s.t, s.newClient().Create(s.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}))
}

// updateCRD changes a CRD.
func (s *apiServer) updateCRD(def *apiextensionsv1.CustomResourceDefinition, change func(*apiextensionsv1.CustomResourceDefinition)) {
	s.t.Helper()
	s.eventually("the CRD is updated", func(ctx context.Context) (bool, error) {
		var now apiextensionsv1.CustomResourceDefinition
		if err := s.newClient().Get(ctx, client.ObjectKeyFromObject(def), &now); err != nil {
			return false, err
		}
		change(&now)
		return s.newClient().Update(ctx, &now) == nil, nil
	})
}

// setServed adds a version to a CRD, or changes whether the version is served.
func (s *apiServer) setServed(def *apiextensionsv1.CustomResourceDefinition, version string, served bool) {
	s.t.Helper()
	s.updateCRD(def, func(now *apiextensionsv1.CustomResourceDefinition) {
		for i, v := range now.Spec.Versions {
			if v.Name == version {
				now.Spec.Versions[i].Served = served
				return
			}
		}
		added := *now.Spec.Versions[0].DeepCopy()
		added.Name, added.Served, added.Storage = version, served, false
		now.Spec.Versions = append(now.Spec.Versions, added)
	})
}

// waitForCondition waits until the group's condition has a state and, if reason is not empty, a reason.
func (s *apiServer) waitForCondition(g *Group, state State, reason string) {
	s.t.Helper()
	s.eventually("the condition is "+state.String()+" for "+reason, func(context.Context) (bool, error) {
		c := g.Status().Condition
		return c.State == state && (reason == "" || c.Reason == reason), nil
	})
}

// newUser creates a user with exactly the rights of the rules.
func (s *apiServer) newUser(name string, rules ...rbacv1.PolicyRule) *rest.Config {
	s.t.Helper()
	user, err := s.env.AddUser(envtest.User{Name: name}, s.cfg)
	testenv.Must(s.t, err)
	for i, rule := range rules {
		s.grantRight(fmt.Sprint(name, "-", i), name, rule)
	}
	return user.Config()
}

// grantRight gives a user the rights of a rule in all namespaces.
func (s *apiServer) grantRight(name, user string, rule rbacv1.PolicyRule) {
	s.t.Helper()
	testenv.GrantRight(s.t, s.newClient(), name, user, rule)
}

// fullRight allows every verb on the resources.
func fullRight(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"*"}}
}

func newWidget() *unstructured.Unstructured {
	w := &unstructured.Unstructured{}
	w.SetGroupVersionKind(widgetKind())
	return w
}

func (s *apiServer) eventually(what string, ok func(context.Context) (bool, error)) {
	s.t.Helper()
	testenv.Eventually(s.t, what, ok)
}

func (s *apiServer) waitForPhase(g *Group, p Phase) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if err := g.Wait(ctx, p); err != nil {
		s.t.Fatalf("%v (%+v)", err, g.Status())
	}
}

// recordingReconciler writes an annotation to each object through its client, and records the name of the object.
type recordingReconciler struct {
	client client.Client
	kind   schema.GroupVersionKind
	seen   chan string
}

func (r *recordingReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(r.kind)
	if err := r.client.Get(ctx, req.NamespacedName, obj); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if obj.GetAnnotations()["seen"] == "" || len(obj.GetFinalizers()) > 0 && obj.GetDeletionTimestamp() != nil {
		obj.SetAnnotations(map[string]string{"seen": "yes"})
		if obj.GetDeletionTimestamp() != nil {
			obj.SetFinalizers(nil)
		}
		if err := r.client.Update(ctx, obj); err != nil {
			return reconcile.Result{}, err
		}
	}
	select {
	case r.seen <- req.Name:
	case <-ctx.Done():
	}
	return reconcile.Result{}, nil
}

// SetupWithManager can be used with any manager. It does not depend on groups.
func (r *recordingReconciler) SetupWithManager(mgr manager.Manager) error {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(r.kind)
	r.client = mgr.GetClient()
	return ctrl.NewControllerManagedBy(mgr).For(obj).Named("recorder-" + r.kind.Kind).Complete(r)
}

// watching returns a setup function that creates a new recorder for each start.
func watching(kind schema.GroupVersionKind, seen chan string) SetupFunc {
	return func(mgr manager.Manager) error {
		return (&recordingReconciler{kind: kind, seen: seen}).SetupWithManager(mgr)
	}
}

// expectReconcile waits until the object with the given name has been reconciled.
func (s *apiServer) expectReconcile(seen <-chan string, name string) {
	s.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case got := <-seen:
			if got == name {
				return
			}
		case <-timeout:
			s.t.Fatalf("%s was not reconciled", name)
		}
	}
}

// mustFindKind returns the kind of a typed object, according to the scheme.
func (s *apiServer) mustFindKind(obj client.Object) schema.GroupVersionKind {
	gvk, err := apiutil.GVKForObject(obj, s.scheme)
	testenv.Must(s.t, err)
	return gvk
}

// The following code is an operator in kubebuilder's layout: a kind, and a reconciler that maintains one ConfigMap per
// object.

// Widget has a message, which is copied to the ConfigMap of the same name.
type Widget = testenv.Custom

// WidgetList is a list of Widgets.
type WidgetList = testenv.CustomList

func addWidgets(scheme *runtime.Scheme) { testenv.AddCustom(scheme, widgetKind()) }

// widgetReconciler records the names of the objects that it has reconciled.
type widgetReconciler struct {
	client.Client
	Scheme *runtime.Scheme
	seen   chan string
}

func (r *widgetReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	err := r.repeatMessage(ctx, req.NamespacedName)
	select {
	case r.seen <- req.Name:
	case <-ctx.Done():
	}
	return reconcile.Result{}, err
}

func (r *widgetReconciler) repeatMessage(ctx context.Context, key client.ObjectKey) error {
	var w Widget
	if err := r.Get(ctx, key, &w); err != nil {
		return client.IgnoreNotFound(err)
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, child, func() error {
		child.Data = map[string]string{"message": w.Spec.Message}
		return ctrl.SetControllerReference(&w, child, r.Scheme)
	})
	return err
}

// SetupWithManager is the function that kubebuilder generates.
func (r *widgetReconciler) SetupWithManager(mgr manager.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&Widget{}).
		Owns(&corev1.ConfigMap{}).
		Complete(r)
}

// SetupConditionally differs from SetupWithManager in a single line.
func (r *widgetReconciler) SetupConditionally(mgr manager.Manager) error {
	return NewControllerManagedBy(mgr).
		For(&Widget{}).
		Owns(&corev1.ConfigMap{}).
		Complete(r)
}

func newWidgetReconciler(mgr manager.Manager) *widgetReconciler {
	return &widgetReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme(), seen: make(chan string, 100)}
}

func TestMain(m *testing.M) {
	// Parallel tests wait for an API server rather than for a processor, so more of them may run. The command line
	// takes precedence.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	// controller-runtime filters the watches of metadata. A filter with an event in flight remains after the informer
	// has stopped, because its output is no longer read. See newGVKFixupWatcher in its pkg/cache/internal.
	code := m.Run()
	err := idleServers.stopAll()
	if err == nil && code == 0 {
		filters := goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop")
		err = testenv.FindLeaks(func() error { return goleak.Find(filters) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
