// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
	testenv "github.com/torpor-dev/torpor/test/env"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

const (
	manifest = `{"apiVersion": "moco.cybozu.com/v1beta2", "kind": "MySQLCluster", "metadata": {"name": %q}, "spec": {
	"podTemplate": {"spec": {"containers": [{"name": "mysqld", "image": "mysql"}]}},
	"volumeClaimTemplates": [{"metadata": {"name": "mysql-data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
	"backupPolicyName": "daily"%s}}`
	policy = `{"apiVersion": "moco.cybozu.com/v1beta2", "kind": "BackupPolicy", "metadata": {"name": "daily"},
	"spec": {"schedule": "0 3 * * *", "timeZone": "Europe/Berlin", "backoffLimit": 2, "jobConfig": {"serviceAccountName": "backups",
	"bucketConfig": {"bucketName": "b", "endpointURL": "http://minio:9000", "usePathStyle": true},
	"env": [{"name": "AWS_ACCESS_KEY_ID", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "id"}}}]}}}`
	restoreField = `, "restore": {"sourceName": "old", "sourceNamespace": "other", "restorePoint": "2026-11-20T12:00:00Z",
	"jobConfig": {"workVolume": {"persistentVolumeClaim": {"claimName": "backups"}}}}`
)

// testEnv is a namespace with a manager. The tests act as the controllers for CronJobs and Jobs, and as the kubelet.
type testEnv struct {
	*testenv.Environment
	namespace string
	metrics   *Metrics
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	e := &testEnv{Environment: testenv.Start(t), metrics: NewMetrics()}
	e.namespace = e.CreateNamespace(t)
	testenv.StartManager(t, e.Environment, Controller{Image: "torpor:test", Clock: clock.RealClock{}, Metrics: e.metrics}.SetupWithManager)
	return e
}

func (e *testEnv) createObject(t *testing.T, manifest string, obj client.Object) {
	t.Helper()
	testenv.DecodeObject(t, manifest, obj).SetNamespace(e.namespace)
	e.ExpectCreated(t, obj)
}

func (e *testEnv) get(t *testing.T, name string, obj client.Object) error {
	t.Helper()
	return e.Client.Get(t.Context(), types.NamespacedName{Namespace: e.namespace, Name: name}, obj)
}

func (e *testEnv) waitForObject(t *testing.T, name string, obj client.Object) {
	t.Helper()
	obj.SetNamespace(e.namespace)
	obj.SetName(name)
	e.WaitFor(t, name+" is there", obj, nil)
}

// runJob creates a Job from a template, with a Pod that terminates with a message, as the Kubernetes controllers would.
func (e *testEnv) runJob(t *testing.T, name string, cron *batchv1.CronJob, message string, how batchv1.JobConditionType) {
	t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}}
	if cron != nil {
		job.Labels, job.Spec = cron.Spec.JobTemplate.Labels, cron.Spec.JobTemplate.Spec
		job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob"))}
		e.ExpectCreated(t, job)
	} else {
		e.waitForObject(t, name, job)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "default"}}
	if err := e.Client.Create(t.Context(), account); err != nil && !k8serrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name + "-pod", Labels: job.Spec.Template.Labels}, Spec: job.Spec.Template.Spec}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	pod.Spec.ServiceAccountName = "default"
	e.ExpectCreated(t, pod)
	pod.Status.Phase = corev1.PodSucceeded
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: backup.ContainerName, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}}}}
	now := metav1.NewTime(time.Now())
	job.Status.StartTime = &now
	before := map[batchv1.JobConditionType]batchv1.JobConditionType{batchv1.JobComplete: batchv1.JobSuccessCriteriaMet, batchv1.JobFailed: batchv1.JobFailureTarget}[how]
	for _, kind := range []batchv1.JobConditionType{before, how} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now, Message: "it ended", Reason: "Ended"})
	}
	if how == batchv1.JobComplete {
		job.Status.CompletionTime, job.Status.Succeeded = &now, 1
	}
	testenv.ExpectNoError(t, errors.Join(e.Client.Status().Update(t.Context(), pod), e.Client.Status().Update(t.Context(), job)))
}

