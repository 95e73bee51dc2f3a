// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// CronJobName is that of the CronJob of a cluster.
func CronJobName(cluster string) string { return "moco-backup-" + cluster }

// RestoreJobName is that of the Job that fills a cluster.
func RestoreJobName(cluster string) string { return "moco-restore-" + cluster }

// BuildCronJob makes the CronJob that backs a cluster up. image is Torpor's own.
func BuildCronJob(cluster *mocov1beta2.MySQLCluster, policy *mocov1beta2.BackupPolicy, image string) (*batchv1.CronJob, error) {
	args := []string{"backup", "--cluster=" + cluster.Namespace + "/" + cluster.Name, "--result=" + messageFile}
	if lag := cluster.Spec.MaxDelaySeconds; lag != nil {
		args = append(args, "--max-lag="+(time.Duration(*lag)*time.Second).String())
	}
	for i := range cluster.Spec.Replicas {
		args = append(args, "--host="+cluster.InstanceHost(int(i)))
	}
	pod, err := buildPodTemplate(cluster, policy.Spec.JobConfig, image, programRun{kind: backupValue, args: args, key: backupPassword})
	if err != nil {
		return nil, fmt.Errorf("BackupPolicy %s: spec.%w", policy.Name, err)
	}
	spec, labels := policy.Spec, JobLabels(cluster.Name, backupValue)
	return &batchv1.CronJob{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "CronJob"},
		ObjectMeta: childMeta(cluster, CronJobName(cluster.Name), labels),
		Spec: batchv1.CronJobSpec{
			Schedule: string(spec.Schedule), TimeZone: spec.TimeZone, Suspend: new(cluster.Spec.Offline),
			StartingDeadlineSeconds: spec.StartingDeadlineSeconds, ConcurrencyPolicy: batchv1.ConcurrencyPolicy(spec.ConcurrencyPolicy),
			SuccessfulJobsHistoryLimit: atLeastOne(spec.SuccessfulJobsHistoryLimit), FailedJobsHistoryLimit: spec.FailedJobsHistoryLimit,
			JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: batchv1.JobSpec{
					ActiveDeadlineSeconds: spec.ActiveDeadlineSeconds, BackoffLimit: spec.BackoffLimit, Template: pod,
				},
			},
		},
	}, nil
}

// atLeastOne keeps the last successful Job, since the result is in its Pod.
func atLeastOne(limit *int32) *int32 {
	if limit == nil {
		return nil
	}
	return new(max(*limit, 1))
}

// BuildRestoreJob makes the Job that fills instance 0 of a cluster from spec.restore. image is Torpor's own.
func BuildRestoreJob(cluster *mocov1beta2.MySQLCluster, image string) (*batchv1.Job, error) {
	r := cluster.Spec.Restore
	args := []string{
		"restore", "--result=" + messageFile, "--host=" + cluster.InstanceHost(0),
		"--source=" + r.SourceNamespace + "/" + r.SourceName, "--restore-point=" + r.RestorePoint.UTC().Format(time.RFC3339),
		"--wait=" + (time.Duration(cluster.Spec.StartupWaitSeconds) * time.Second).String(),
	}
	if r.Schema != "" {
		args = append(args, "--schema="+r.Schema)
	}
	for _, u := range r.Users {
		args = append(args, "--user="+u)
	}
	pod, err := buildPodTemplate(cluster, r.JobConfig, image, programRun{kind: restoreValue, args: args, key: adminPassword})
	if err != nil {
		return nil, fmt.Errorf("spec.restore: %w", err)
	}
	return &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job"},
		ObjectMeta: childMeta(cluster, RestoreJobName(cluster.Name), JobLabels(cluster.Name, restoreValue)),
		Spec:       batchv1.JobSpec{Template: pod},
	}, nil
}

// childMeta has the cluster as the owner, so that the object is deleted with it.
func childMeta(cluster *mocov1beta2.MySQLCluster, name string, labels map[string]string) metav1.ObjectMeta {
	kind := mocov1beta2.MySQLClusterKind()
	return metav1.ObjectMeta{
		Namespace: cluster.Namespace, Name: name, Labels: labels,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: cluster.Name, UID: cluster.UID, Controller: new(true),
		}},
	}
}
