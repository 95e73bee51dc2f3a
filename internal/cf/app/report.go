// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/stop/savings"
)

// Report holds the results that UpdateStatus does not write to the status.
type Report struct {
	Ready, Draining decision.Condition
	// Began is a revision that was observed for the first time. It is nil if no revision began, or if the creation of
	// the app began the revision.
	Began *korifiv1alpha1.Restart
	// Unseen is the number of earlier revisions that ended before they were observed.
	Unseen int64
	// IsTransient is true if the app is still changing to its desired state. It is false in the first report, and if
	// the app has just lost its readiness.
	IsTransient bool
}

// UpdateStatus writes the observed state of an app to its status, except for the conditions.
func UpdateStatus(o Observed) Report {
	app, status, before := o.App, &o.App.Status, o.App.Status.DeepCopy()
	var versions []string
	for i := range o.LRPs {
		versions = append(versions, o.LRPs[i].Spec.Version)
	}
	status.ObservedGeneration = app.Generation
	status.ObservedDesiredState = app.Spec.DesiredState
	// The revision is read before ObservedRevision changes, because ReadRevision reads that field.
	_, _, unreadable := revision.ReadRevision(app)
	status.ObservedRevision = revision.HighestRevision(app, versions)
	status.Instances = countInstances(app, o.Processes)
	r := Report{Began: recordRestart(o)}
	if r.Began != nil {
		r.Unseen = max(0, r.Began.Revision-before.ObservedRevision-1)
	}
	r.Ready, r.Draining = summarizeProcesses(o, unreadable)
	status.Savings = savings.Next(status.Savings, savedRate(o, r.Ready), o.Moment)
	r.Ready.Message += stopNote(o.Stops) + scheduledNote(o)
	status.Stops = o.Stops
	status.ActualState = korifiv1alpha1.StoppedState
	serving := status.Instances.Ready + status.Instances.ReadyOlder
	if serving > 0 || r.Ready.Status == metav1.ConditionTrue && o.shouldRun() {
		status.ActualState = korifiv1alpha1.StartedState
	}
	// The first report of a new app is never delayed, because the app's creator waits for it.
	r.IsTransient = len(before.Restarts) > 0 && isTransient(before, app, r.Ready)
	return r
}

// isTransient reports whether the app is still changing to its desired state. It returns false for an app that is no
// longer ready although neither its spec nor its revision has changed, so that this status is written immediately.
func isTransient(before *korifiv1alpha1.CFAppStatus, app *korifiv1alpha1.CFApp, ready decision.Condition) bool {
	if !process.IsProgressReason(ready.Reason) {
		return false
	}
	same := before.ObservedGeneration == app.Generation && before.ObservedRevision == app.Status.ObservedRevision
	return !same || !meta.IsStatusConditionTrue(before.Conditions, korifiv1alpha1.ReadyCondition)
}

func countInstances(app *korifiv1alpha1.CFApp, processes []korifiv1alpha1.CFProcess) *korifiv1alpha1.InstanceCounts {
	n := &korifiv1alpha1.InstanceCounts{}
	for i := range processes {
		p := &processes[i]
		n.Desired += process.DesiredInstances(p)
		n.Ready += p.Status.ActualInstances
		n.Draining += p.Status.DrainingInstances
		for _, r := range process.ServingRevisions(app, p) {
			n.ReadyOlder += min(r.Ready, r.Desired)
		}
	}
	return n
}

// summarizeProcesses returns the app's Ready and Draining conditions. Ready is the condition of the first process, by
// type, that is not in its desired state. If all processes are in their desired state, Ready is true. If there is no
// process or the revision is unreadable, Ready is false.
func summarizeProcesses(o Observed, unreadable string) (ready, draining decision.Condition) {
	want := korifiv1alpha1.StoppedReason
	if o.shouldRun() {
		want = korifiv1alpha1.RunningReason
	}
	slices.SortFunc(o.Processes, func(a, b korifiv1alpha1.CFProcess) int {
		return cmp.Or(cmp.Compare(a.Spec.ProcessType, b.Spec.ProcessType), cmp.Compare(a.Name, b.Name))
	})
	ready = decision.True(want, "every process is in the requested state")
	draining = decision.False(korifiv1alpha1.DrainedReason, "no instance is terminating")
	for i := range o.Processes {
		p := &o.Processes[i]
		if d := meta.FindStatusCondition(p.Status.Conditions, korifiv1alpha1.DrainingCondition); d != nil && d.Status == metav1.ConditionTrue && draining.Status != d.Status {
			draining = decision.True(d.Reason, p.Spec.ProcessType+": "+d.Message)
		}
		if r := processReady(p, o.App.Status.ObservedRevision, want); r.Status != metav1.ConditionTrue && ready.Status == metav1.ConditionTrue {
			ready = decision.Condition{Status: r.Status, Reason: r.Reason, Message: p.Spec.ProcessType + ": " + r.Message}
		}
	}
	switch {
	case unreadable != "":
		ready = decision.False(korifiv1alpha1.RevisionUnreadableReason, unreadable)
	case len(o.Processes) == 0:
		ready = decision.False(korifiv1alpha1.StartingReason, "the processes of the app are being created")
	}
	return ready, draining
}

// processReady returns the Ready condition of a process if it describes the app's requested state. Otherwise, it
// returns a condition with the status False. A condition of an earlier generation or revision may report the success of
// an earlier request.
func processReady(p *korifiv1alpha1.CFProcess, current int64, want string) decision.Condition {
	own := meta.FindStatusCondition(p.Status.Conditions, korifiv1alpha1.ReadyCondition)
	fresh := own != nil && p.Status.ObservedGeneration == p.Generation && p.Status.ObservedRevision == current
	if fresh && (own.Status != metav1.ConditionTrue || own.Reason == want) {
		return decision.Condition{Status: own.Status, Reason: own.Reason, Message: own.Message}
	}
	reason := korifiv1alpha1.StartingReason
	if want == korifiv1alpha1.StoppedReason {
		reason = korifiv1alpha1.StoppingReason
	}
	return decision.False(reason, "the controller of the process has not acted on the newest change to the app yet")
}
