// SPDX-License-Identifier: Apache-2.0

// Package task decides when a CFTask runs as a Job with the droplet of its app, and what its status reports. It is
// pure; package controller observes and acts.
package task

import (
	"cmp"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/decision"
)

const (
	// retention is the time for which finished tasks are kept, as in Cloud Foundry.
	retention = 31 * 24 * time.Hour
	// waitInterval is the delay before the next reconciliation if no event will trigger one.
	waitInterval = 10 * time.Second
	// defaultMegabytes is the default memory and disk size of a task if its app has no web process.
	defaultMegabytes = 1024
)

// Observed is a task with the objects that its Job depends on.
type Observed struct {
	Task *korifiv1alpha1.CFTask
	Now  time.Time
	// App is the task's app, and Web is the app's web process. Each is nil if it does not exist, or if the Job exists.
	App *korifiv1alpha1.CFApp
	Web *korifiv1alpha1.CFProcess
	// Droplet is the task's droplet, or the app's droplet if the task has none yet. It is nil if there is neither, or
	// if the Job exists.
	Droplet *korifiv1alpha1.Droplet
	// Highest is the highest number of all tasks of the app. It is read only if the task has no number yet.
	Highest int64
	// Job is the Job with the task's name. It is nil if it does not exist.
	Job *batchv1.Job
	// Exit describes how the Pod of a failed Job has terminated.
	Exit string
}

// Action is a change that the controller makes for a task. Each reconciliation makes at most one.
type Action int

// These are the actions on a task.
const (
	DoNothing Action = iota
	CreateJob
	DeleteJob
	DeleteTask
)

// Plan is the next action, and the progress of the task.
type Plan struct {
	Do Action
	// Initial is the status that a task gets before its Job is created. It is nil if the task already has it.
	Initial *korifiv1alpha1.CFTaskStatus
	// Conditions contains the conditions that change. Other conditions are kept.
	Conditions map[string]decision.Condition
	After      time.Duration
	Why        string
}

// EndedAt returns the time at which a task ended. It returns the zero time if the task has not ended. As in Korifi, the
// start and the end of a task are recorded only in conditions. Decisions read these conditions, so a task is not run
// twice and is deleted after its retention.
func EndedAt(t *korifiv1alpha1.CFTask) time.Time {
	for _, kind := range []string{korifiv1alpha1.TaskSucceededCondition, korifiv1alpha1.TaskFailedCondition} {
		if c := meta.FindStatusCondition(t.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// Decide is total: every Observed has exactly one Plan.
func Decide(o Observed) Plan {
	switch ended := EndedAt(o.Task); {
	case !o.Task.DeletionTimestamp.IsZero():
		return Plan{Why: "being deleted"}
	case !ended.IsZero() && o.Now.Sub(ended) >= retention:
		return Plan{Do: DeleteTask, Why: "retention of the task has ended"}
	case !ended.IsZero():
		return Plan{After: retention - o.Now.Sub(ended), Why: "task has ended"}
	case o.Job != nil && !metav1.IsControlledBy(o.Job, o.Task):
		return o.fail(korifiv1alpha1.NameTakenReason,
			"expected the Job with the name of the task to belong to the task, found another owner; run the task again")
	case o.Job != nil && isJobTrue(o.Job, batchv1.JobComplete):
		return Plan{Why: "succeeded", Conditions: map[string]decision.Condition{
			korifiv1alpha1.TaskStartedCondition:   decision.True(korifiv1alpha1.TaskProceedsReason, "the task was started"),
			korifiv1alpha1.TaskSucceededCondition: decision.True(korifiv1alpha1.TaskEndedReason, "the command ended with status 0"),
		}}
	case o.Task.Spec.Canceled:
		return o.cancel()
	case o.Job != nil && isJobTrue(o.Job, batchv1.JobFailed):
		return o.fail(korifiv1alpha1.TaskEndedReason, cmp.Or(o.Exit, "the Job of the task has failed"))
	case o.Job != nil:
		return o.proceed()
	case meta.IsStatusConditionTrue(o.Task.Status.Conditions, korifiv1alpha1.TaskStartedCondition):
		return o.fail(korifiv1alpha1.TaskJobLostReason, "expected the task's Job, found it deleted; run the task again")
	case o.App == nil:
		return o.fail(korifiv1alpha1.DeletedReason, "expected the app of the task, found none")
	default:
		return o.start()
	}
}

// start creates the Job only after the task's number and droplet were saved in its status. So a task is never run twice
// with different droplets.
func (o Observed) start() Plan {
	if o.Droplet == nil {
		return Plan{Why: "no droplet", After: waitInterval, Conditions: map[string]decision.Condition{
			korifiv1alpha1.TaskInitializedCondition: decision.False(korifiv1alpha1.TaskDropletMissingReason, "expected a droplet, found none; set spec.currentDropletRef of the app"),
		}}
	}
	if o.Task.Status.SequenceID != 0 {
		return Plan{Do: CreateJob, Why: "create the Job"}
	}
	memory, disk := int64(defaultMegabytes), int64(defaultMegabytes)
	if o.Web != nil {
		memory, disk = o.Web.Spec.MemoryMB, o.Web.Spec.DiskQuotaMB
	}
	droplet := ""
	if ref := o.App.Spec.CurrentDropletRef; ref != nil {
		droplet = ref.Name
	}
	return Plan{
		Why: "assign the sequence number", After: time.Millisecond,
		Initial: &korifiv1alpha1.CFTaskStatus{
			SequenceID: o.Highest + 1, DropletRef: corev1.LocalObjectReference{Name: droplet},
			MemoryMB:    process.LimitMegabytes(cmp.Or(o.Task.Spec.MemoryMB, memory)),
			DiskQuotaMB: process.LimitMegabytes(cmp.Or(o.Task.Spec.DiskQuotaMB, disk)),
		},
		Conditions: map[string]decision.Condition{
			korifiv1alpha1.TaskInitializedCondition: decision.True(korifiv1alpha1.TaskProceedsReason, "the task has a sequence number and a droplet"),
			korifiv1alpha1.TaskStartedCondition:     decision.False(korifiv1alpha1.TaskPendingReason, "waiting for the Pod of the task"),
		},
	}
}

func (o Observed) proceed() Plan {
	if o.Job.Status.Active == 0 {
		return Plan{Why: "wait for the Pod"}
	}
	return Plan{Why: "running", Conditions: map[string]decision.Condition{
		korifiv1alpha1.TaskStartedCondition: decision.True(korifiv1alpha1.TaskProceedsReason, "the Job of the task has a Pod"),
	}}
}

// cancel returns a plan that deletes the Job. The task is cancelled once the Job no longer exists. A task that succeeds
// before that counts as succeeded.
func (o Observed) cancel() Plan {
	if o.Job != nil {
		return Plan{Do: DeleteJob, Why: "delete the Job of a canceled task", After: waitInterval}
	}
	p := o.fail(korifiv1alpha1.TaskEndedReason, "task was cancelled")
	p.Conditions[korifiv1alpha1.TaskCanceledCondition] = decision.True(korifiv1alpha1.TaskEndedReason, "task was cancelled")
	return p
}

func (o Observed) fail(reason, message string) Plan {
	return Plan{Why: "failed", Conditions: map[string]decision.Condition{korifiv1alpha1.TaskFailedCondition: decision.True(reason, message)}}
}

func isJobTrue(job *batchv1.Job, kind batchv1.JobConditionType) bool {
	for _, c := range job.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}
