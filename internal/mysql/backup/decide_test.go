// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
)

func TestDecide(t *testing.T) {
	withPolicy := func(o *backup.Observed) {
		o.Cluster.Spec.BackupPolicyName = new("daily")
		o.Policy = &mocov1beta2.BackupPolicy{Spec: mocov1beta2.BackupPolicySpec{JobConfig: bucketConfig()}}
	}
	withRestore := func(o *backup.Observed) { o.Cluster.Spec.Restore = &mocov1beta2.Restore{JobConfig: bucketConfig()} }
	for name, row := range map[string]struct {
		change func(*backup.Observed)
		want   string
	}{
		"a cluster without backups has no Jobs":             {func(*backup.Observed) {}, ""},
		"a policy leads to a CronJob":                       {withPolicy, "apply CronJob"},
		"a CronJob goes with the name of its policy":        {func(o *backup.Observed) { o.CronJob = &batchv1.CronJob{} }, "delete CronJob"},
		"a policy that does not exist is an error":          {func(o *backup.Observed) { o.Cluster.Spec.BackupPolicyName = new("daily") }, "error of CronJob"},
		"an image that is missing is an error of both":      {func(o *backup.Observed) { withPolicy(o); withRestore(o); o.Image = "" }, "error of CronJob, error of Job"},
		"a new cluster is restored":                         {withRestore, "create Job"},
		"a restore is not repeated while its Job is there":  {func(o *backup.Observed) { withRestore(o); o.RestoreJob = &batchv1.Job{} }, ""},
		"a restore that is over is not repeated":            {func(o *backup.Observed) { withRestore(o); o.Cluster.Status.RestoredTime = &metav1.Time{} }, ""},
		"a CronJob and a Job do not depend on each other":   {func(o *backup.Observed) { withPolicy(o); withRestore(o) }, "apply CronJob, create Job"},
		"a cluster that is being deleted gets no more Jobs": {func(o *backup.Observed) { withPolicy(o); o.Cluster.DeletionTimestamp = &metav1.Time{Time: noon()} }, ""},
		"a stop of reconciliation keeps the CronJob": {func(o *backup.Observed) {
			o.CronJob = &batchv1.CronJob{}
			o.Cluster.Annotations = map[string]string{mocov1beta2.ReconciliationStoppedAnnotation: "true"}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			seen := backup.Observed{Cluster: testCluster(), Image: "torpor"}
			row.change(&seen)
			plan := backup.Decide(seen)
			var found []string
			for _, effect := range []struct {
				name    string
				planned bool
			}{
				{"apply CronJob", plan.CronJob.Apply != nil},
				{"delete CronJob", plan.CronJob.Delete != nil},
				{"error of CronJob", plan.CronJob.Err != nil},
				{"create Job", plan.Restore.Create != nil},
				{"error of Job", plan.Restore.Err != nil},
			} {
				if effect.planned {
					found = append(found, effect.name)
				}
			}
			if got := strings.Join(found, ", "); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
		})
	}
}

func bucketConfig() mocov1beta2.JobConfig {
	return mocov1beta2.JobConfig{BucketConfig: &mocov1beta2.BucketConfig{BucketName: "b"}}
}
