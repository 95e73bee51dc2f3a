// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestInstall applies config/cf-api to a real API server. In the installation's namespace, the API server admits only
// Pods that satisfy the restricted Pod Security Standard.
func TestInstall(t *testing.T) {
	t.Parallel()
	hub := testenv.StartAPIServer(t)
	runKubectl(t, hub, "apply", "-f", filepath.Join("..", "..", "..", "config", "manager", "namespace.yaml"))
	for range 2 {
		runKubectl(t, hub, "apply", "-k", filepath.Join("..", "..", "..", "config", "cf-api"))
	}
	key := client.ObjectKey{Namespace: system, Name: "torpor-cf-api"}
	var deployment appsv1.Deployment
	var service corev1.Service
	var budget policyv1.PodDisruptionBudget
	for _, o := range []client.Object{&deployment, &service, &budget, &corev1.ServiceAccount{}} {
		if err := hub.Client.Get(t.Context(), key, o); err != nil {
			t.Fatal(err)
		}
	}
	template := deployment.Spec.Template
	for what, selector := range map[string]labels.Selector{
		"Service": labels.SelectorFromSet(service.Spec.Selector), "PodDisruptionBudget": selectorOf(t, budget.Spec.Selector),
	} {
		if !selector.Matches(labels.Set(template.Labels)) {
			t.Errorf("expected the %s to select the Pods, found it does not", what)
		}
	}
	if *deployment.Spec.Replicas <= budget.Spec.MinAvailable.IntVal {
		t.Errorf("found %d replicas with %d required, want one more than required", *deployment.Spec.Replicas, budget.Spec.MinAvailable.IntVal)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "api", Labels: template.Labels}, Spec: template.Spec}
	if err := hub.Client.Create(t.Context(), pod); err != nil {
		t.Errorf("expected a restricted Pod, found: %v", err)
	}
	c := pod.Spec.Containers[0]
	if c.ReadinessProbe.HTTPGet.Scheme != corev1.URISchemeHTTPS || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Errorf("found the probe %+v, want /readyz over TLS", c.ReadinessProbe.HTTPGet)
	}
	loose := pod.DeepCopy()
	loose.ObjectMeta = metav1.ObjectMeta{Namespace: system, Name: "loose"}
	loose.Spec.Containers[0].SecurityContext = nil
	if err := hub.Client.Create(t.Context(), loose); err == nil {
		t.Error("expected the namespace to refuse a Pod that is not restricted, found it created")
	}
}

func selectorOf(t *testing.T, s *metav1.LabelSelector) labels.Selector {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector
}

func runKubectl(t *testing.T, hub *testenv.Environment, args ...string) {
	t.Helper()
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+hub.KubeconfigPath(t), "HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
}
