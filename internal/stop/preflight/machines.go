// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"strings"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// WithMachines returns check with the findings about the cluster's machines. While all machines are running, these
// findings are derived from the machines. Otherwise they are copied from the previous check. If check is nil, it
// returns nil.
func WithMachines(check, before *hivev1.HibernationCheck, machines []actuator.Machine) *hivev1.HibernationCheck {
	if check == nil {
		return nil
	}
	wanted := judgeMachines(machines)
	if !areAllRunning(machines) {
		wanted = findingsOfMachines(before)
	}
	if slices.EqualFunc(findingsOfMachines(check), wanted, isSameFinding) {
		return check
	}
	changed := check.DeepCopy()
	changed.Findings = append(slices.DeleteFunc(changed.Findings, isOfMachines), wanted...)
	slices.SortFunc(changed.Findings, func(a, b torporv1alpha1.StopFinding) int { return strings.Compare(a.Code, b.Code) })
	return changed
}

// judgeMachines returns the findings about running machines, with at most one for each code, sorted by code.
func judgeMachines(machines []actuator.Machine) []torporv1alpha1.StopFinding {
	var missing, quotas []string
	for _, m := range machines {
		if m.MissingReservation != "" {
			missing = append(missing, m.ID)
		}
		quotas = append(quotas, m.ExceededQuotas...)
	}
	slices.Sort(quotas)
	var findings []torporv1alpha1.StopFinding
	for _, row := range []struct {
		code    string
		objects []string
	}{{torporv1alpha1.CapacityReservationMissingFinding, missing}, {torporv1alpha1.QuotaExceededFinding, slices.Compact(quotas)}} {
		var t findingTally
		for _, object := range row.objects {
			t.add(object, 0)
		}
		if t.count > 0 {
			findings = append(findings, t.finding(row.code))
		}
	}
	return findings
}

func areAllRunning(machines []actuator.Machine) bool {
	return len(machines) > 0 && !slices.ContainsFunc(machines, func(m actuator.Machine) bool { return m.State != actuator.Running })
}

func isOfMachines(f torporv1alpha1.StopFinding) bool {
	return f.Code == torporv1alpha1.CapacityReservationMissingFinding || f.Code == torporv1alpha1.QuotaExceededFinding
}

func findingsOfMachines(check *hivev1.HibernationCheck) []torporv1alpha1.StopFinding {
	if check == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(check.Findings), func(f torporv1alpha1.StopFinding) bool { return !isOfMachines(f) })
}

func isSameFinding(a, b torporv1alpha1.StopFinding) bool {
	return a.Code == b.Code && a.Count == b.Count && slices.Equal(a.Objects, b.Objects)
}
