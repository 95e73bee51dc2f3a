// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cluster/hibernation"
	"github.com/torpor-dev/torpor/internal/stop/preflight"
)

// TestUnsupportedClustersReportTheConditionHibernating has two conditions that report why the cluster cannot
// hibernate, of which Hibernating takes precedence.
func TestUnsupportedClustersReportTheConditionHibernating(t *testing.T) {
	cd := &hivev1.ClusterDeployment{Spec: hivev1.ClusterDeploymentSpec{Installed: true}}
	cd.Status.Conditions = []metav1.Condition{
		{Type: hivev1.ClusterHibernationPossibleCondition, Reason: torporv1alpha1.HibernationUnsupportedFinding, Message: "possible"},
		{Type: hivev1.ClusterHibernatingCondition, Reason: hivev1.InvalidSpecReason, Message: "hibernating"},
	}
	for range 100 {
		if found := unsupportedMessage(cd); found != "hibernating" {
			t.Fatalf("expected the message of Hibernating, found %q", found)
		}
	}
}

// TestAPlanNamesTheRequirementThatRefusesAStop has clusters with and without a required HibernationPossible, and
// findings of each severity.
func TestAPlanNamesTheRequirementThatRefusesAStop(t *testing.T) {
	required := map[string]string{hivev1.RequireAnnotation: hivev1.RequireHibernationPossible}
	refused := []metav1.Condition{{Type: hivev1.ClusterHibernatingCondition, Status: metav1.ConditionFalse, Reason: hivev1.RefusedHibernationReason}}
	for name, row := range map[string]struct {
		annotations map[string]string
		conditions  []metav1.Condition
		code        string
		isStart     bool
		want        bool
	}{
		"HibernationPossible required by the annotation, a blocking finding: the stop is refused":     {required, nil, torporv1alpha1.ClusterUpgradingFinding, false, true},
		"HibernationPossible required by the manager's flag, a blocking finding: the stop is refused": {nil, refused, torporv1alpha1.ClusterUpgradingFinding, false, true},
		"HibernationPossible not required, a blocking finding: the stop is not refused":               {nil, nil, torporv1alpha1.ClusterUpgradingFinding, false, false},
		"HibernationPossible required by the annotation, only a warning: the stop is not refused":     {required, nil, torporv1alpha1.AutoscalerAddsMachinesFinding, false, false},
		"HibernationPossible required by the annotation, a blocking finding: a start is not refused":  {required, nil, torporv1alpha1.ClusterUpgradingFinding, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			cd := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Annotations: row.annotations}}
			cd.Status.Conditions = row.conditions
			cd.Status.HibernationCheck = &hivev1.HibernationCheck{Findings: []torporv1alpha1.StopFinding{{Code: row.code, Count: 1}}}
			found := judgeSurvey(cd, preflight.PlanRequest{IsStart: row.isStart})
			isRefused := slices.ContainsFunc(found, func(f preflight.Finding) bool { return f.Code == torporv1alpha1.StopRefusedFinding })
			if isRefused != row.want {
				t.Errorf("expected a refused stop: %t, found %+v", row.want, found)
			}
		})
	}
}

// TestPlanOfAStopNamesItsOptions has clusters with the annotations that change how machines are stopped.
func TestPlanOfAStopNamesItsOptions(t *testing.T) {
	const kept = "Disks are kept, except temporary ones and those of spot machines that can only be terminated"
	for name, row := range map[string]struct {
		annotations map[string]string
		want        []string
	}{
		"without annotations: all machines are stopped together": {nil, []string{"All its machines on aws are stopped together, and no Pod is evicted first", kept}},
		"workers first: the control plane is stopped last": {
			map[string]string{hivev1.StopOrderAnnotation: hivev1.StopWorkersFirst},
			[]string{"Its workers on aws are stopped before its control plane, and no Pod is evicted first", kept},
		},
		"drain: Pods are evicted first": {
			map[string]string{hivev1.DrainBudgetAnnotation: "10m"},
			[]string{"All its machines on aws are stopped together, after the Pods of its workers have been evicted for at most 10m0s", kept},
		},
		"suspended groups: no machine is replaced": {
			map[string]string{hivev1.MachineGroupsAnnotation: hivev1.MachineGroupsSuspend},
			[]string{"Its machine groups replace no machine until the start", "All its machines on aws are stopped together, and no Pod is evicted first", kept},
		},
		"groups scaled to zero: their machines are terminated": {
			map[string]string{hivev1.MachineGroupsAnnotation: hivev1.MachineGroupsScaleToZero},
			[]string{"Its machine groups are scaled to zero, which terminates their machines", "All its machines on aws are stopped together, and no Pod is evicted first", kept + ", and those of machine groups"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if found := stopEffects(hibernation.ReadStopOptions(row.annotations), "aws"); !slices.Equal(found, row.want) {
				t.Errorf("expected %q, found %q", row.want, found)
			}
		})
	}
}
