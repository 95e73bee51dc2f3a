// SPDX-License-Identifier: Apache-2.0

package flux

import (
	"os"
	"testing"

	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/torpor-dev/torpor/test/outside/observers/statuses"
)

const healthChecks = "../../../../config/flux/health-checks.yaml"

// TestFluxReportsDesiredStateAsCurrent evaluates the expressions as kustomize-controller does. Without a
// status there is nothing to evaluate, and Flux waits.
func TestFluxReportsDesiredStateAsCurrent(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"a new cluster": "waits", "a running cluster": "Current", "a stopping cluster": "InProgress", "a hibernating cluster": "Current",
		"a cluster with an unobserved stop": "InProgress", "a cluster that fails to stop": "Failed",
		"a healthy database": "Current", "a database without a primary": "InProgress", "a database with clustering stopped": "Current",
		"a database with an unobserved stop": "InProgress",
	}
	checks := readHealthChecks(t)
	all, err := statuses.List()
	if err != nil {
		t.Fatal(err)
	}
	for name, obj := range all {
		check, isChecked := checks[obj.GroupVersionKind()]
		if !isChecked {
			continue // kstatus reads these correctly without expressions.
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if found := evaluate(t, check, obj); found != want[name] {
				t.Errorf("expected %q, found %q", want[name], found)
			}
		})
	}
}

func evaluate(t *testing.T, check kustomize.HealthCheckExpressions, obj *unstructured.Unstructured) string {
	t.Helper()
	evaluator, err := cel.NewStatusEvaluator(&check)
	if err != nil {
		t.Fatal(err)
	}
	result, err := evaluator.Evaluate(t.Context(), obj)
	if _, isReported := obj.Object["status"]; !isReported && err != nil {
		return "waits"
	}
	if err != nil {
		t.Fatal(err)
	}
	return result.Status.String()
}

func readHealthChecks(t *testing.T) map[schema.GroupVersionKind]kustomize.HealthCheckExpressions {
	t.Helper()
	content, err := os.ReadFile(healthChecks)
	if err != nil {
		t.Fatal(err)
	}
	var written struct {
		Spec struct {
			HealthCheckExprs []kustomize.CustomHealthCheck `json:"healthCheckExprs"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(content, &written); err != nil {
		t.Fatal(err)
	}
	checks := map[schema.GroupVersionKind]kustomize.HealthCheckExpressions{}
	for _, check := range written.Spec.HealthCheckExprs {
		checks[schema.FromAPIVersionAndKind(check.APIVersion, check.Kind)] = check.HealthCheckExpressions
	}
	return checks
}
