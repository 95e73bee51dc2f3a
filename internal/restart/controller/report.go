// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/restart"
)

// maxRestarts is how many revisions an app remembers.
const maxRestarts = 20

// reportApp writes what is known of an app into its status.
func (c Controller) reportApp(f family) reconcile.Outcome {
	app, status, before := f.app, &f.app.Status, f.app.Status.DeepCopy()
	var versions []string
	for i := range f.lrps {
		versions = append(versions, f.lrps[i].Spec.Version)
	}
	_, _, unreadable := restart.RevisionOf(app)
	known := status.ObservedRevision
	status.ObservedGeneration = app.Generation
	status.ObservedDesiredState = app.Spec.DesiredState
	status.ObservedRevision = restart.Highest(app, versions)
	status.Instances = count(f.processes)
	made := len(status.Restarts) == 0
	newest := remember(app, c.Clock.Now())
	ready, draining := summary(f, unreadable)
	status.ActualState = korifiv1alpha1.StoppedState
	if status.Instances.Ready > 0 || ready.Status == metav1.ConditionTrue && app.Spec.DesiredState == korifiv1alpha1.StartedState {
		status.ActualState = korifiv1alpha1.StartedState
	}
	for _, condition := range []metav1.Condition{ready, draining} {
		reconcile.SetCondition(&status.Conditions, condition, app.Generation, c.Clock)
	}
	out := reconcile.Outcome{Why: ready.Reason, Underway: !made && appUnderway(before, app, ready)}
	if newest != nil {
		note := fmt.Sprintf("revision %d began: %s by %s", newest.Revision, newest.Cause, cmp.Or(newest.By, "somebody unknown"))
		unseen := max(0, newest.Revision-known-1)
		if unseen > 0 {
			note += fmt.Sprintf("; %d before it were over at once", unseen)
		}
		out.Events = []reconcile.Event{{Reason: revisionBegan, Action: string(newest.Cause), Note: note}}
		out.Saved = func() { c.Metrics.restarted(newest.Cause, unseen+1) }
	}
	return out
}

// appUnderway: the app is on its way to what is wanted; a loss of what was there is told at once.
func appUnderway(before *korifiv1alpha1.CFAppStatus, app *korifiv1alpha1.CFApp, ready metav1.Condition) bool {
	switch ready.Reason {
	case korifiv1alpha1.StartingReason, korifiv1alpha1.StoppingReason, korifiv1alpha1.WaitingForDrainReason, korifiv1alpha1.DeployingReason:
	default:
		return false
	}
	same := before.ObservedGeneration == app.Generation && before.ObservedRevision == app.Status.ObservedRevision
	return !same || !meta.IsStatusConditionTrue(before.Conditions, korifiv1alpha1.ReadyCondition)
}

func count(processes []korifiv1alpha1.CFProcess) *korifiv1alpha1.InstanceCounts {
	n := &korifiv1alpha1.InstanceCounts{}
	for i := range processes {
		p := &processes[i]
		n.Desired += restart.DesiredInstances(p)
		n.Ready += p.Status.ActualInstances
		n.Draining += p.Status.DrainingInstances
	}
	return n
}

// remember puts the app's revision on top of its list; it returns the entry if it is new and no creation.
func remember(app *korifiv1alpha1.CFApp, now time.Time) *korifiv1alpha1.Restart {
	revision, _, unreadable := restart.RevisionOf(app)
	status := &app.Status
	known := len(status.Restarts) > 0 && status.Restarts[0].Revision >= revision
	if unreadable != "" || !known && len(status.Restarts) > 0 && app.Annotations[torporv1alpha1.CauseAnnotation] == "" {
		return nil
	}
	if !known {
		status.Restarts = slices.Insert(status.Restarts, 0, began(app, revision, now))
		status.Restarts = status.Restarts[:min(len(status.Restarts), maxRestarts)]
	}
	newest := &status.Restarts[0]
	if droplet := app.Annotations[torporv1alpha1.DropletAnnotation]; newest.Revision == revision && droplet != "" {
		newest.Droplet = droplet // A revision that began stopped has its droplet from the start on.
	}
	if newest.Cause == korifiv1alpha1.CausedByCreation {
		return nil
	}
	if status.LastRestart = newest.DeepCopy(); known {
		return nil
	}
	return status.LastRestart
}