func TestBackups(t *testing.T) {
	e := newTestEnv(t)
	cluster := &mocov1beta2.MySQLCluster{}
	e.createObject(t, fmt.Sprintf(manifest, "test", ""), cluster)
	e.WaitForEvent(t, e.namespace, backupImpossible, "expected a BackupPolicy daily")
	// Clusters without a backup are stored with a field that is present but empty.
	stored := `{"status": {"backup": {"time": null}, "conditions": [{"type": "Healthy", "status": "True", "reason": "Healthy", "message": "", "lastTransitionTime": "2026-11-20T12:00:00Z"}]}}`
	testenv.ExpectNoError(t, e.Client.Status().Patch(t.Context(), cluster, client.RawPatch(types.MergePatchType, []byte(stored))))
	e.createObject(t, policy, &mocov1beta2.BackupPolicy{})
	cron := &batchv1.CronJob{}
	e.waitForObject(t, "moco-backup-test", cron)
	if *cron.Spec.TimeZone != "Europe/Berlin" || *cron.Spec.JobTemplate.Spec.BackoffLimit != 2 || cron.OwnerReferences[0].UID != cluster.UID {
		t.Errorf("expected the policy's settings and the cluster as owner, found %+v", cron.Spec)
	}

	at := metav1.NewTime(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	want := mocov1beta2.BackupStatus{
		Time: &at, Elapsed: metav1.Duration{Duration: 3 * time.Second}, SourceUUID: "u", GTIDSet: "u:1-9", DumpSize: 7, Warnings: []string{"the primary was dumped"},
	}
	message, err := backup.FormatResult(want)
	testenv.ExpectNoError(t, err)
	e.runJob(t, "one", cron, message, batchv1.JobComplete)
	e.WaitForEvent(t, e.namespace, backupCreated, "7 bytes in 3s; the primary was dumped")
	testenv.ExpectNoError(t, e.get(t, "test", cluster))
	cluster.Status.Backup.Time.Time = cluster.Status.Backup.Time.UTC()
	testenv.ExpectEqual(t, "status", want, cluster.Status.Backup)
	if found := e.gatherMetrics(t); found["moco_backup_timestamp"] != float64(at.Unix()) || found["moco_backup_warnings"] != 1 || found["moco_backup_dump_bytes"] != 7 {
		t.Errorf("expected the backup in the metrics, found %v", found)
	}

	e.runJob(t, "two", cron, "instance 0 does not answer", batchv1.JobFailed)
	e.WaitForEvent(t, e.namespace, backupFailed, "Job two failed: instance 0 does not answer")
	if err := e.get(t, "test", cluster); err != nil || !cluster.Status.Backup.Time.Equal(&at) {
		t.Errorf("expected the last good backup to stay, found %v, %v", cluster.Status.Backup.Time, err)
	}

	e.changeCluster(t, func(c *mocov1beta2.MySQLCluster) {
		c.Annotations, c.Spec.BackupPolicyName = map[string]string{mocov1beta2.ReconciliationStoppedAnnotation: "true"}, nil
	})
	later := metav1.NewTime(at.Add(time.Hour))
	want.Time = &later
	if message, err = backup.FormatResult(want); err != nil {
		t.Fatal(err)
	}
	e.runJob(t, "three", cron, message, batchv1.JobComplete)
	testenv.Eventually(t, "a backup is reported while reconciliation is stopped", func() error {
		if err := e.get(t, "test", cluster); err != nil || !cluster.Status.Backup.Time.Equal(&later) {
			return fmt.Errorf("found %v: %w", cluster.Status.Backup.Time, err)
		}
		return nil
	})
	if err := e.get(t, "moco-backup-test", cron); err != nil {
		t.Errorf("expected the CronJob to stay while reconciliation is stopped, found %v", err)
	}
	e.changeCluster(t, func(c *mocov1beta2.MySQLCluster) { c.Annotations = nil })
	e.WaitForDeletion(t, cron)
}

func TestAFailedJobWaitsForTheMessageOfItsPod(t *testing.T) {
	ended := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	job := batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "one", UID: "1"}, Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{
		{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(ended), Message: "too often"},
	}}}
	for _, tt := range []struct {
		name    string
		age     time.Duration
		message string
		note    string
		wait    time.Duration
	}{
		{"a Pod that is not in the cache yet delays the report", 3 * time.Second, "", "", 7 * time.Second},
		{"the termination message of the Pod is reported", 3 * time.Second, "no space", "Job one failed: no space", 0},
		{"a missing Pod delays the report by at most messageWait", messageWait, "", "Job one failed: too often; see the logs of its Pods", 0},
		{"a Job with an end time in the future does not delay the report", -time.Hour, "", "Job one failed: too often; see the logs of its Pods", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := Controller{Clock: clocktesting.NewFakePassiveClock(ended.Add(tt.age)), startedAt: ended.Add(-time.Hour), reportedFailures: &sync.Map{}}
			seen := observation{backups: []batchv1.Job{job}, messages: map[types.UID]string{"1": tt.message}}
			follow := c.report(&mocov1beta2.MySQLCluster{}, seen, backup.Plan{}, nil)
			note := ""
			for _, event := range follow.Events {
				note += event.Note
			}
			if note != tt.note || follow.RequeueAfter != tt.wait {
				t.Errorf("expected %q and a wait of %v, found %q and %v", tt.note, tt.wait, note, follow.RequeueAfter)
			}
		})
	}
}

