// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
)

// observation is what is there of a cluster's backups.
type observation struct {
	// policy that the cluster names; nil if it names none or there is none of that name.
	policy *mocov1beta2.BackupPolicy
	// cronJob is true if there is one of ours.
	cronJob bool
	// backups are the Jobs of the CronJob, oldest first; restore is the one that fills the cluster, if any.
	backups []batchv1.Job
	restore *batchv1.Job
	// messages are the termination messages of Jobs' Pods, by the Job's name.
	messages map[string]string
}

func (c Controller) observe(ctx context.Context, cluster *mocov1beta2.MySQLCluster) (observation, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	seen := observation{messages: map[string]string{}}
	if name := policyName(cluster); name != "" {
		var policy mocov1beta2.BackupPolicy
		err := c.client.Get(ctx, types.NamespacedName{Namespace: cluster.Namespace, Name: name}, &policy)
		if client.IgnoreNotFound(err) != nil {
			return seen, fmt.Errorf("read BackupPolicy: %w", err)
		}
		if err == nil {
			seen.policy = &policy
		}
	}
	var cron batchv1.CronJob
	switch err := c.jobReader.Get(ctx, types.NamespacedName{Namespace: cluster.Namespace, Name: backup.CronJobName(cluster.Name)}, &cron); {
	case err == nil:
		seen.cronJob = true
	case !k8serrors.IsNotFound(err):
		return seen, fmt.Errorf("read CronJob: %w", err)
	}
	return seen, c.observeJobs(ctx, cluster, &seen)
}

func (c Controller) observeJobs(ctx context.Context, cluster *mocov1beta2.MySQLCluster, seen *observation) error {
	mine := []client.ListOption{client.InNamespace(cluster.Namespace), client.MatchingLabels{mocov1beta2.InstanceLabel: cluster.Name}}
	var jobs batchv1.JobList
	if err := c.jobReader.List(ctx, &jobs, mine...); err != nil {
		return fmt.Errorf("list Jobs: %w", err)
	}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		switch {
		case job.Name == backup.RestoreJobName(cluster.Name):
			seen.restore = job
		case job.Labels[mocov1beta2.NameLabel] == backup.JobKinds()[0]:
			seen.backups = append(seen.backups, *job)
		}
	}
	slices.SortFunc(seen.backups, func(a, b batchv1.Job) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	var pods corev1.PodList
	if err := c.jobReader.List(ctx, &pods, mine...); err != nil {
		return fmt.Errorf("list Pods of Jobs: %w", err)
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for i := range pods.Items {
		if text := terminationMessage(&pods.Items[i]); text != "" {
			seen.messages[pods.Items[i].Labels[batchv1.JobNameLabel]] = text
		}
	}
	return nil
}

func terminationMessage(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == backup.ContainerName && s.State.Terminated != nil {
			return s.State.Terminated.Message
		}
	}
	return ""
}

func policyName(cluster *mocov1beta2.MySQLCluster) string {
	if cluster.Spec.BackupPolicyName == nil {
		return ""
	}
	return *cluster.Spec.BackupPolicyName
}

// findJobCondition returns the condition by which a Job ended that way.
func findJobCondition(job *batchv1.Job, how batchv1.JobConditionType) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if c.Type == how && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}
