// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// messageWait is how long an ended Job waits for what its Pod says: the two are watched separately, and the Pod may be seen later.
const messageWait = 10 * time.Second

type newEvents struct {
	list []decision.Event
	// requeueAfter is when to look again for the message of a Job that has just ended; 0 if none is missing.
	requeueAfter time.Duration
	// failures are the notes of warnings that are not repeated, by what they are about.
	failures map[types.UID]string
}

// report fills the status and the events from what Jobs and their Pods say, also while reconciliation is stopped.
func (c Controller) report(cluster *mocov1beta2.MySQLCluster, seen observation, plan backup.Plan, refused *reconcile.RefusedError) reconcile.FollowUp {
	if plan.Rule == backup.DeletedRule {
		return reconcile.FollowUp{Rule: plan.Rule}
	}
	events := newEvents{failures: map[types.UID]string{}}
	c.reportBackup(cluster, seen, &events)
	reportShipping(cluster, seen, &events)
	c.reportRestore(cluster, seen, &events)
	if plan.Rule != backup.StoppedRule {
		c.recordFailureEvent(cluster.UID, refused, &events)
	}
	return reconcile.FollowUp{Rule: plan.Rule, RequeueAfter: events.requeueAfter, Events: events.list, AfterSave: func() {
		// A report that is not saved emits no events, so that only from here on they count as emitted.
		for about, note := range events.failures {
			c.reportedFailures.Store(about, note)
		}
	}}
}

// reportBackup takes over the newest result. One that is not newer than the status is known already.
func (c Controller) reportBackup(cluster *mocov1beta2.MySQLCluster, seen observation, events *newEvents) {
	for i := range seen.backups {
		job := &seen.backups[i]
		if failed := findJobCondition(job, batchv1.JobFailed); failed != nil {
			c.reportFailedJob(job, failed, seen.messages[job.UID], events)
			continue
		}
		if findJobCondition(job, batchv1.JobComplete) == nil {
			continue
		}
		result, err := backup.ParseResult(seen.messages[job.UID])
		if err != nil { // Its Pod is not seen yet, or gone.
			continue
		}
		if old := cluster.Status.Backup.Time; old != nil && !result.Time.After(old.Time) {
			continue
		}
		cluster.Status.Backup = result
		events.list = append(events.list, decision.Event{
			Reason: backupCreated, Action: "Backup",
			Note: fmt.Sprintf("instance %d was backed up: %d bytes in %s", result.SourceIndex, result.DumpSize, result.Elapsed.Duration),
		})
	}
}

// reportShipping says from when to when every point can be restored. The first is a backup after which nothing is missing.
func reportShipping(cluster *mocov1beta2.MySQLCluster, seen observation, events *newEvents) {
	old := cluster.Status.BinlogShipping
	switch {
	case seen.Shipper == nil:
		cluster.Status.BinlogShipping = nil
		return
	case isAsleep(seen.Shipper):
		cluster.Status.BinlogShipping = withProblem(old, "")
		return
	case seen.shipping == nil:
		return
	case seen.shipping.Since.IsZero() && seen.shipping.Until.IsZero():
		// A Pod that has just begun, or was never asked, knows nothing of points. What was shipped before is still there.
		cluster.Status.BinlogShipping = withProblem(cmp.Or(old, &mocov1beta2.BinlogShippingStatus{}), seen.shipping.Problem)
		return
	}
	status := &mocov1beta2.BinlogShippingStatus{SourceIndex: seen.shipping.SourceIndex, Problem: seen.shipping.Problem}
	if until := seen.shipping.Until; !until.IsZero() {
		status.ShippedUntil = new(metav1.NewTime(until.Truncate(time.Second)))
	}
	since := metav1.NewTime(seen.shipping.Since)
	isWhole := func(from *metav1.Time) bool { return from != nil && !since.IsZero() && !from.Before(&since) }
	hadPoints := old != nil && old.RestorableSince != nil
	switch last := cluster.Status.Backup.Time; {
	case hadPoints && isWhole(old.RestorableSince):
		status.RestorableSince = old.RestorableSince
	case isWhole(last):
		status.RestorableSince = last
	}
	if seen.Policy != nil && seen.Policy.Spec.RetentionDays != nil && status.RestorableSince != nil && status.ShippedUntil != nil {
		oldest := metav1.NewTime(status.ShippedUntil.AddDate(0, 0, -int(*seen.Policy.Spec.RetentionDays)))
		if status.RestorableSince.Before(&oldest) {
			status.RestorableSince = &oldest
		}
	}
	if hadPoints && status.RestorableSince == nil {
		events.list = append(events.list, decision.Event{
			Warning: true, Reason: binlogGap, Action: "Ship",
			Note: fmt.Sprintf("binary logs before %s are missing in the bucket: no point after %s can be restored until the next backup",
				since.UTC().Format(time.RFC3339), lastPoint(old).UTC().Format(time.RFC3339)),
		})
	}
	cluster.Status.BinlogShipping = status
}