// TestJobsOfAnEarlierCluster deletes and recreates a cluster while the Jobs of the deleted cluster still exist.
func TestJobsOfAnEarlierCluster(t *testing.T) {
	made := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	at := metav1.NewTime(made.Add(-time.Hour))
	message, err := backup.FormatResult(mocov1beta2.BackupStatus{Time: &at, DumpSize: 7})
	testenv.ExpectNoError(t, err)
	completeJob := func(name string, uid types.UID, kind string, created time.Time, owner metav1.OwnerReference) batchv1.Job {
		return batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: uid, CreationTimestamp: metav1.NewTime(created), OwnerReferences: []metav1.OwnerReference{owner},
				Labels: backup.JobLabels("test", kind),
			},
			Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: at}}},
		}
	}
	clusterRef := func(uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{Kind: "MySQLCluster", Name: "test", UID: uid, Controller: new(true)}
	}
	cronJob := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{UID: "cron"}}
	cronRef := func(uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{Kind: "CronJob", Name: "moco-backup-test", UID: uid}
	}
	podOf := func(job types.UID) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "Job", UID: job, Controller: new(true)}}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
				Name: backup.ContainerName, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: message}},
			}}},
		}
	}
	before, after := made.Add(-time.Hour), made.Add(time.Minute)
	for name, tt := range map[string]struct {
		job                batchv1.Job
		pod                types.UID
		restored, backedUp bool
		note               string
	}{
		"a restore Job of this cluster is reported":                             {completeJob("moco-restore-test", "1", backup.RestoreKind, after, clusterRef("new")), "1", true, false, "the data were restored as of 2026-11-20 11:00:00 +0000 UTC"},
		"a restore Job of a deleted cluster with the same name is not reported": {completeJob("moco-restore-test", "1", backup.RestoreKind, before, clusterRef("old")), "1", false, false, ""},
		"a restore does not report the result of an earlier restore":            {completeJob("moco-restore-test", "1", backup.RestoreKind, after, clusterRef("new")), "2", true, false, "the data were restored"},
		"a backup Job of this cluster is reported":                              {completeJob("one", "1", backup.BackupKind, after, cronRef("cron")), "1", false, true, "instance 0 was backed up: 7 bytes in 0s"},
		"a backup Job of a deleted CronJob is not reported":                     {completeJob("one", "1", backup.BackupKind, after, cronRef("old")), "1", false, false, ""},
		"a backup older than the cluster is not reported":                       {completeJob("one", "1", backup.BackupKind, before, cronRef("cron")), "1", false, false, ""},
		"a backup does not report the result of an earlier backup":              {completeJob("one", "1", backup.BackupKind, after, cronRef("cron")), "2", false, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Name: "test", UID: "new", CreationTimestamp: metav1.NewTime(made)}}
			cluster.Spec.Restore = &mocov1beta2.Restore{RestorePoint: at}
			seen := observation{Observed: backup.Observed{Cluster: cluster, CronJob: cronJob}}
			seen.takeJobs(cluster, []batchv1.Job{tt.job})
			seen.takeMessages([]corev1.Pod{podOf(tt.pod)})
			c := Controller{Clock: clocktesting.NewFakePassiveClock(made.Add(time.Hour)), startedAt: made, reportedFailures: &sync.Map{}}
			note := ""
			for _, event := range c.report(cluster, seen, backup.Plan{}, nil).Events {
				note += event.Note
			}
			if isRestored, isBackedUp := cluster.Status.RestoredTime != nil, cluster.Status.Backup.Time != nil; isRestored != tt.restored || isBackedUp != tt.backedUp || note != tt.note {
				t.Errorf("expected restored %v, backed up %v, %q, found %v, %v, %q", tt.restored, tt.backedUp, tt.note, isRestored, isBackedUp, note)
			}
		})
	}
}

