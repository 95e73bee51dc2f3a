// SPDX-License-Identifier: Apache-2.0

package check

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// SwitchedObject is an object whose own switch the manager sets and resets.
type SwitchedObject struct {
	metav1.Object
	// Changes describe in sentences the changes of its fields.
	Changes []string
	// Refusal is why the manager does not stop it; empty if it does.
	Refusal string
	// Unread describes what could not be read about it; empty if everything was.
	Unread string
	// Schedule is the schedule of a CronJob, and Deadline its starting deadline in seconds; empty and nil for
	// other kinds.
	Schedule string
	Deadline *int64
	// Scheduled are the stops of Slumbers.
	Scheduled []torporv1alpha1.ScheduledStop
	// StartCommand is the command that starts it again.
	StartCommand string
}

// PlanSwitched describes the effects of a stop or a start of such an object, and the problems that it may
// meet.
func PlanSwitched(o SwitchedObject, r PlanRequest) Plan {
	findings := append(judgeShared(o, r), judgeSlumbers(o.Scheduled, o.GetAnnotations(), r)...)
	if !r.IsStart {
		findings = append(findings, o.judgeStop()...)
	}
	if after := missedStartsAfter(o.Schedule); after > 0 && r.stop().length() >= after && !isBoundedBy(o.Deadline, after) {
		findings = append(findings, newFinding(torporv1alpha1.CronJobsMissStartsFinding, 1, o.GetName()))
	}
	effects := o.Changes
	if !r.IsStart {
		effects = append(effects, r.describeEnd(o.StartCommand))
	}
	return Plan{Effects: effects, Findings: sortFindings(findings)}
}

func (o SwitchedObject) judgeStop() (findings []Finding) {
	if o.Refusal != "" {
		findings = append(findings, newRemark(torporv1alpha1.StopRefusedFinding, o.Refusal))
	}
	if o.Unread != "" {
		findings = append(findings, newRemark(torporv1alpha1.NotCheckedFinding, o.Unread))
	}
	return findings
}
