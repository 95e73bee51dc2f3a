// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/cf/task"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

func (c Controller) observe(ctx context.Context, obj *korifiv1alpha1.CFTask) (task.Observed, error) {
	seen := task.Observed{Task: obj, Now: c.Clock.Now()}
	if !task.EndedAt(obj).IsZero() || !obj.DeletionTimestamp.IsZero() {
		return seen, nil
	}
	var err error
	if seen.Job, err = c.findJob(ctx, obj); err != nil {
		return seen, fmt.Errorf("read the Job: %w", err)
	}
	if seen.Job != nil {
		seen.Exit, err = c.describeExit(ctx, seen.Job)
		return seen, err
	}
	return seen, c.observeApp(ctx, &seen)
}

// findJob returns the Job with a task's name, or nil. A task that was cancelled or started fails permanently if its Job
// does not exist. The cache may lack a Job that the previous reconciliation has created. If the task then failed, that
// Job would continue to run. findJob therefore also reads the Job from the API server.
func (c Controller) findJob(ctx context.Context, obj *korifiv1alpha1.CFTask) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	if found, err := get(ctx, c.jobs, client.ObjectKeyFromObject(obj), job); found || err != nil {
		return job, err
	}
	if !obj.Spec.Canceled && !meta.IsStatusConditionTrue(obj.Status.Conditions, korifiv1alpha1.TaskStartedCondition) {
		return nil, nil
	}
	found, err := get(ctx, c.live, client.ObjectKeyFromObject(obj), job)
	if err != nil || !found || !metav1.IsControlledBy(job, obj) {
		return nil, err
	}
	return job, nil
}

// observeApp reads the objects that the Job depends on.
func (c Controller) observeApp(ctx context.Context, seen *task.Observed) error {
	obj, app, web := seen.Task, &korifiv1alpha1.CFApp{}, &korifiv1alpha1.CFProcess{}
	key := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: obj.Namespace, Name: name} }
	// This read bypasses the cache, which may lack a new app although it contains the app's task. A task without an app
	// fails permanently.
	found, err := get(ctx, c.live, key(obj.Spec.AppRef.Name), app)
	if err != nil || !found {
		return err
	}
	seen.App = app
	if found, err = get(ctx, c.client, key(revision.ProcessName(app.Name, korifiv1alpha1.WebProcess)), web); err != nil {
		return fmt.Errorf("read the web process: %w", err)
	}
	if found {
		seen.Web = web
	}
	droplet := obj.Status.DropletRef.Name
	if droplet == "" && app.Spec.CurrentDropletRef != nil {
		droplet = app.Spec.CurrentDropletRef.Name
	}
	var build korifiv1alpha1.CFBuild
	if _, err := get(ctx, c.client, key(droplet), &build); err != nil {
		return fmt.Errorf("read the droplet: %w", err)
	}
	if build.Status.Droplet != nil && build.Status.Droplet.Registry.Image != "" {
		seen.Droplet = build.Status.Droplet
	}
	return c.observeHighest(ctx, seen)
}

// observeHighest reads the tasks from the API server, because the cache may lack the number that was assigned last.
func (c Controller) observeHighest(ctx context.Context, seen *task.Observed) error {
	if seen.Task.Status.SequenceID != 0 {
		return nil
	}
	var all korifiv1alpha1.CFTaskList
	if err := c.live.List(ctx, &all, client.InNamespace(seen.Task.Namespace)); err != nil {
		return fmt.Errorf("list the tasks of the app: %w", err)
	}
	for i := range all.Items {
		if t := &all.Items[i]; t.Spec.AppRef == seen.Task.Spec.AppRef {
			seen.Highest = max(seen.Highest, t.Status.SequenceID)
			if t.UID == seen.Task.UID && t.Status.SequenceID != 0 {
				return reconcile.ErrStale
			}
		}
	}
	return nil
}

// describeExit describes how the Pod of a failed Job has terminated.
func (c Controller) describeExit(ctx context.Context, job *batchv1.Job) (string, error) {
	if job.Status.Failed == 0 {
		return "", nil
	}
	var pods corev1.PodList
	if err := c.live.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{korifiv1alpha1.TaskGUIDLabel: job.Name}); err != nil {
		return "", fmt.Errorf("list the Pods of the Job: %w", err)
	}
	for i := range pods.Items {
		for _, container := range pods.Items[i].Status.ContainerStatuses {
			if ended := container.State.Terminated; ended != nil {
				return podstatus.DescribeExit(ended), nil
			}
		}
		if details := podstatus.InstanceStatus(&pods.Items[i]).Details; details != "" {
			return details, nil
		}
	}
	return "", nil
}

// get reads an object, and reports whether it exists.
func get(ctx context.Context, from client.Reader, key client.ObjectKey, into client.Object) (bool, error) {
	if key.Name == "" {
		return false, nil
	}
	err := from.Get(ctx, key, into)
	return err == nil, client.IgnoreNotFound(err)
}

func ignoreStale(err error) error {
	if k8serrors.IsAlreadyExists(err) {
		return reconcile.ErrStale
	}
	return fmt.Errorf("create the Job: %w", err)
}