// TestRestoreThatIsRefused covers a Job that failed because of its failure policy, and a Job that was retried too
// often.
func TestRestoreThatIsRefused(t *testing.T) {
	ended := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for reason, note := range map[string]string{
		batchv1.JobReasonPodFailurePolicy:     "Job moco-restore-test failed: restore all schemas",
		batchv1.JobReasonBackoffLimitExceeded: "delete the Job to try again; Job moco-restore-test failed: restore all schemas",
	} {
		cluster := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Name: "test", UID: "cluster"}}
		cluster.Spec.Restore = &mocov1beta2.Restore{}
		owner := *metav1.NewControllerRef(cluster, mocov1beta2.MySQLClusterKind())
		seen := observation{messages: map[types.UID]string{"1": "restore all schemas"}}
		seen.RestoreJob = &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Name: "moco-restore-test", UID: "1", Labels: backup.JobLabels("test", backup.RestoreKind), OwnerReferences: []metav1.OwnerReference{owner},
			},
			Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{
				{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(ended), Reason: reason},
			}},
		}
		c := Controller{Clock: clocktesting.NewFakePassiveClock(ended), startedAt: ended, reportedFailures: &sync.Map{}}
		events := c.report(cluster, seen, backup.Plan{}, nil).Events
		if len(events) != 1 || events[0].Reason != restoreFailed || events[0].Note != note {
			t.Errorf("%s: expected %s with %q, found %v", reason, restoreFailed, note, events)
		}
	}
}

func TestRestores(t *testing.T) {
	e := newTestEnv(t)
	e.createObject(t, policy, &mocov1beta2.BackupPolicy{})
	cluster := &mocov1beta2.MySQLCluster{}
	e.createObject(t, fmt.Sprintf(manifest, "test", restoreField), cluster)
	e.runJob(t, "moco-restore-test", nil, "expected moco-test-0 to be empty", batchv1.JobFailed)
	e.WaitForEvent(t, e.namespace, restoreFailed, "delete the Job to try again; Job moco-restore-test failed: expected moco-test-0 to be empty")
	job := &batchv1.Job{}
	e.waitForObject(t, "moco-restore-test", job)
	old, pod := job.UID, &corev1.Pod{}
	e.waitForObject(t, "moco-restore-test-pod", pod)
	testenv.ExpectNoError(t, errors.Join(e.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)), e.Client.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground))))
	testenv.Eventually(t, "the Job is made again", func() error {
		if err := e.get(t, "moco-restore-test", job); err != nil || job.UID == old {
			return fmt.Errorf("not yet: %w", err)
		}
		return nil
	})
	at := metav1.NewTime(time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC))
	message, err := backup.FormatRestoreResult(backup.RestoreResult{
		BackupStatus: mocov1beta2.BackupStatus{Time: &at, Warnings: []string{"view app.v is not restored: MySQL's error 1049", "a right is missing"}}, LeftOut: 1,
	})
	testenv.ExpectNoError(t, err)
	e.runJob(t, "moco-restore-test", nil, message, batchv1.JobComplete)
	e.WaitForEvent(t, e.namespace, restored, "the data were restored as of 2026-11-20 11:00:00 +0000 UTC")
	e.WaitForEvent(t, e.namespace, restored, "; a right is missing")
	if err := e.get(t, "test", cluster); err != nil || cluster.Status.RestoredTime == nil {
		t.Errorf("expected the time of the restore, found %v, %v", cluster.Status.RestoredTime, err)
	}
	expectRestoreComplete(t, cluster, metav1.ConditionFalse, partsLeftOut,
		"view app.v is not restored: MySQL's error 1049; create these parts by hand, or restore into another MySQLCluster whose settings allow them")
	e.changeCluster(t, func(c *mocov1beta2.MySQLCluster) { c.Spec.BackupPolicyName = nil })
	testenv.Eventually(t, "the condition is of the present generation", func() error {
		err := e.get(t, "test", cluster)
		found := meta.FindStatusCondition(cluster.Status.Conditions, mocov1beta2.RestoreCompleteCondition)
		return errors.Join(err, testenv.ErrorIf(found == nil || found.ObservedGeneration != cluster.Generation || found.Reason != partsLeftOut, "found %+v", found))
	})
	if cluster.Status.Backup.Time != nil {
		t.Errorf("expected no backup of this cluster, found one of %s", cluster.Status.Backup.Time)
	}
}

