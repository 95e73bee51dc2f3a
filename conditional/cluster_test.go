// SPDX-License-Identifier: Apache-2.0

package conditional

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// patience bounds every wait of these tests; nothing in them should take a tenth of it.
const patience = time.Minute

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
	s := &apiServer{t: t, env: &envtest.Environment{}, scheme: runtime.NewScheme()}
	utilruntime.Must(clientgoscheme.AddToScheme(s.scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(s.scheme))
	for _, a := range adjust {
		a(s.env)
	}
	var err error
	if s.cfg, err = s.env.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.env.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// client returns a client that has cached nothing: kinds come and go, and change their scope.
func (s *apiServer) client() client.Client {
	c, err := client.New(s.cfg, client.Options{Scheme: s.scheme})
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// manager returns a manager without servers.
func (s *apiServer) manager(cfg *rest.Config) manager.Manager {
	s.t.Helper()
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: s.scheme, Metrics: server.Options{BindAddress: "0"}, Logger: testr.New(s.t),
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return mgr
}

// start runs a manager until stop is called, or for the rest of the test.
func (s *apiServer) start(mgr manager.Manager) (stop func()) {
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

// crd returns the CRD of Widget, with a status-less schema that keeps everything.
func crd(plural string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	kind := widgetKind()
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind.Kind},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true),
				}},
			}},
		},
	}
}

// install creates a CRD and waits until it is established.
func (s *apiServer) install(def *apiextensionsv1.CustomResourceDefinition) {
	s.t.Helper()
	if err := s.client().Create(s.t.Context(), def.DeepCopy()); err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the CRD is established", func(ctx context.Context) (bool, error) {
		var now apiextensionsv1.CustomResourceDefinition
		if err := s.client().Get(ctx, client.ObjectKeyFromObject(def), &now); err != nil {
			return false, err
		}
		for _, c := range now.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
}

// uninstall deletes a CRD; gone waits until it no longer exists.
func (s *apiServer) uninstall(def *apiextensionsv1.CustomResourceDefinition) {
	s.t.Helper()
	if err := s.client().Delete(s.t.Context(), def.DeepCopy()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *apiServer) gone(def *apiextensionsv1.CustomResourceDefinition) {
	s.t.Helper()
	s.eventually("the CRD is gone", func(ctx context.Context) (bool, error) {
		err := s.client().Get(ctx, client.ObjectKeyFromObject(def), &apiextensionsv1.CustomResourceDefinition{})
		return k8serrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// create makes a Widget; namespace "" makes a cluster-scoped one.
func (s *apiServer) create(namespace, name string, finalizers ...string) {
	s.t.Helper()
	s.eventually("a Widget can be created", func(ctx context.Context) (bool, error) {
		w := widget()
		w.SetNamespace(namespace)
		w.SetName(name)
		w.SetFinalizers(finalizers)
		return s.client().Create(ctx, w) == nil, nil
	})
}

func widget() *unstructured.Unstructured {
	w := &unstructured.Unstructured{}
	w.SetGroupVersionKind(widgetKind())
	return w
}

func (s *apiServer) eventually(what string, ok func(context.Context) (bool, error)) {
	s.t.Helper()
	if err := wait.PollUntilContextTimeout(s.t.Context(), 20*time.Millisecond, patience, true, ok); err != nil {
		s.t.Fatalf("waited in vain until %s: %v", what, err)
	}
}

func (s *apiServer) wait(g *Group, p Phase) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if err := g.Wait(ctx, p); err != nil {
		s.t.Fatalf("%v (%+v)", err, g.Status())
	}
}

// recorder is a reconciler that tells which objects it has seen, and marks each one with the client it was given.
type recorder struct {
	client client.Client
	kind   schema.GroupVersionKind
	seen   chan string
}

func (r *recorder) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
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

// SetupWithManager is written as for any manager: it knows nothing of groups.
func (r *recorder) SetupWithManager(mgr manager.Manager) error {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(r.kind)
	r.client = mgr.GetClient()
	return ctrl.NewControllerManagedBy(mgr).For(obj).Named("recorder-" + r.kind.Kind).Complete(r)
}

// watching returns a setup function with a new recorder per start.
func watching(kind schema.GroupVersionKind, seen chan string) SetupFunc {
	return func(mgr manager.Manager) error {
		return (&recorder{kind: kind, seen: seen}).SetupWithManager(mgr)
	}
}

// expect waits until the object of that name was reconciled.
func (s *apiServer) expect(seen <-chan string, name string) {
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

// kindOf is the kind of a typed object of the scheme.
func (s *apiServer) kindOf(obj client.Object) schema.GroupVersionKind {
	gvk, err := apiutil.GVKForObject(obj, s.scheme)
	if err != nil {
		s.t.Fatal(err)
	}
	return gvk
}
