// SPDX-License-Identifier: Apache-2.0

package stopcheck

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/stoprecord"
)

// Plan is what a stop or a start would do to one object, and what it may run into.
type Plan struct {
	// Effects say in sentences what happens, in the order in which it does.
	Effects []string
	// WakeBy is when a cluster has to be awake; nil if that is not known, or does not matter.
	WakeBy   *metav1.Time
	Findings []Finding
}

// PlanRequest is what somebody plans.
type PlanRequest struct {
	// IsStart says that it is to be started, and not stopped.
	IsStart bool
	// Now is the time of the plan, and Until when the stop is to end; zero if it has no end of its own.
	Now, Until time.Time
	// Record is that of the switch, and UntilAnnotation the annotation that says when its stop ends.
	Record          stoprecord.Records
	UntilAnnotation string
}

// stop returns the stop that the request is about: the one that goes on, with the end that is asked for, or one that begins now.
func (r PlanRequest) stop() StopWindow {
	s := StopWindow{Now: r.Now, Since: r.Now, Until: r.Until}
	if r.Record.Holds() {
		newest := r.Record.RequestedStop()
		s.Since = newest.Since.Time
		if s.Until.IsZero() && newest.Until != nil {
			s.Until = newest.Until.Time
		}
	}
	if r.IsStart {
		s.Until = r.Now
	}
	return s
}

// judgeShared returns what may be found of every kind.
func judgeShared(object metav1.Object, r PlanRequest) []Finding {
	var findings []Finding
	if object.GetDeletionTimestamp() != nil {
		findings = append(findings, newFinding(torporv1alpha1.BeingDeletedFinding, 0))
	}
	if r.IsStart || !r.Until.IsZero() {
		return findings // What it says goes, or is replaced.
	}
	if ignored := r.Record.DescribeIgnored(r.UntilAnnotation); ignored != "" {
		return append(findings, newRemark(torporv1alpha1.UntilInvalidFinding, ignored))
	}
	text := object.GetAnnotations()[r.UntilAnnotation]
	if text == "" || r.Record.Holds() {
		return findings
	}
	until, err := stoprecord.ParseUntil(text, r.Now)
	switch {
	case err != nil:
		findings = append(findings, newRemark(torporv1alpha1.UntilInvalidFinding, fmt.Sprintf("%s would be ignored: %s; correct or remove it", r.UntilAnnotation, err)))
	case !until.After(r.Now):
		findings = append(findings, newRemark(torporv1alpha1.UntilInvalidFinding, fmt.Sprintf("%s would be ignored: expected a time to come, found %.40q; correct or remove it", r.UntilAnnotation, text)))
	}
	return findings
}

// judgeSlumbers returns how a Slumber that stops the object now is in the way.
func judgeSlumbers(stops []torporv1alpha1.ScheduledStop, annotations map[string]string, r PlanRequest) []Finding {
	scheduled := stoprecord.FindScheduled(stops, annotations, r.Now)
	if scheduled == nil {
		return nil
	}
	name, until := "the Slumber "+scheduled.Slumber, r.stop().Until
	switch {
	case r.IsStart:
		return []Finding{newFinding(torporv1alpha1.StoppedBySlumberFinding, 1, name)}
	case !until.IsZero() && (scheduled.ExpiresAt == nil || scheduled.ExpiresAt.After(until)):
		return []Finding{newFinding(torporv1alpha1.SlumberGoesOnFinding, 1, name)}
	default:
		return nil
	}
}

// describeEnd says how the stop ends.
func (r PlanRequest) describeEnd(startCommand string) string {
	if until := r.stop().Until; !until.IsZero() {
		return "It starts by itself at " + until.UTC().Format(time.RFC3339)
	}
	return "It stays so until somebody starts it: " + startCommand
}
