// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"strings"
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// EndlessStop is the assumed duration of a stop without an end.
const EndlessStop = 24 * time.Hour

// StopWindow is the period of a stop that is in effect, planned or assumed.
type StopWindow struct {
	// Now is the current time. Since is when the stop began or would begin.
	Now, Since time.Time
	// Until is when the stop ends; zero if it has no end.
	Until time.Time
	// RequiresPossible is true if the stop requires HibernationPossible. Warnings that the cluster might not come back,
	// or might lose data, are then blocking.
	RequiresPossible bool
}

func (s StopWindow) length() time.Duration {
	if s.Until.IsZero() {
		return EndlessStop
	}
	return s.Until.Sub(s.Since)
}

// JudgeCheck returns the findings of a hibernation check that concern a stop in this window, the worst first.
func JudgeCheck(check *hivev1.HibernationCheck, stop StopWindow) []Finding {
	if check == nil {
		return nil
	}
	var findings []Finding
	for _, f := range check.Findings {
		if f.After == nil || stop.length() >= f.After.Duration {
			findings = append(findings, NewFinding(f.Code, int(f.Count), f.Objects...))
		}
	}
	switch wakeBy := check.WakeBy; {
	case wakeBy == nil:
	case stop.Until.After(wakeBy.Time):
		findings = append(findings, NewFinding(torporv1alpha1.StopOutlastsCertificatesFinding, 0))
	case wakeBy.Sub(stop.Now) < nearMargin:
		findings = append(findings, NewFinding(torporv1alpha1.WakeByNearFinding, 0))
	}
	if len(check.Unread) > 0 {
		findings = append(findings, NewRemark(torporv1alpha1.NotCheckedFinding, "Expected all lists that the survey reads, found some that the cluster did not return in time, or that the kubeconfig's user may not read: "+strings.Join(check.Unread, ", ")))
	}
	if stop.RequiresPossible {
		for i, f := range findings {
			if slices.Contains(dangers(), f.Code) {
				findings[i].Severity = Blocking
			}
		}
	}
	return sortFindings(findings)
}

// dangers returns the codes of warnings that the cluster might not come back, or might lose data.
func dangers() []string {
	return []string{
		torporv1alpha1.WakeByNearFinding, torporv1alpha1.QuotaExceededFinding, torporv1alpha1.EtcdQuorumSmallFinding,
		torporv1alpha1.HealthCheckReplacesMachinesFinding, torporv1alpha1.VolumesLocalFinding,
	}
}

// ObjectFacts are the properties of a ClusterDeployment that prevent a hibernation.
type ObjectFacts struct {
	IsBeingDeleted bool
	// Unsupported is the reason why the cluster cannot hibernate; empty if it can.
	Unsupported string
}

// JudgeObject returns the findings that follow from the object alone.
func JudgeObject(o ObjectFacts) []Finding {
	var findings []Finding
	if o.IsBeingDeleted {
		findings = append(findings, NewFinding(torporv1alpha1.BeingDeletedFinding, 0))
	}
	if o.Unsupported != "" {
		findings = append(findings, NewRemark(torporv1alpha1.HibernationUnsupportedFinding, o.Unsupported))
	}
	return findings
}
