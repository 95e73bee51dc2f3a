// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/config"
	"github.com/torpor-dev/torpor/internal/testenv"
)

const chart = "../../charts/torpor"

// TestChart renders the chart for each choice of features and has a real API server check every object.
func TestChart(t *testing.T) {
	helm := os.Getenv("TORPOR_HELM")
	if helm == "" {
		t.Skip("TORPOR_HELM is not set: expected the path of helm; run with `make test`")
	}
	if out, err := exec.CommandContext(t.Context(), helm, "lint", "--strict", chart).CombinedOutput(); err != nil {
		t.Errorf("helm lint: %v\n%s", err, out)
	}
	hub := testenv.StartAPIServer(t)
	hub.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}})
	mysql, cf := []string{"clustering", "provisioning", "backup"}, []string{"restart", "spaces", "deployments", "lrp"}
	for features, controllers := range map[string][]string{
		"hibernation": {"hibernation"}, "mysql": mysql, "cf": cf, "hibernation,mysql,cf": append(append([]string{"hibernation"}, mysql...), cf...),
	} {
		t.Run(features, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), helm, "template", "torpor", chart, "--kube-version", "1.36.0", "--namespace", "elsewhere", "--set", "features={"+features+"}").Output()
			if err != nil {
				t.Fatal(err, string(out))
			}
			roles := map[string][]rbacv1.PolicyRule{}
			in := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(out)), 4096)
			for {
				var u unstructured.Unstructured
				if err := in.Decode(&u); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if len(u.Object) == 0 {
					continue
				}
				if u.GetNamespace() == "torpor-system" {
					t.Errorf("expected the namespace of the release, found torpor-system in %s %s", u.GetKind(), u.GetName())
				}
				if u.GetKind() == "ClusterRole" {
					roles[u.GetName()] = rulesOf(t, u.Object)
				}
				if err := hub.Client.Create(t.Context(), &u, client.DryRunAll); err != nil {
					t.Errorf("%s %s: %v", u.GetKind(), u.GetName(), err)
				}
			}
			for _, name := range controllers {
				data, err := config.ReadRole(name)
				if err != nil {
					t.Fatal(err)
				}
				var role map[string]any
				if err := yaml.Unmarshal(data, &role); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(rulesOf(t, role), roles["torpor-"+name]); diff != "" {
					t.Errorf("rights of %s (-generated +chart):\n%s", name, diff)
				}
				delete(roles, "torpor-"+name)
				if !strings.Contains(string(out), "--controllers="+name+"\n") {
					t.Errorf("expected %s to be enabled, found it is not", name)
				}
			}
			for _, common := range []string{"torpor-manager", "torpor-metrics-reader", "torpor-admission"} {
				delete(roles, common)
			}
			if len(roles) != 0 {
				t.Errorf("expected no rights of features that are left off, found %v", roles)
			}
		})
	}
	for values, want := range map[string]string{"features={hibernate}": "features", "features=null": "features", "replica=3": "replica"} {
		out, err := exec.CommandContext(t.Context(), helm, "template", chart, "--kube-version", "1.36.0", "--set", values).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: expected an error about %s, found %v: %s", values, want, err, out)
		}
	}
}

func rulesOf(t *testing.T, object map[string]any) []rbacv1.PolicyRule {
	t.Helper()
	var role rbacv1.ClusterRole
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &role); err != nil {
		t.Fatal(err)
	}
	return role.Rules
}
