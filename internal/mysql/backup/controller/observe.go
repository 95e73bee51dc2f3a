// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
	mysqlswitches "github.com/torpor-dev/torpor/internal/mysql/switches"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// observation holds the objects that are related to a cluster's backups.
type observation struct {
	backup.Observed

	// backups are the Jobs of the CronJob, oldest first.
	backups []batchv1.Job
	// messages holds the termination messages of the Jobs' Pods, by the Job's UID.
	messages map[types.UID]string
	// shipping is the last report of the Pod that ships binary logs. It is nil if the Pod has not reported yet.
	shipping *backup.ShippingReport
}

func (c Controller) observe(ctx context.Context, cluster *mocov1beta2.MySQLCluster) (observation, error) {
	seen := observation{Observed: backup.Observed{Cluster: mysqlswitches.ApplyScheduled(cluster, c.Clock.Now()), Image: c.Image}}
	if !cluster.DeletionTimestamp.IsZero() {
		return seen, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	policy, cron := &mocov1beta2.BackupPolicy{}, &batchv1.CronJob{}
	if name := backup.PolicyName(cluster); name != "" {
		found, err := getIfExists(ctx, c.client, cluster.Namespace, name, policy)
		if err != nil {
			return seen, fmt.Errorf("read BackupPolicy: %w", err)
		}
		if found {
			seen.Policy = policy
		}
	}
	found, err := getIfExists(ctx, c.jobReader, cluster.Namespace, backup.CronJobName(cluster.Name), cron)
	if err != nil {
		return seen, fmt.Errorf("read CronJob: %w", err)
	}
	if found {
		seen.CronJob = cron
	}
	shipper := &appsv1.Deployment{}
	if found, err = getIfExists(ctx, c.jobReader, cluster.Namespace, backup.ShipperName(cluster.Name), shipper); err != nil {
		return seen, fmt.Errorf("read Deployment: %w", err)
	}
	if found {
		seen.Shipper = shipper
		seen.shipping = c.shipping.reportOf(client.ObjectKeyFromObject(cluster))
	}
	return seen, c.observeJobs(ctx, cluster, &seen)
}

func getIfExists(ctx context.Context, reader client.Reader, namespace, name string, obj client.Object) (bool, error) {
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, obj)
	return err == nil, client.IgnoreNotFound(err)
}

func (c Controller) observeJobs(ctx context.Context, cluster *mocov1beta2.MySQLCluster, seen *observation) error {
	mine := []client.ListOption{client.InNamespace(cluster.Namespace), client.MatchingLabels{mocov1beta2.InstanceLabel: cluster.Name}}
	var jobs batchv1.JobList
	if err := c.jobReader.List(ctx, &jobs, mine...); err != nil {
		return fmt.Errorf("list Jobs: %w", err)
	}
	seen.takeJobs(cluster, jobs.Items)
	var pods corev1.PodList
	if err := c.jobReader.List(ctx, &pods, mine...); err != nil {
		return fmt.Errorf("list Pods of Jobs: %w", err)
	}
	seen.takeMessages(pods.Items)
	return nil
}

// takeJobs stores the cluster's restore Job and backup Jobs. jobs are all Jobs with the cluster's name as a label.
func (o *observation) takeJobs(cluster *mocov1beta2.MySQLCluster, jobs []batchv1.Job) {
	for i := range jobs {
		job := &jobs[i]
		switch {
		case job.Name == backup.RestoreJobName(cluster.Name):
			o.RestoreJob = job
		case job.Labels[mocov1beta2.NameLabel] == backup.BackupKind && isBackupOf(cluster, o.CronJob, job):
			o.backups = append(o.backups, *job)
		}
	}
	slices.SortFunc(o.backups, func(a, b batchv1.Job) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
}

// isBackupOf reports whether a Job backs up this cluster, as opposed to an earlier cluster with the same name. The
// CronJob may be left from that cluster, so its Jobs that are older than this cluster do not count. kubectl create job
// --from makes a CronJob the owner of a Job, but not its controller.
func isBackupOf(cluster *mocov1beta2.MySQLCluster, cron *batchv1.CronJob, job *batchv1.Job) bool {
	isOwner := func(owner metav1.OwnerReference) bool { return cron != nil && owner.UID == cron.UID }
	return slices.ContainsFunc(job.OwnerReferences, isOwner) && !job.CreationTimestamp.Before(&cluster.CreationTimestamp)
}

// takeMessages reads the termination messages of the Jobs' Pods. A retried Job has several Pods, and the message of the
// last one counts. Pods are matched by the Job's UID, because Pods of an earlier Job with the same name may still
// exist.
func (o *observation) takeMessages(pods []corev1.Pod) {
	o.messages = map[types.UID]string{}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for i := range pods {
		if job, text := metav1.GetControllerOf(&pods[i]), terminationMessage(&pods[i]); job != nil && text != "" {
			o.messages[job.UID] = text
		}
	}
}

func terminationMessage(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == backup.ContainerName && s.State.Terminated != nil {
			return s.State.Terminated.Message
		}
	}
	return ""
}

// findJobCondition returns the condition of the given type if its status is True, or nil otherwise.
func findJobCondition(job *batchv1.Job, kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}