func expectRestoreComplete(t *testing.T, cluster *mocov1beta2.MySQLCluster, status metav1.ConditionStatus, reason, message string) {
	t.Helper()
	found := meta.FindStatusCondition(cluster.Status.Conditions, mocov1beta2.RestoreCompleteCondition)
	if found == nil || found.Status != status || found.Reason != reason || found.Message != message || found.ObservedGeneration != cluster.Generation {
		t.Errorf("expected %s, %s, %q, found %+v", status, reason, message, found)
	}
}

// TestWholeRestore covers a restore that omitted nothing, with a warning about another matter.
func TestWholeRestore(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	cluster := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Name: "test", UID: "cluster", Generation: 3}}
	cluster.Spec.Restore = &mocov1beta2.Restore{RestorePoint: at}
	message, err := backup.FormatRestoreResult(backup.RestoreResult{BackupStatus: mocov1beta2.BackupStatus{Time: &at, Warnings: []string{"an event is disabled"}}})
	testenv.ExpectNoError(t, err)
	seen := observation{messages: map[types.UID]string{"1": message}}
	seen.RestoreJob = &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: "moco-restore-test", UID: "1", Labels: backup.JobLabels("test", backup.RestoreKind), CreationTimestamp: at,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cluster, mocov1beta2.MySQLClusterKind())},
		},
		Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: at}}},
	}
	c := Controller{Clock: clocktesting.NewFakePassiveClock(at.Time), startedAt: at.Time, reportedFailures: &sync.Map{}}
	c.report(cluster, seen, backup.Plan{}, nil)
	expectRestoreComplete(t, cluster, metav1.ConditionTrue, restoreComplete, "everything that spec.restore selects was restored")
}

func TestShipping(t *testing.T) {
	e := newTestEnv(t)
	made := &mocov1beta2.BackupPolicy{}
	e.createObject(t, policy, made) // The policy has a bucket but, as a policy of MOCO, no field for binary logs.
	e.createObject(t, fmt.Sprintf(manifest, "test", ""), &mocov1beta2.MySQLCluster{})
	shipper := &appsv1.Deployment{}
	e.waitForObject(t, "moco-binlog-test", shipper)
	if args := strings.Join(shipper.Spec.Template.Spec.Containers[0].Args, " "); !strings.Contains(args, "ship-binlogs --cluster="+e.namespace+"/test --interval=5s") {
		t.Errorf("expected binary logs to be shipped every 5 s, found %s", args)
	}
	testenv.ExpectPatched(t, e.Environment, made, func(p *mocov1beta2.BackupPolicy) {
		p.Spec.PointInTimeRecovery = &mocov1beta2.PointInTimeRecovery{Disabled: true}
	})
	e.WaitForDeletion(t, shipper)
}

