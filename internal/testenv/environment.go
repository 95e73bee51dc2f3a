// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// callTimeout bounds each call of a test to a server of its own.
const callTimeout = 20 * time.Second

// Environment is a real API server with its etcd as processes that end with the test, and an administrator's client for it.
// No controllers run unless they are started.
type Environment struct {
	*Process
	// Config lets in as an administrator. Copy it to change it.
	Config *rest.Config
	// Client reads and writes directly, without a cache.
	Client client.Client

	dir string
}

// Start starts an API server that serves every CRD of the repository. It takes about five seconds: share one between
// subtests, or between the tests of a package with a Suite.
func Start(t testing.TB) *Environment {
	t.Helper()
	e := StartAPIServer(t)
	e.InstallCRDs(t)
	return e
}

// StartAPIServer starts an API server without any CRD.
func StartAPIServer(t testing.TB) *Environment {
	t.Helper()
	return startEnvironment(t, "--api-only")
}

// StartControlPlane starts an API server without any CRD, the controllers and the scheduler of Kubernetes, and nodes that
// report every Pod as running without running it.
func StartControlPlane(t testing.TB, nodes int) *Environment {
	t.Helper()
	e := startEnvironment(t)
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		p := StartProcess(t, localBinary(t), []string{
			"node", "--name", name, "--dir", t.TempDir(), "--bootstrap-kubeconfig", e.KubeconfigPath(t), "--heartbeat", "2s",
		}, nil)
		t.Cleanup(func() { p.KillAtOnce(t) })
		Eventually(t, name+" is ready", func() error { return e.nodeIsReady(t, name) })
	}
	return e
}

func (e *Environment) nodeIsReady(t testing.TB, name string) error {
	t.Helper()
	var node corev1.Node
	if err := e.Client.Get(t.Context(), client.ObjectKey{Name: name}, &node); err != nil {
		return fmt.Errorf("get: %w", err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
			return nil
		}
	}
	return errors.New("expected it to be ready and without taints, found it is not")
}

func startEnvironment(t testing.TB, flags ...string) *Environment {
	t.Helper()
	dir := t.TempDir()
	e := &Environment{Process: StartProcess(t, localBinary(t), append([]string{"control-plane", "--dir", dir}, flags...), nil), dir: dir}
	// A graceful shutdown takes seconds and only saves data that no test reads.
	t.Cleanup(func() { e.KillAtOnce(t) })
	file := e.WaitForLine(t, "kubeconfig: ")
	var err error
	if e.Config, err = clientcmd.BuildConfigFromFlags("", file); err != nil {
		t.Fatalf("read the hub's kubeconfig: %v", err)
	}
	// Rate limits of the client would only slow tests down.
	e.Config.QPS = -1
	e.Client = newClient(t, e.Config)
	return e
}

// KubeconfigPath returns the path of a kubeconfig with the rights of an administrator.
func (e *Environment) KubeconfigPath(testing.TB) string {
	return filepath.Join(e.dir, "admin.kubeconfig")
}

// InstallCRDs installs every CRD of config/crd and returns when they are served.
func (e *Environment) InstallCRDs(t testing.TB) {
	t.Helper()
	options := envtest.CRDInstallOptions{Paths: []string{crdFolder(t)}, ErrorIfPathMissing: true, MaxTime: eventuallyTimeout}
	if _, err := envtest.InstallCRDs(e.Config, options); err != nil {
		t.Fatalf("install CRDs: %v", err)
	}
}

// RemoveCRDs deletes every CRD and returns when they are gone, with all their objects.
func (e *Environment) RemoveCRDs(t testing.TB) {
	t.Helper()
	var all apiextensionsv1.CustomResourceDefinitionList
	if err := e.Client.List(t.Context(), &all); err != nil {
		t.Fatalf("list CRDs: %v", err)
	}
	for i := range all.Items {
		crd := &all.Items[i]
		if err := e.Client.Delete(t.Context(), crd); err != nil {
			t.Fatalf("remove CRD: %v", err)
		}
		looks := 0
		Eventually(t, "the CRD "+crd.Name+" is gone", func() error {
			if err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); k8serrors.IsNotFound(err) {
				return nil
			}
			if looks++; looks%nudgeInterval == 0 {
				return errors.Join(errors.New("it is still there"), e.nudgeCRD(t, crd))
			}
			return errors.New("it is still there")
		})
	}
}

// nudgeInterval is after how many looks a CRD is nudged again.
const nudgeInterval = 40

// nudgeCRD changes a CRD that does not go. When the API server's finalizer meets a conflict with another of its controllers, it
// waits for the next change, and takes none that is only about its own condition for one: without a nudge the CRD stays
// until the next resync, five minutes later.
func (e *Environment) nudgeCRD(t testing.TB, crd *apiextensionsv1.CustomResourceDefinition) error {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"nudge":%q}}}`, crd.ResourceVersion)
	return client.IgnoreNotFound(e.Client.Patch(t.Context(), crd, client.RawPatch(types.MergePatchType, patch)))
}

// CreateNamespace makes a namespace of its own for a test and returns its name. It stays, since no controller deletes namespaces
// here.
func (e *Environment) CreateNamespace(t testing.TB) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := e.Client.Create(t.Context(), ns); err != nil {
		t.Fatalf("make namespace: %v", err)
	}
	return ns.Name
}

// DeleteAfterTest deletes an object when the test ends; one that is gone already is no error.
func (e *Environment) DeleteAfterTest(t testing.TB, obj client.Object) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := e.Client.Delete(ctx, obj); err != nil && !k8serrors.IsNotFound(err) {
			t.Errorf("delete %s: %v", obj.GetName(), err)
		}
	})
}

func newClient(t testing.TB, cfg *rest.Config) client.Client {
	t.Helper()
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), apiextensionsv1.AddToScheme(known), hivev1.AddToScheme(known), mocov1beta2.AddToScheme(known),
		korifiv1alpha1.AddToScheme(known), eiriniv1.AddToScheme(known), torporv1alpha1.AddToScheme(known)); err != nil {
		t.Fatalf("register kinds: %v", err)
	}
	cfg = rest.CopyConfig(cfg)
	// A server that hangs must fail the call, not the whole test binary.
	cfg.Timeout = callTimeout
	c, err := client.New(cfg, client.Options{Scheme: known})
	if err != nil {
		t.Fatalf("make client: %v", err)
	}
	return c
}

// crdFolder finds config/crd above the folder that the test runs in.
func crdFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; filepath.Dir(dir) != dir; dir = filepath.Dir(dir) {
		if found := filepath.Join(dir, "config", "crd"); isFolder(found) {
			return found
		}
	}
	t.Fatal("expected config/crd in a folder above the test's, found none; run the test inside the repository")
	return ""
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
