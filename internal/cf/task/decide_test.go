// SPDX-License-Identifier: Apache-2.0

package task

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/lrp"
)

var now = time.Date(2026, 11, 21, 1, 0, 0, 0, time.UTC)

// observe returns a task that has its number, and whose app has a droplet. It applies the given changes.
func observe(changes ...func(*Observed)) Observed {
	o := Observed{
		Now: now, Task: &korifiv1alpha1.CFTask{
			ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: "task", UID: "1"}, Spec: korifiv1alpha1.CFTaskSpec{Command: "bin/migrate", MemoryMB: 64},
			Status: korifiv1alpha1.CFTaskStatus{SequenceID: 7, MemoryMB: 64, DiskQuotaMB: 128},
		},
		App:     &korifiv1alpha1.CFApp{Spec: korifiv1alpha1.CFAppSpec{EnvSecretName: "env", CurrentDropletRef: &korifiv1alpha1.Reference{Name: "droplet"}}},
		Web:     &korifiv1alpha1.CFProcess{Spec: korifiv1alpha1.CFProcessSpec{MemoryMB: 256, DiskQuotaMB: 512}},
		Droplet: &korifiv1alpha1.Droplet{Registry: korifiv1alpha1.Registry{Image: "example.com/shop:1"}},
	}
	for _, change := range changes {
		change(&o)
	}
	return o
}

func hasJob(conditions ...batchv1.JobConditionType) func(*Observed) {
	return func(o *Observed) {
		o.Job = BuildJob(*o, lrp.PodOptions{})
		for _, kind := range conditions {
			o.Job.Status.Conditions = append(o.Job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue})
		}
	}
}

func was(kind string, ago time.Duration) func(*Observed) {
	return func(o *Observed) {
		meta.SetStatusCondition(&o.Task.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-ago))})
	}
}

func TestDecide(t *testing.T) {
	unnumbered := func(o *Observed) { o.Task.Status, o.Highest = korifiv1alpha1.CFTaskStatus{}, 6 }
	canceled := func(o *Observed) { o.Task.Spec.Canceled = true }
	active := func(o *Observed) { o.Job.Status.Active = 1 }
	for name, row := range map[string]struct {
		o     Observed
		do    Action
		why   string
		holds string
	}{
		"a new task is numbered before its Job is created":           {observe(unnumbered), DoNothing, "assign the sequence number", korifiv1alpha1.TaskInitializedCondition},
		"a task with a number gets its Job":                          {observe(), CreateJob, "create the Job", ""},
		"a task without a droplet waits":                             {observe(unnumbered, func(o *Observed) { o.Droplet = nil }), DoNothing, "no droplet", ""},
		"a task without an app fails":                                {observe(func(o *Observed) { o.App = nil }), DoNothing, "failed", korifiv1alpha1.TaskFailedCondition},
		"a task waits until its Job has a Pod":                       {observe(hasJob()), DoNothing, "wait for the Pod", ""},
		"a task whose Job has a Pod has started":                     {observe(hasJob(), active), DoNothing, "running", korifiv1alpha1.TaskStartedCondition},
		"a task whose Job is complete has succeeded":                 {observe(hasJob(batchv1.JobComplete)), DoNothing, "succeeded", korifiv1alpha1.TaskSucceededCondition},
		"a task whose Job has failed is not retried":                 {observe(hasJob(batchv1.JobFailed)), DoNothing, "failed", korifiv1alpha1.TaskFailedCondition},
		"a task fails if its Job belongs to another owner":           {observe(hasJob(), func(o *Observed) { o.Job.OwnerReferences = nil }), DoNothing, "failed", korifiv1alpha1.TaskFailedCondition},
		"a task whose Job was deleted fails without a new Job":       {observe(was(korifiv1alpha1.TaskStartedCondition, 0)), DoNothing, "failed", korifiv1alpha1.TaskFailedCondition},
		"the Job of a canceled task is deleted":                      {observe(canceled, hasJob(), active), DeleteJob, "delete the Job of a canceled task", ""},
		"a canceled task without a Job has ended":                    {observe(canceled, unnumbered), DoNothing, "failed", korifiv1alpha1.TaskCanceledCondition},
		"a task that succeeds during its cancellation has succeeded": {observe(canceled, hasJob(batchv1.JobComplete)), DoNothing, "succeeded", korifiv1alpha1.TaskSucceededCondition},
		"a task that ended an hour ago is kept":                      {observe(was(korifiv1alpha1.TaskFailedCondition, time.Hour)), DoNothing, "task has ended", ""},
		"a task is deleted when its retention has elapsed":           {observe(was(korifiv1alpha1.TaskSucceededCondition, retention)), DeleteTask, "retention of the task has ended", ""},
		"a task that is being deleted is not changed":                {observe(func(o *Observed) { o.Task.DeletionTimestamp = new(metav1.NewTime(now)) }), DoNothing, "being deleted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(row.o)
			if p.Do != row.do || p.Why != row.why || row.holds != "" && p.Conditions[row.holds].Status != metav1.ConditionTrue {
				t.Errorf("expected %d %q and %s, found %+v", row.do, row.why, row.holds, p)
			}
		})
	}
	if p := Decide(observe(unnumbered)); p.Initial.SequenceID != 7 || p.Initial.DropletRef.Name != "droplet" || p.Initial.MemoryMB != 64 || p.Initial.DiskQuotaMB != 512 {
		t.Errorf("expected the next number, the app's droplet, its own memory and the web process's disk, found %+v", p.Initial)
	}
}

func TestAJobRunsOnceAndRestricted(t *testing.T) {
	job := BuildJob(observe(), lrp.PodOptions{PullPolicy: corev1.PullAlways, StopDelay: time.Second})
	pod := job.Spec.Template.Spec
	c := pod.Containers[0]
	if *job.Spec.BackoffLimit != 0 || pod.RestartPolicy != corev1.RestartPolicyNever || !*pod.SecurityContext.RunAsNonRoot || c.ImagePullPolicy != corev1.PullAlways || c.Lifecycle != nil {
		t.Errorf("found %+v", job.Spec)
	}
	if c.Image != "example.com/shop:1" || c.Command[2] != "bin/migrate" || c.Resources.Limits.Memory().String() != "64Mi" || c.EnvFrom[0].SecretRef.Name != "task" {
		t.Errorf("found %+v", c)
	}
	if labels := job.Spec.Template.Labels; labels[korifiv1alpha1.ProcessGUIDLabel] != "" || labels[korifiv1alpha1.TaskGUIDLabel] != "task" {
		t.Errorf("expected a Pod that no process counts, found %v", labels)
	}
}