func TestReportShipping(t *testing.T) {
	at := func(minutes int) *metav1.Time {
		return new(metav1.NewTime(time.Date(2026, 11, 20, 12, minutes, 0, 0, time.UTC)))
	}
	shipped := func(since, until int) *backup.ShippingReport {
		return &backup.ShippingReport{Since: at(since).Time, Until: at(until).Time}
	}
	for _, tt := range []struct {
		name   string
		backup *metav1.Time
		old    *metav1.Time
		report *backup.ShippingReport
		want   *metav1.Time
		event  string
	}{
		{"no restorable point before the first backup", nil, nil, shipped(5, 9), nil, ""},
		{"a backup after the start of shipping is the first restorable point", at(6), nil, shipped(5, 9), at(6), ""},
		{"a backup before the start of shipping is not a restorable point", at(4), nil, shipped(5, 9), nil, ""},
		{"later backups do not change the first restorable point", at(8), at(6), shipped(5, 9), at(6), ""},
		{"a gap is reported", at(6), at(6), shipped(7, 9), nil, "binary logs before 2026-11-20T12:07:00Z are missing from the bucket: no restore point after 2026-11-20T12:06:30Z is available until the next backup"},
		{"the next backup ends the gap", at(8), nil, shipped(7, 9), at(8), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster, events := &mocov1beta2.MySQLCluster{}, newEvents{}
			cluster.Status.Backup.Time = tt.backup
			if tt.old != nil {
				cluster.Status.BinlogShipping = &mocov1beta2.BinlogShippingStatus{RestorableSince: tt.old, ShippedUntil: new(metav1.NewTime(at(6).Add(30 * time.Second)))}
			}
			reportShipping(cluster, observation{Observed: backup.Observed{Shipper: &appsv1.Deployment{}}, shipping: tt.report}, &events)
			note := ""
			for _, event := range events.list {
				note += event.Note
			}
			if found := cluster.Status.BinlogShipping; !found.RestorableSince.Equal(tt.want) || !found.ShippedUntil.Equal(at(9)) || note != tt.event {
				t.Errorf("expected every point since %v and the event %q, found %+v and %q", tt.want, tt.event, found, note)
			}
		})
	}
}

func TestGapIsReportedWithoutShippedLogs(t *testing.T) {
	first := metav1.NewTime(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	cluster := &mocov1beta2.MySQLCluster{}
	cluster.Status.Backup.Time = &first
	seen := observation{Observed: backup.Observed{Shipper: &appsv1.Deployment{}}}
	for _, since := range []time.Time{first.Time, first.Add(time.Minute)} {
		events := newEvents{}
		seen.shipping = &backup.ShippingReport{Since: since}
		reportShipping(cluster, seen, &events)
		if status := cluster.Status.BinlogShipping; status.ShippedUntil != nil {
			t.Errorf("expected nothing to be shipped, found %+v", status)
		}
		if since.Equal(first.Time) {
			continue
		}
		want := "binary logs before 2026-11-20T12:01:00Z are missing from the bucket: no restore point after 2026-11-20T12:00:00Z is available until the next backup"
		if len(events.list) != 1 || events.list[0].Note != want {
			t.Errorf("expected the gap to be reported, found %+v", events.list)
		}
	}
}

// TestReportShippingKeepsPoints covers Pods that report no progress yet.
func TestReportShippingKeepsPoints(t *testing.T) {
	since, until := metav1.NewTime(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)), metav1.NewTime(time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC))
	points := mocov1beta2.BinlogShippingStatus{RestorableSince: &since, ShippedUntil: &until, SourceIndex: 2}
	withProblem := func(problem string) *mocov1beta2.BinlogShippingStatus {
		status := points.DeepCopy()
		status.Problem = problem
		return status
	}
	awake, asleep := &appsv1.Deployment{}, &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(0))}}
	for name, tt := range map[string]struct {
		shipper   *appsv1.Deployment
		report    *backup.ShippingReport
		old, want *mocov1beta2.BinlogShippingStatus
	}{
		"a Pod that has just started clears the previous problem":  {awake, &backup.ShippingReport{}, withProblem("it does not run"), withProblem("")},
		"a Pod that cannot start shipping reports a problem":       {awake, &backup.ShippingReport{Problem: "no bucket"}, withProblem(""), withProblem("no bucket")},
		"a Pod that never existed is reported as a problem":        {awake, &backup.ShippingReport{Problem: "no Pod"}, nil, &mocov1beta2.BinlogShippingStatus{Problem: "no Pod"}},
		"a Pod that was never polled keeps the previous problem":   {awake, nil, withProblem("it does not run"), withProblem("it does not run")},
		"an offline cluster has no problem":                        {asleep, &backup.ShippingReport{Problem: "it does not answer"}, withProblem("it does not run"), withProblem("")},
		"a cluster that was always offline has no shipping status": {asleep, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, events := &mocov1beta2.MySQLCluster{}, newEvents{}
			cluster.Status.BinlogShipping = tt.old
			reportShipping(cluster, observation{Observed: backup.Observed{Shipper: tt.shipper}, shipping: tt.report}, &events)
			testenv.ExpectEqual(t, "status", tt.want, cluster.Status.BinlogShipping)
			if len(events.list) > 0 {
				t.Errorf("expected no event, found %+v", events.list)
			}
		})
	}
}

