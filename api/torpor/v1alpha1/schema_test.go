// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestTheSchema sends objects to a real API server.
func TestTheSchema(t *testing.T) {
	t.Parallel()
	s := &schemaServer{testenv.StartAPIServer(t)}
	s.InstallCRDs(t)
	t.Run("values at creation", s.testRefusedAtCreation)
	t.Run("changes after creation", s.testRefusedLater)
	t.Run("defaults", s.testDefaults)
}

type schemaServer struct{ *testenv.Environment }

// schemaCase is a change to a deployment, and the expected refusal. An empty refusal means that the change is accepted.
type schemaCase struct {
	do      func(*torporv1alpha1.CFDeploymentSpec)
	refusal string
}

func newDeployment(namespace string) *torporv1alpha1.CFDeployment {
	return &torporv1alpha1.CFDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "test"},
		Spec:       torporv1alpha1.CFDeploymentSpec{AppRef: torporv1alpha1.AppReference{Name: "a"}},
	}
}

func (s *schemaServer) testRefusedAtCreation(t *testing.T) {
	for name, row := range map[string]schemaCase{
		"the smallest deployment: accepted":                    {func(*torporv1alpha1.CFDeploymentSpec) {}, ""},
		"a deployment without an app: rejected":                {func(d *torporv1alpha1.CFDeploymentSpec) { d.AppRef.Name = "" }, "spec.appRef.name in body should be at least 1 chars long"},
		"an unknown strategy: rejected":                        {func(d *torporv1alpha1.CFDeploymentSpec) { d.Strategy = "blue-green" }, `spec.strategy: Unsupported value: "blue-green": supported values: "rolling", "canary"`},
		"maxInFlight -1: rejected":                             {func(d *torporv1alpha1.CFDeploymentSpec) { d.MaxInFlight = -1 }, "spec.maxInFlight in body should be greater than or equal to 1"},
		"a canary step of 0 %: rejected":                       {withSteps(0), "spec.steps[0].instanceWeight in body should be greater than or equal to 1"},
		"a canary step of 101 %: rejected":                     {withSteps(50, 101), "spec.steps[1].instanceWeight in body should be less than or equal to 100"},
		"three canary steps: accepted":                         {withSteps(1, 50, 100), ""},
		"21 canary steps: rejected":                            {withSteps(make([]int32, 21)...), "spec.steps: Too many: 21: must have at most 20 items"},
		"continuedSteps -1: rejected":                          {func(d *torporv1alpha1.CFDeploymentSpec) { d.ContinuedSteps = -1 }, "spec.continuedSteps in body should be greater than or equal to 0"},
		"a droplet reference without a name: rejected":         {func(d *torporv1alpha1.CFDeploymentSpec) { d.DropletRef = &torporv1alpha1.AppReference{} }, "spec.dropletRef.name in body should be at least 1 chars long"},
		"a deployment that is cancelled at creation: accepted": {func(d *torporv1alpha1.CFDeploymentSpec) { d.Cancelled = true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeployment("default")
			row.do(&d.Spec)
			testenv.ExpectRefused(t, s.Client.Create(t.Context(), d, client.DryRunAll), row.refusal)
		})
	}
}

func withSteps(weights ...int32) func(*torporv1alpha1.CFDeploymentSpec) {
	return func(d *torporv1alpha1.CFDeploymentSpec) {
		for _, w := range weights {
			d.Steps = append(d.Steps, torporv1alpha1.CanaryStep{InstanceWeight: w})
		}
	}
}

func (s *schemaServer) testRefusedLater(t *testing.T) {
	for name, row := range map[string]schemaCase{
		"continuedSteps raised to 1: accepted": {func(d *torporv1alpha1.CFDeploymentSpec) { d.ContinuedSteps = 1 }, ""},
		"a change to the app: rejected":        {func(d *torporv1alpha1.CFDeploymentSpec) { d.AppRef.Name = "b" }, "spec.appRef: Invalid value: expected no change, because a deployment belongs to one app; found one; create a new CFDeployment"},
		"a withdrawn cancellation: rejected":   {func(d *torporv1alpha1.CFDeploymentSpec) { d.Cancelled = false }, "expected a cancelled deployment to stay cancelled; found the cancellation removed; create a new CFDeployment"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDeployment(s.CreateNamespace(t))
			d.Spec.Cancelled = true
			testenv.ExpectNoError(t, s.Client.Create(t.Context(), d))
			row.do(&d.Spec)
			testenv.ExpectRefused(t, s.Client.Update(t.Context(), d), row.refusal)
		})
	}
}

func (s *schemaServer) testDefaults(t *testing.T) {
	d := newDeployment("default")
	testenv.ExpectNoError(t, s.Client.Create(t.Context(), d, client.DryRunAll))
	if d.Spec.Strategy != torporv1alpha1.RollingDeployment || d.Spec.MaxInFlight != 1 {
		t.Errorf("expected a rolling deployment of one at a time, found %+v", d.Spec)
	}
}
