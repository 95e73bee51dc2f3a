// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	examplev1 "example.com/stock/api/v1"
)

const patience = 3 * time.Minute

// TestTheCRDComesAndGoes starts the manager without the CRD, and waits for longer than the CacheSyncTimeout. Then it
// installs and deletes the CRD twice.
func TestTheCRDComesAndGoes(t *testing.T) {
	env := &envtest.Environment{ControlPlaneStartTimeout: patience, ControlPlaneStopTimeout: patience}
	cfg, err := env.Start()
	must(t, err)
	defer func() { must(t, env.Stop()) }()
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, apiextensionsv1.AddToScheme(scheme))
	must(t, examplev1.AddToScheme(scheme))
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{CacheSyncTimeout: time.Second},
	})
	must(t, err)
	must(t, (&WidgetReconciler{Client: mgr.GetClient(), Scheme: scheme}).SetupWithManager(mgr))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	select {
	case err := <-ended:
		t.Fatalf("the manager ended without the CRD: %v", err)
	case <-time.After(5 * time.Second):
	}
	direct, err := client.New(cfg, client.Options{Scheme: scheme})
	must(t, err)
	crds := envtest.CRDInstallOptions{Paths: []string{filepath.Join("..", "..", "config", "crd", "bases")}, MaxTime: patience}
	for _, name := range []string{"first", "second"} {
		installed, err := envtest.InstallCRDs(cfg, crds)
		must(t, err)
		key := client.ObjectKey{Namespace: "default", Name: name}
		eventually(t, "the Widget is created", func(ctx context.Context) bool {
			return direct.Create(ctx, &examplev1.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}) == nil
		})
		eventually(t, "the Widget has its ConfigMap", func(ctx context.Context) bool { return direct.Get(ctx, key, &corev1.ConfigMap{}) == nil })
		must(t, direct.Delete(t.Context(), installed[0]))
		eventually(t, "the CRD is gone", func(ctx context.Context) bool {
			return apierrors.IsNotFound(direct.Get(ctx, client.ObjectKeyFromObject(installed[0]), &apiextensionsv1.CustomResourceDefinition{}))
		})
	}
	cancel()
	must(t, <-ended)
}

func eventually(t *testing.T, what string, is func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) { return is(ctx), nil })
	if err != nil {
		t.Fatalf("waited in vain until %s", what)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