// shippingObjects are the objects in the cache.
type shippingObjects struct {
	client.Reader
	shippers []appsv1.Deployment
	pods     []corev1.Pod
}

func (o *shippingObjects) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *appsv1.DeploymentList:
		list.Items = o.shippers
	case *corev1.PodList:
		list.Items = o.pods
	}
	return nil
}

// TestAShipperThatDoesNotRun polls, once per minute, a Pod that is replaced and a Pod that never starts.
func TestAShipperThatDoesNotRun(t *testing.T) {
	const notRunning = "no Pod of Deployment moco-binlog-test is running, so no binary logs are copied; check its Pods and events"
	labels := backup.JobLabels("test", backup.ShipperKind)
	shipper := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "moco-binlog-test", Labels: labels}}
	asleep := *shipper.DeepCopy()
	asleep.Spec.Replicas = new(int32(0))
	pending := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: labels}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	running := *pending.DeepCopy()
	running.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.99.88.77"}
	const silent = "the Pod that copies binary logs does not answer"
	name := types.NamespacedName{Namespace: "ns", Name: "test"}
	for _, tt := range []struct {
		name    string
		shipper appsv1.Deployment
		pods    [][]corev1.Pod
		want    []string
	}{
		{"no Pod: reported as not running", shipper, [][]corev1.Pod{nil, nil, nil, nil}, []string{"", "", notRunning, notRunning}},
		{"an unscheduled Pod: reported as not running", shipper, [][]corev1.Pod{{pending}, {pending}, {pending}}, []string{"", "", notRunning}},
		{"a Pod that is being replaced: reported as not responding", shipper, [][]corev1.Pod{nil, {pending}, {running}, nil, nil}, []string{"", "", silent, silent, silent}},
		{"the Pod of an offline cluster: no problem", asleep, [][]corev1.Pod{nil, nil, nil}, []string{"", "", ""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
			objects := &shippingObjects{shippers: []appsv1.Deployment{tt.shipper}}
			p := newShippingPoller(objects, now)
			p.changed = make(chan event.GenericEvent, 1)
			for round, pods := range tt.pods {
				objects.pods = pods
				p.askAll(t.Context())
				problem := ""
				if report := p.reportOf(name); report != nil {
					problem = report.Problem
				}
				if problem != tt.want[round] {
					t.Errorf("round %d: expected %q, found %q", round, tt.want[round], problem)
				}
				select {
				case <-p.changed:
				default:
				}
				now.SetTime(now.Now().Add(shippingPace))
			}
		})
	}
}

// TestShippingPoller polls a server that responds as the Pod does, and servers that do not.
func TestShippingPoller(t *testing.T) {
	endless := func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := io.WriteString(w, strings.Repeat(" ", 1<<16)); err != nil {
				return
			}
		}
	}
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		fails  bool
	}{
		"a valid response: parsed": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"until": "2026-11-20T12:00:00Z"}`)
		}, false},
		"an endless response: an error": {endless, true},
		"a redirect to another host: an error": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, true},
		"a response that is not a report: an error": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(tt.answer)
			defer server.Close()
			p := newShippingPoller(nil, clock.RealClock{})
			report, err := p.fetchReport(t.Context(), server.Listener.Addr().String())
			if (err != nil) != tt.fails || !tt.fails && report.Until.IsZero() {
				t.Errorf("expected a failure: %v, found %+v, %v", tt.fails, report, err)
			}
		})
	}
}

func (e *testEnv) changeCluster(t *testing.T, change func(*mocov1beta2.MySQLCluster)) {
	t.Helper()
	cluster := &mocov1beta2.MySQLCluster{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: "test"}}
	testenv.ExpectPatched(t, e.Environment, cluster, change)
}

func (e *testEnv) gatherMetrics(t *testing.T) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(e.metrics)
	families, err := registry.Gather()
	testenv.ExpectNoError(t, err)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			all[f.GetName()] = m.GetGauge().GetValue()
		}
	}
	return all
}
