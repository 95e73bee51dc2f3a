// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/testenv"
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

// testEnv is a hub with a manager; the test plays the controllers of CronJobs and Jobs, and the kubelet.
type testEnv struct {
	hub       *testenv.Environment
	namespace string
	metrics   *Metrics
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	w := &testEnv{hub: testenv.StartAPIServer(t), metrics: NewMetrics()}
	w.hub.InstallCRDs(t)
	w.namespace = w.hub.CreateNamespace(t)
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), mocov1beta2.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	mgr, err := manager.New(w.hub.Config, manager.Options{
		Scheme: known, Logger: logr.Discard(), Metrics: server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := (Controller{Image: "torpor:test", Clock: clock.RealClock{}, Metrics: w.metrics}).SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended with: %v", err)
		}
	}))
	return w
}

func (w *testEnv) create(t *testing.T, text string, obj client.Object) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), obj); err != nil {
		t.Fatal(err)
	}
	obj.SetNamespace(w.namespace)
	if err := w.hub.Client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

func (w *testEnv) get(t *testing.T, name string, obj client.Object) error {
	t.Helper()
	return w.hub.Client.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: name}, obj)
}

func (w *testEnv) waitForObject(t *testing.T, name string, obj client.Object) {
	t.Helper()
	testenv.Eventually(t, name+" is there", func() error { return w.get(t, name, obj) })
}

// waitForEvent waits for an event with these words.
func (w *testEnv) waitForEvent(t *testing.T, reason, words string) {
	t.Helper()
	testenv.Eventually(t, "event "+reason, func() error {
		var all eventsv1.EventList
		if err := w.hub.Client.List(t.Context(), &all, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		var found []string
		for _, e := range all.Items {
			if e.Reason == reason && strings.Contains(e.Note, words) {
				return nil
			}
			found = append(found, e.Reason+": "+e.Note)
		}
		return fmt.Errorf("found %q", found)
	})
}

// runJob makes a Job of a template with its Pod, which ends with a message, as the controllers of Kubernetes would.
func (w *testEnv) runJob(t *testing.T, name string, cron *batchv1.CronJob, message string, how batchv1.JobConditionType) {
	t.Helper()
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	if cron != nil {
		job.Labels, job.Spec = cron.Spec.JobTemplate.Labels, cron.Spec.JobTemplate.Spec
		if err := w.hub.Client.Create(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	} else {
		w.waitForObject(t, name, job)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "default"}}
	if err := w.hub.Client.Create(t.Context(), account); err != nil && !k8serrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name + "-pod", Labels: job.Spec.Template.Labels}, Spec: job.Spec.Template.Spec}
	pod.Labels[batchv1.JobNameLabel] = name
	pod.Spec.ServiceAccountName = "default"
	if err := w.hub.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
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
	if err := errors.Join(w.hub.Client.Status().Update(t.Context(), pod), w.hub.Client.Status().Update(t.Context(), job)); err != nil {
		t.Fatal(err)
	}
}