// withProblem changes nothing but the problem of a status, if there is one.
func withProblem(status *mocov1beta2.BinlogShippingStatus, problem string) *mocov1beta2.BinlogShippingStatus {
	after := status.DeepCopy()
	if after != nil {
		after.Problem = problem
	}
	return after
}

// lastPoint is the last one that can be restored of a status that has points: the backup alone as long as nothing was shipped.
func lastPoint(status *mocov1beta2.BinlogShippingStatus) *metav1.Time {
	if status.ShippedUntil == nil {
		return status.RestorableSince
	}
	return status.ShippedUntil
}

func (c Controller) reportRestore(cluster *mocov1beta2.MySQLCluster, seen observation, events *newEvents) {
	job := seen.RestoreJob
	if cluster.Spec.Restore == nil || cluster.Status.RestoredTime != nil || job == nil || !metav1.IsControlledBy(job, cluster) {
		return
	}
	if failed := findJobCondition(job, batchv1.JobFailed); failed != nil {
		c.reportFailedJob(job, failed, seen.messages[job.UID], events)
		return
	}
	done := findJobCondition(job, batchv1.JobComplete)
	if done == nil || c.awaitsMessage(done, seen.messages[job.UID], events) {
		return
	}
	cluster.Status.RestoredTime = &done.LastTransitionTime
	event := decision.Event{Reason: restored, Action: "Restore", Note: "the data were restored"}
	if from, err := backup.ParseResult(seen.messages[job.UID]); err == nil {
		event.Note = fmt.Sprintf("the data of %s were restored", from.Time.UTC())
		if missing := backup.MissingBeforePoint(from.Time.Time, cluster.Spec.Restore.RestorePoint.Time, job.CreationTimestamp.Time); missing > 0 {
			event.Warning = true
			event.Note += fmt.Sprintf(", which is %s before the restore point: nothing that was written between them is there", missing)
		}
		for _, warning := range from.Warnings {
			event.Warning = true
			event.Note += "; " + warning
		}
	}
	events.list = append(events.list, event)
}

// reportFailedJob adds one event for a Job that gave up.
func (c Controller) reportFailedJob(job *batchv1.Job, failed *batchv1.JobCondition, message string, events *newEvents) {
	// What failed before this manager started was reported by the one before it. Times in conditions have whole seconds.
	if failed.LastTransitionTime.Time.Before(c.startedAt.Truncate(time.Second)) {
		return
	}
	if _, reported := c.reportedFailures.Load(job.UID); reported || c.awaitsMessage(failed, message, events) {
		return
	}
	note := fmt.Sprintf("Job %s gave up: %s: look at the logs of its Pods", job.Name, failed.Message)
	if message != "" {
		note = fmt.Sprintf("Job %s gave up: %s", job.Name, message)
	}
	reason := backupFailed
	if job.Labels[mocov1beta2.NameLabel] == backup.JobKinds()[1] {
		reason, note = restoreFailed, "delete the Job to try again; "+note
	}
	events.warnOnce(job.UID, reason, "Watch", note)
}

// awaitsMessage reports whether a Job ended so recently that the message of its Pod may still come.
func (c Controller) awaitsMessage(end *batchv1.JobCondition, message string, events *newEvents) bool {
	age := c.Clock.Since(end.LastTransitionTime.Time)
	// A Job that ended in the future was told so by another clock, and no wait for that has an end.
	if message != "" || age < 0 || age >= messageWait {
		return false
	}
	events.requeueAfter = max(events.requeueAfter, messageWait-age)
	return true
}

// recordFailureEvent adds one event for what keeps the Jobs from being made, until it changes or is over. The memory of it
// ends with the manager, and the event is repeated then.
func (c Controller) recordFailureEvent(cluster types.UID, refused *reconcile.RefusedError, events *newEvents) {
	if refused == nil {
		c.reportedFailures.Delete(cluster)
		return
	}
	if reported, ok := c.reportedFailures.Load(cluster); !ok || reported != refused.Message {
		events.warnOnce(cluster, backupImpossible, "Prepare", refused.Message)
	}
}

func (e *newEvents) warnOnce(about types.UID, reason, action, note string) {
	e.list = append(e.list, decision.Event{Warning: true, Reason: reason, Action: action, Note: note})
	e.failures[about] = note
}
