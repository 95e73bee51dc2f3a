// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

func TestFindingsAboutMachines(t *testing.T) {
	const code = torporv1alpha1.CapacityReservationMissingFinding
	machine := func(id string, state actuator.MachineState, missing string) actuator.Machine {
		return actuator.Machine{ID: id, State: state, MissingReservation: missing}
	}
	running, stopped := actuator.Running, actuator.Stopped
	// Every check has one finding that is not about machines, and that is kept.
	check := func(findings ...torporv1alpha1.StopFinding) *hivev1.HibernationCheck {
		findings = append(findings, torporv1alpha1.StopFinding{Code: torporv1alpha1.EtcdQuorumSmallFinding})
		slices.SortFunc(findings, func(a, b torporv1alpha1.StopFinding) int { return strings.Compare(a.Code, b.Code) })
		return &hivev1.HibernationCheck{Findings: findings}
	}
	one := torporv1alpha1.StopFinding{Code: code, Count: 1, Objects: []string{"i-1"}}
	for name, row := range map[string]struct {
		before, survey *hivev1.HibernationCheck
		machines       []actuator.Machine
		want           *hivev1.HibernationCheck
	}{
		"machine outside of its reservation: a finding": {check(), check(), []actuator.Machine{machine("i-0", running, ""), machine("i-1", running, "cr-1")}, check(one)},
		"four machines outside of their reservation: three are named": {
			check(), check(),
			[]actuator.Machine{machine("i-1", running, "cr-1"), machine("i-2", running, "cr-1"), machine("i-3", running, "cr-2"), machine("i-4", running, "cr-2")},
			check(torporv1alpha1.StopFinding{Code: code, Count: 4, Objects: []string{"i-1", "i-2", "i-3"}}),
		},
		"machines in a region with exceeded quotas: a finding that names each quota once": {
			check(), check(),
			[]actuator.Machine{{ID: "i-1", State: running, ExceededQuotas: []string{"r/CPUS", "r/N2_CPUS"}}, {ID: "i-2", State: running, MissingReservation: "cr-1", ExceededQuotas: []string{"r/CPUS"}}},
			check(
				torporv1alpha1.StopFinding{Code: code, Count: 1, Objects: []string{"i-2"}},
				torporv1alpha1.StopFinding{Code: torporv1alpha1.QuotaExceededFinding, Count: 2, Objects: []string{"r/CPUS", "r/N2_CPUS"}},
			),
		},
		"all machines in their reservation: the finding is removed":     {check(one), check(one), []actuator.Machine{machine("i-1", running, "")}, check()},
		"machine still outside of its reservation: the finding is kept": {check(one), check(one), []actuator.Machine{machine("i-1", running, "cr-1")}, check(one)},
		"stopped machine: the finding about its reservation is kept":    {check(one), check(one), []actuator.Machine{machine("i-1", stopped, "")}, check(one)},
		"new survey of a cluster without observed machines: the finding is taken from the previous check": {
			check(one), check(), nil, check(one),
		},
		"cluster that was never surveyed: no check is created":                 {nil, nil, []actuator.Machine{machine("i-1", running, "cr-1")}, nil},
		"first survey of a starting machine: no finding about its reservation": {nil, check(), []actuator.Machine{machine("i-1", actuator.Starting, "cr-1")}, check()},
		"machine with an unprintable id: counted but not named": {
			check(), check(), []actuator.Machine{machine("i\n1", running, "cr-1")}, check(torporv1alpha1.StopFinding{Code: code, Count: 1}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := row.survey.DeepCopy()
			if diff := cmp.Diff(row.want, WithMachines(row.survey, row.before, row.machines)); diff != "" {
				t.Errorf("check (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, row.survey); diff != "" {
				t.Errorf("expected the given check unchanged (-want +got):\n%s", diff)
			}
		})
	}
}