func TestBackups(t *testing.T) {
	w := newTestEnv(t)
	cluster := &mocov1beta2.MySQLCluster{}
	w.create(t, fmt.Sprintf(manifest, "test", ""), cluster)
	w.waitForEvent(t, backupImpossible, "expected a BackupPolicy daily")
	w.create(t, policy, &mocov1beta2.BackupPolicy{})
	cron := &batchv1.CronJob{}
	w.waitForObject(t, "moco-backup-test", cron)
	if *cron.Spec.TimeZone != "Europe/Berlin" || *cron.Spec.JobTemplate.Spec.BackoffLimit != 2 || cron.OwnerReferences[0].UID != cluster.UID {
		t.Errorf("expected the policy's settings and the cluster as owner, found %+v", cron.Spec)
	}

	at := metav1.NewTime(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	want := mocov1beta2.BackupStatus{
		Time: &at, Elapsed: metav1.Duration{Duration: 3 * time.Second}, SourceUUID: "u", GTIDSet: "u:1-9", DumpSize: 7, Warnings: []string{"the primary was dumped"},
	}
	message, err := backup.FormatResult(want)
	if err != nil {
		t.Fatal(err)
	}
	w.runJob(t, "one", cron, message, batchv1.JobComplete)
	w.waitForEvent(t, backupCreated, "7 bytes in 3s")
	if err := w.get(t, "test", cluster); err != nil {
		t.Fatal(err)
	}
	cluster.Status.Backup.Time.Time = cluster.Status.Backup.Time.UTC()
	if diff := cmp.Diff(want, cluster.Status.Backup); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if found := w.gatherMetrics(t); found["moco_backup_timestamp"] != float64(at.Unix()) || found["moco_backup_warnings"] != 1 || found["moco_backup_dump_bytes"] != 7 {
		t.Errorf("expected the backup in the metrics, found %v", found)
	}

	w.runJob(t, "two", cron, "instance 0 does not answer", batchv1.JobFailed)
	w.waitForEvent(t, backupFailed, "Job two gave up: instance 0 does not answer")
	if err := w.get(t, "test", cluster); err != nil || !cluster.Status.Backup.Time.Equal(&at) {
		t.Errorf("expected the last good backup to stay, found %v, %v", cluster.Status.Backup.Time, err)
	}

	w.changeCluster(t, func(c *mocov1beta2.MySQLCluster) {
		c.Annotations, c.Spec.BackupPolicyName = map[string]string{mocov1beta2.ReconciliationStoppedAnnotation: "true"}, nil
	})
	later := metav1.NewTime(at.Add(time.Hour))
	want.Time = &later
	if message, err = backup.FormatResult(want); err != nil {
		t.Fatal(err)
	}
	w.runJob(t, "three", cron, message, batchv1.JobComplete)
	testenv.Eventually(t, "a backup is told while reconciliation is stopped", func() error {
		if err := w.get(t, "test", cluster); err != nil || !cluster.Status.Backup.Time.Equal(&later) {
			return fmt.Errorf("found %v: %w", cluster.Status.Backup.Time, err)
		}
		return nil
	})
	if err := w.get(t, "moco-backup-test", cron); err != nil {
		t.Errorf("expected the CronJob to stay while reconciliation is stopped, found %v", err)
	}
	w.changeCluster(t, func(c *mocov1beta2.MySQLCluster) { c.Annotations = nil })
	testenv.Eventually(t, "the CronJob is gone", func() error {
		if err := w.get(t, "moco-backup-test", cron); !k8serrors.IsNotFound(err) {
			return fmt.Errorf("it is still there: %w", err)
		}
		return nil
	})
}

func TestRestores(t *testing.T) {
	w := newTestEnv(t)
	w.create(t, policy, &mocov1beta2.BackupPolicy{})
	cluster := &mocov1beta2.MySQLCluster{}
	w.create(t, fmt.Sprintf(manifest, "test", restoreField), cluster)
	w.runJob(t, "moco-restore-test", nil, "expected moco-test-0 to be empty", batchv1.JobFailed)
	w.waitForEvent(t, restoreFailed, "delete the Job to try again; Job moco-restore-test gave up: expected moco-test-0 to be empty")
	job := &batchv1.Job{}
	w.waitForObject(t, "moco-restore-test", job)
	old, pod := job.UID, &corev1.Pod{}
	w.waitForObject(t, "moco-restore-test-pod", pod)
	if err := errors.Join(w.hub.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)), w.hub.Client.Delete(t.Context(), job, client.PropagationPolicy(metav1.DeletePropagationBackground))); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the Job is made again", func() error {
		if err := w.get(t, "moco-restore-test", job); err != nil || job.UID == old {
			return fmt.Errorf("not yet: %w", err)
		}
		return nil
	})
	at := metav1.NewTime(time.Date(2026, 11, 20, 11, 0, 0, 0, time.UTC))
	message, err := backup.FormatResult(mocov1beta2.BackupStatus{Time: &at})
	if err != nil {
		t.Fatal(err)
	}
	w.runJob(t, "moco-restore-test", nil, message, batchv1.JobComplete)
	w.waitForEvent(t, restored, "the data of 2026-11-20 11:00:00 +0000 UTC were restored")
	if err := w.get(t, "test", cluster); err != nil || cluster.Status.RestoredTime == nil {
		t.Errorf("expected the time of the restore, found %v, %v", cluster.Status.RestoredTime, err)
	}
	if cluster.Status.Backup.Time != nil {
		t.Errorf("expected no backup of this cluster, found one of %s", cluster.Status.Backup.Time)
	}
}

func (w *testEnv) changeCluster(t *testing.T, how func(*mocov1beta2.MySQLCluster)) {
	t.Helper()
	cluster := &mocov1beta2.MySQLCluster{}
	if err := w.get(t, "test", cluster); err != nil {
		t.Fatal(err)
	}
	before := cluster.DeepCopy()
	how(cluster)
	if err := w.hub.Client.Patch(t.Context(), cluster, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// gatherMetrics are the values of all series.
func (w *testEnv) gatherMetrics(t *testing.T) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.metrics)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			all[f.GetName()] = m.GetGauge().GetValue()
		}
	}
	return all
}