// began is how the app's revision began, as admission noted it.
func began(app *korifiv1alpha1.CFApp, revision int64, now time.Time) korifiv1alpha1.Restart {
	r := korifiv1alpha1.Restart{
		Revision: revision, Cause: korifiv1alpha1.RestartCause(app.Annotations[torporv1alpha1.CauseAnnotation]),
		By: app.Annotations[torporv1alpha1.RevisedByAnnotation], At: metav1.NewTime(now),
	}
	if r.Cause == "" {
		r.Cause, r.At = korifiv1alpha1.CausedByCreation, app.CreationTimestamp
	}
	if at, err := time.Parse(time.RFC3339, app.Annotations[torporv1alpha1.RevisedAtAnnotation]); err == nil {
		r.At = metav1.NewTime(at)
	}
	return r
}

// summary is the first process that is not as it should be, or all that are, in the order of their types.
func summary(f family, unreadable string) (ready, draining metav1.Condition) {
	want := korifiv1alpha1.StoppedReason
	if f.app.Spec.DesiredState == korifiv1alpha1.StartedState {
		want = korifiv1alpha1.RunningReason
	}
	slices.SortFunc(f.processes, func(a, b korifiv1alpha1.CFProcess) int {
		return cmp.Or(cmp.Compare(a.Spec.ProcessType, b.Spec.ProcessType), cmp.Compare(a.Name, b.Name))
	})
	ready = metav1.Condition{Type: korifiv1alpha1.ReadyCondition, Status: metav1.ConditionTrue, Reason: want, Message: "every process is as it should be"}
	draining = metav1.Condition{
		Type: korifiv1alpha1.DrainingCondition, Status: metav1.ConditionFalse, Reason: korifiv1alpha1.DrainedReason,
		Message: "no instance of an older revision is left",
	}
	for i := range f.processes {
		p := &f.processes[i]
		if d := meta.FindStatusCondition(p.Status.Conditions, korifiv1alpha1.DrainingCondition); d != nil && d.Status == metav1.ConditionTrue && draining.Status != d.Status {
			draining.Status, draining.Reason, draining.Message = d.Status, d.Reason, p.Spec.ProcessType+": "+d.Message
		}
		if r := readyOf(p, f.app.Status.ObservedRevision, want); r.Status != metav1.ConditionTrue && ready.Status == metav1.ConditionTrue {
			ready.Status, ready.Reason, ready.Message = r.Status, r.Reason, p.Spec.ProcessType+": "+r.Message
		}
	}
	switch {
	case unreadable != "":
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, korifiv1alpha1.RevisionUnreadableReason, unreadable
	case len(f.processes) == 0:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, korifiv1alpha1.StartingReason, "its processes are being made"
	}
	return ready, draining
}

// readyOf is a process's own word, if that is about what the app wants now.
func readyOf(p *korifiv1alpha1.CFProcess, revision int64, want string) metav1.Condition {
	own := meta.FindStatusCondition(p.Status.Conditions, korifiv1alpha1.ReadyCondition)
	fresh := own != nil && p.Status.ObservedGeneration == p.Generation && p.Status.ObservedRevision == revision
	if fresh && (own.Status != metav1.ConditionTrue || own.Reason == want) {
		return *own
	}
	reason := korifiv1alpha1.StartingReason
	if want == korifiv1alpha1.StoppedReason {
		reason = korifiv1alpha1.StoppingReason
	}
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: "its controller has yet to act on the app"}
}
