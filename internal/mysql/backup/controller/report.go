// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/reconcile"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// messageWait limits how long the report about a finished Job is delayed until its Pod's termination message arrives.
// Jobs and Pods are watched separately, so the Pod's update may arrive after the Job's.
const messageWait = 10 * time.Second

type newEvents struct {
	list []decision.Event
	// requeueAfter is the delay before the next reconciliation: until messageWait has passed or a stop expires. 0 means
	// that neither applies.
	requeueAfter time.Duration
	// failures holds the notes of warnings that must not be repeated, by the UID of the object they are about.
	failures map[types.UID]string
}

// report fills in the status and the events from the state of the Jobs and their Pods, even while reconciliation is
// stopped.
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
	now := c.Clock.Now()
	end := stoprecord.ScheduledEnd(cluster.Status.ScheduledStops, cluster.Annotations, now)
	if left := end.Sub(now); !end.IsZero() && (events.requeueAfter == 0 || left < events.requeueAfter) {
		events.requeueAfter = left // Backups resume when the stop expires.
	}
	return reconcile.FollowUp{Rule: plan.Rule, RequeueAfter: events.requeueAfter, Events: events.list, AfterSave: func() {
		// Events are emitted only if the status was saved, so they are recorded as emitted only here.
		for about, note := range events.failures {
			c.reportedFailures.Store(about, note)
		}
	}}
}

// reportBackup stores the newest result in the status, unless the status already has it.
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
		if err != nil { // The Pod is not in the cache yet, or is deleted.
			continue
		}
		if old := cluster.Status.Backup.Time; old != nil && !result.Time.After(old.Time) {
			continue
		}
		cluster.Status.Backup = result
		events.list = append(events.list, withWarnings(decision.Event{
			Reason: backupCreated, Action: "Backup",
			Note: fmt.Sprintf("instance %d was backed up: %d bytes in %s", result.SourceIndex, result.DumpSize, result.Elapsed.Duration),
		}, result.Warnings))
	}
}

// withWarnings adds the warnings of a result to its event.
func withWarnings(event decision.Event, warnings []string) decision.Event {
	event.Warning = event.Warning || len(warnings) > 0
	event.Note = strings.Join(append([]string{event.Note}, warnings...), "; ")
	return event
}

// reportShipping reports the range of times that can be restored. The range starts at the first backup after which no
// binary log is missing, and is limited by retentionDays.
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
		// A Pod that has just started or was never polled reports no times. The binary logs that were shipped earlier
		// are still in the bucket.
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
			Note: fmt.Sprintf("binary logs before %s are missing from the bucket: no restore point after %s is available until the next backup",
				since.UTC().Format(time.RFC3339), lastPoint(old).UTC().Format(time.RFC3339)),
		})
	}
	cluster.Status.BinlogShipping = status
}

// withProblem returns a copy of the status with the given problem. It returns nil if the status is nil.
func withProblem(status *mocov1beta2.BinlogShippingStatus, problem string) *mocov1beta2.BinlogShippingStatus {
	after := status.DeepCopy()
	if after != nil {
		after.Problem = problem
	}
	return after
}

// lastPoint returns the last time that can be restored. status.RestorableSince must be set. Until binary logs are
// shipped, this is the time of the backup.
func lastPoint(status *mocov1beta2.BinlogShippingStatus) *metav1.Time {
	if status.ShippedUntil == nil {
		return status.RestorableSince
	}
	return status.ShippedUntil
}

func (c Controller) reportRestore(cluster *mocov1beta2.MySQLCluster, seen observation, events *newEvents) {
	job := seen.RestoreJob
	c.observeRestoreComplete(cluster)
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
	if from, err := backup.ParseRestoreResult(seen.messages[job.UID]); err == nil {
		event.Note = fmt.Sprintf("the data were restored as of %s", from.Time.UTC())
		if missing := backup.MissingBeforePoint(from.Time.Time, cluster.Spec.Restore.RestorePoint.Time, job.CreationTimestamp.Time); missing > 0 {
			event.Warning = true
			event.Note += fmt.Sprintf(", which is %s before the restore point: later changes are missing", missing)
		}
		event = withWarnings(event, from.Warnings)
		c.setRestoreComplete(cluster, from.Warnings[:from.LeftOut])
	}
	events.list = append(events.list, event)
}

// Reasons of the condition RestoreComplete.
const (
	restoreComplete = "EverythingRestored"
	partsLeftOut    = "PartsLeftOut"
)

// setRestoreComplete sets the condition after a restore. The condition is kept for the lifetime of the cluster.
func (c Controller) setRestoreComplete(cluster *mocov1beta2.MySQLCluster, leftOut []string) {
	is := metav1.Condition{
		Type: mocov1beta2.RestoreCompleteCondition, Status: metav1.ConditionTrue, Reason: restoreComplete, Message: "everything that spec.restore selects was restored",
	}
	if len(leftOut) > 0 {
		is.Status, is.Reason = metav1.ConditionFalse, partsLeftOut
		is.Message = strings.Join(leftOut, "; ") + "; create these parts by hand, or restore into another MySQLCluster whose settings allow them"
	}
	reconcile.SetCondition(&cluster.Status.Conditions, is, cluster.Generation, c.Clock)
}

// observeRestoreComplete updates the condition's observed generation.
func (c Controller) observeRestoreComplete(cluster *mocov1beta2.MySQLCluster) {
	if found := meta.FindStatusCondition(cluster.Status.Conditions, mocov1beta2.RestoreCompleteCondition); found != nil {
		reconcile.SetCondition(&cluster.Status.Conditions, *found, cluster.Generation, c.Clock)
	}
}

// reportFailedJob adds one event for a Job that failed.
func (c Controller) reportFailedJob(job *batchv1.Job, failed *batchv1.JobCondition, message string, events *newEvents) {
	// Failures before the start of this manager were reported by the previous manager. Times in conditions have a
	// resolution of one second.
	if failed.LastTransitionTime.Time.Before(c.startedAt.Truncate(time.Second)) {
		return
	}
	if _, reported := c.reportedFailures.Load(job.UID); reported || c.awaitsMessage(failed, message, events) {
		return
	}
	note := fmt.Sprintf("Job %s failed: %s; see the logs of its Pods", job.Name, failed.Message)
	if message != "" {
		note = fmt.Sprintf("Job %s failed: %s", job.Name, message)
	}
	reason := backupFailed
	if job.Labels[mocov1beta2.NameLabel] == backup.RestoreKind {
		reason = restoreFailed
		if failed.Reason != batchv1.JobReasonPodFailurePolicy { // A Job that failed because of its failure policy would fail again.
			note = "delete the Job to try again; " + note
		}
	}
	events.warnOnce(job.UID, reason, "Watch", note)
}

// awaitsMessage reports whether a Job ended so recently that the message of its Pod may still arrive.
func (c Controller) awaitsMessage(end *batchv1.JobCondition, message string, events *newEvents) bool {
	age := c.Clock.Since(end.LastTransitionTime.Time)
	// An end time in the future was written by a machine with another clock. Waiting until messageWait after it would
	// take too long.
	if message != "" || age < 0 || age >= messageWait {
		return false
	}
	events.requeueAfter = max(events.requeueAfter, messageWait-age)
	return true
}

// recordFailureEvent adds one event for an error that prevents the creation of Jobs. The event is emitted again when
// the error changes or the manager restarts, because reported errors are kept only in memory.
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
