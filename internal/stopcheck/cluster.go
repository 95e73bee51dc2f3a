// SPDX-License-Identifier: Apache-2.0

package stopcheck

import (
	"strings"
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// endlessStop is how long a stop is taken to last that has no end.
const endlessStop = 24 * time.Hour

// StopWindow is when a stop is that goes on, is planned, or might be.
type StopWindow struct {
	// Now is the time of the judgement, and Since when the stop began or would.
	Now, Since time.Time
	// Until is when it ends; zero if it does not by itself.
	Until time.Time
}

func (s StopWindow) length() time.Duration {
	if s.Until.IsZero() {
		return endlessStop
	}
	return s.Until.Sub(s.Since)
}

// JudgeCheck returns what of a check matters to a stop, the worst first.
func JudgeCheck(check *hivev1.HibernationCheck, stop StopWindow) []Finding {
	if check == nil {
		return nil
	}
	var findings []Finding
	for _, f := range check.Findings {
		if f.After == nil || stop.length() >= f.After.Duration {
			findings = append(findings, newFinding(f.Code, int(f.Count), f.Objects...))
		}
	}
	switch wakeBy := check.WakeBy; {
	case wakeBy == nil:
	case stop.Until.After(wakeBy.Time):
		findings = append(findings, newFinding(torporv1alpha1.StopOutlastsCertificatesFinding, 0))
	case wakeBy.Sub(stop.Now) < nearMargin:
		findings = append(findings, newFinding(torporv1alpha1.WakeByNearFinding, 0))
	}
	if len(check.Unread) > 0 {
		findings = append(findings, newRemark(torporv1alpha1.NotCheckedFinding, "Expected to read what a stop may run into, found that the cluster does not show in time, or not to this kubeconfig: "+strings.Join(check.Unread, ", ")))
	}
	return sortFindings(findings)
}

// ObjectFacts is what of an object itself keeps a cluster from hibernating.
type ObjectFacts struct {
	IsBeingDeleted bool
	// Unsupported says why the cluster cannot hibernate; empty if it can.
	Unsupported string
}

// JudgeObject returns what follows from the object itself.
func JudgeObject(o ObjectFacts) []Finding {
	var findings []Finding
	if o.IsBeingDeleted {
		findings = append(findings, newFinding(torporv1alpha1.BeingDeletedFinding, 0))
	}
	if o.Unsupported != "" {
		findings = append(findings, newRemark(torporv1alpha1.HibernationUnsupportedFinding, o.Unsupported))
	}
	return findings
}
