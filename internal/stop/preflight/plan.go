// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// Plan describes the effects of a stop or a start of one object, and its predicted problems.
type Plan struct {
	// Effects are sentences that describe what happens, in chronological order.
	Effects []string
	// WakeBy is when a cluster must be running again; nil if this is unknown or not relevant.
	WakeBy   *metav1.Time
	Findings []Finding
}

// PlanRequest is the stop or start that a user plans.
type PlanRequest struct {
	// IsStart is true for a planned start, and false for a stop.
	IsStart bool
	// Now is the current time, and Until the planned end of the stop; zero if the user sets no end.
	Now, Until time.Time
	// Record is the stop record of the object's switch. UntilAnnotation is the annotation with the end of the stop.
	Record          stoprecord.Records
	UntilAnnotation string
	// SkipCommand is the command that starts an object that a Slumber keeps stopped.
	SkipCommand string
	// Zone is the time zone of the times in the effects; nil means RFC 3339 in UTC, for programs.
	Zone *time.Location
}

func (r PlanRequest) formatTime(at time.Time) string {
	if r.Zone == nil {
		return at.UTC().Format(time.RFC3339)
	}
	return stoprecord.FormatLocal(at, r.Zone)
}

// Stop returns the period of the stop in effect, or of a stop that begins now. A planned end replaces the end of the
// stop in effect. If a start is planned, the stop ends now.
func (r PlanRequest) Stop() StopWindow {
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

// JudgeShared returns the findings that do not depend on the kind of the object.
func JudgeShared(object metav1.Object, r PlanRequest) []Finding {
	var findings []Finding
	if object.GetDeletionTimestamp() != nil {
		findings = append(findings, NewFinding(torporv1alpha1.BeingDeletedFinding, 0))
	}
	if r.IsStart || !r.Until.IsZero() {
		return findings // A start removes the annotation with the end, and a new end replaces the annotation.
	}
	if ignored := r.Record.DescribeIgnored(r.UntilAnnotation); ignored != "" {
		return append(findings, NewRemark(torporv1alpha1.UntilInvalidFinding, ignored))
	}
	text := object.GetAnnotations()[r.UntilAnnotation]
	if text == "" || r.Record.Holds() {
		return findings
	}
	until, err := stoprecord.ParseUntil(text, r.Now)
	switch {
	case err != nil:
		findings = append(findings, NewRemark(torporv1alpha1.UntilInvalidFinding, fmt.Sprintf("%s would be ignored: %s; correct or remove it", r.UntilAnnotation, err)))
	case !until.After(r.Now):
		findings = append(findings, NewRemark(torporv1alpha1.UntilInvalidFinding, fmt.Sprintf("%s would be ignored: expected a time in the future, found %.40q; correct or remove it", r.UntilAnnotation, text)))
	}
	return findings
}

// JudgeSlumber returns a finding about the Slumber that stops the object now. scheduled is the stop of this Slumber;
// nil if no Slumber stops the object.
func JudgeSlumber(scheduled *torporv1alpha1.ScheduledStop, r PlanRequest) []Finding {
	if scheduled == nil {
		return nil
	}
	name, until := "the "+stoprecord.NameSlumber(scheduled.Slumber), r.Stop().Until
	switch {
	case r.IsStart:
		finding := NewFinding(torporv1alpha1.StoppedBySlumberFinding, 1, name)
		finding.Message += "; " + r.SkipCommand + " starts the object"
		return []Finding{finding}
	case !until.IsZero() && (scheduled.ExpiresAt == nil || scheduled.ExpiresAt.After(until)):
		return []Finding{NewFinding(torporv1alpha1.SlumberGoesOnFinding, 1, name)}
	default:
		return nil
	}
}

// DescribeTakeover describes the effects of a manual stop of an object that only a Slumber stops. It returns nil if
// no Slumber stops the object, or if a manual stop is already in effect.
func (r PlanRequest) DescribeTakeover(scheduled *torporv1alpha1.ScheduledStop, startCommand string) []string {
	if scheduled == nil || r.IsStart || r.Record.Holds() {
		return nil
	}
	end := "without a known end"
	if until := scheduled.Stops[0].Until; until != nil {
		end = "until " + r.formatTime(until.Time)
	}
	effects := []string{
		fmt.Sprintf("Nothing changes now: the %s already stops the object, %s", stoprecord.NameSlumber(scheduled.Slumber), end),
		"The manual stop is recorded with its requester, reason and end, and stays in effect when the Slumber ends its own stop",
	}
	if until := r.Stop().Until; !until.IsZero() {
		return append(effects, "The manual stop ends at "+r.formatTime(until)+"; the object starts then, unless a Slumber still stops it")
	}
	return append(effects, "The manual stop lasts until a user runs: "+startCommand,
		"Without a manual stop, the start command is refused while the Slumber stops the object, and this command starts the object: "+r.SkipCommand)
}

// DescribeEnd describes the end of the stop.
func (r PlanRequest) DescribeEnd(startCommand string) string {
	if until := r.Stop().Until; !until.IsZero() {
		if stoprecord.IsOverdue(new(metav1.NewTime(until)), r.Now) {
			return "The stop should have ended by itself at " + r.formatTime(until) + ": check whether the manager runs"
		}
		return "The stop ends automatically at " + r.formatTime(until)
	}
	return "The stop lasts until a user runs: " + startCommand
}
