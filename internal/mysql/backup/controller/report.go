// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// report fills the status and the events from what Jobs and their Pods say.
func (c Controller) report(cluster *mocov1beta2.MySQLCluster, seen observation, out *reconcile.Outcome) {
	c.reportBackup(cluster, seen, out)
	c.reportRestore(cluster, seen, out)
}

// reportBackup takes over the newest result. One that is not newer than the status is known already.
func (c Controller) reportBackup(cluster *mocov1beta2.MySQLCluster, seen observation, out *reconcile.Outcome) {
	for i := range seen.backups {
		job := &seen.backups[i]
		if failed := findJobCondition(job, batchv1.JobFailed); failed != nil {
			c.reportFailure(job, failed, seen, backupFailed, out)
			continue
		}
		if findJobCondition(job, batchv1.JobComplete) == nil {
			continue
		}
		result, err := backup.ParseResult(seen.messages[job.Name])
		if err != nil { // Its Pod is not seen yet, or gone.
			continue
		}
		if old := cluster.Status.Backup.Time; old != nil && !result.Time.After(old.Time) {
			continue
		}
		cluster.Status.Backup = result
		out.Events = append(out.Events, reconcile.Event{
			Reason: backupCreated, Action: "Backup",
			Note: fmt.Sprintf("instance %d was backed up: %d bytes in %s", result.SourceIndex, result.DumpSize, result.Elapsed.Duration),
		})
	}
}

func (c Controller) reportRestore(cluster *mocov1beta2.MySQLCluster, seen observation, out *reconcile.Outcome) {
	if cluster.Spec.Restore == nil || cluster.Status.RestoredTime != nil || seen.restore == nil {
		return
	}
	if failed := findJobCondition(seen.restore, batchv1.JobFailed); failed != nil {
		c.reportFailure(seen.restore, failed, seen, restoreFailed, out)
		return
	}
	done := findJobCondition(seen.restore, batchv1.JobComplete)
	if done == nil {
		return
	}
	cluster.Status.RestoredTime = &done.LastTransitionTime
	note := "the data were restored"
	if from, err := backup.ParseResult(seen.messages[seen.restore.Name]); err == nil {
		note = fmt.Sprintf("the data of %s were restored", from.Time.UTC())
	}
	out.Events = append(out.Events, reconcile.Event{Reason: restored, Action: "Restore", Note: note})
}

// reportFailure tells of a Job that gave up, once. What failed before this manager began, another has told.
func (c Controller) reportFailure(job *batchv1.Job, failed *batchv1.JobCondition, seen observation, reason string, out *reconcile.Outcome) {
	if failed.LastTransitionTime.Time.Before(c.startedAt.Truncate(1e9)) {
		return
	}
	if _, known := c.reportedFailures.Load(job.UID); known {
		return
	}
	note := fmt.Sprintf("Job %s gave up: %s: look at the logs of its Pods", job.Name, failed.Message)
	if text := seen.messages[job.Name]; text != "" {
		note = fmt.Sprintf("Job %s gave up: %s", job.Name, text)
	}
	if reason == restoreFailed {
		note = "delete the Job to try again; " + note
	}
	c.eventOnce(out, job.UID, note, reconcile.Event{Warning: true, Reason: reason, Action: "Watch", Note: note})
}

// eventOnce adds an event that is told once. Only what was saved counts as told.
func (c Controller) eventOnce(out *reconcile.Outcome, about types.UID, what string, e reconcile.Event) {
	out.Events = append(out.Events, e)
	before := out.Saved
	out.Saved = func() {
		if before != nil {
			before()
		}
		c.reportedFailures.Store(about, what)
	}
}
