// SPDX-License-Identifier: Apache-2.0

package stopcheck

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// SwitchedObject is an object whose own switch the manager sets, and sets back.
type SwitchedObject struct {
	metav1.Object
	// Changes say in sentences what becomes of its fields.
	Changes []string
	// Refusal is why the manager does not stop it; empty if it does.
	Refusal string
	// Unread says what could not be read about it; empty if everything was.
	Unread string
	// Schedule is that of a CronJob, and Deadline the starting deadline in seconds; empty and nil of others.
	Schedule string
	Deadline *int64
	// Scheduled are the stops of Slumbers.
	Scheduled []torporv1alpha1.ScheduledStop
	// StartCommand starts it again.
	StartCommand string
}

// PlanSwitched says what a stop or a start does to such an object, and what it may run into.
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
