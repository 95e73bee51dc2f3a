// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/internal/testenv"
)

// testBackupAndRestore makes a backup now, and a new cluster of it.
func (s *mysqlSuite) testBackupAndRestore(t *testing.T) {
	s.startWriting(t)
	s.expectNothingLost(t)
	s.writer.stopWriting()
	s.expectEqualRows(t, "test", "app.written", 3)
	store := testenv.StartS3At(t, bridgeAddress)
	words := []string{"{ACCESS}", store.AccessKey, "{SECRET}", store.SecretKey, "{BUCKET}", testenv.S3Bucket, "{ENDPOINT}", store.URL}
	s.apply(t, "backup.yaml", words...)
	s.kubectl(t, "patch", "mysqlcluster", "test", "--type=merge", "-p", `{"spec":{"backupPolicyName":"daily"}}`)
	testenv.Eventually(t, "there is a CronJob", func() error {
		_, err := s.tryRun(t, "", s.programs+"/kubectl", "create", "job", "--from=cronjob/moco-backup-test", "now")
		return err
	})
	began := time.Now()
	s.kubectl(t, "wait", "job/now", "--for=condition=Complete", "--timeout=3m")
	point := ""
	eventually(t, "the status tells of the backup", func() error {
		at := s.readCluster(t, "test").Status.Backup.Time
		if at == nil {
			return errors.New("expected a time, found none")
		}
		point = at.UTC().Format(time.RFC3339)
		return nil
	})
	s.expectColumns(t, fmt.Sprintf("test True True %d 3 True True %s", s.readCluster(t, "test").Status.Primary, point))
	s.logf(t, "a backup is made after %.1fs", time.Since(began).Seconds())
	began = time.Now()
	s.apply(t, "copy.yaml", append(words, "{POINT}", point)...)
	if s.waitUntilHealthy(t, "copy").Status.RestoredTime == nil {
		t.Error("expected the time of the restore, found none")
	}
	s.logf(t, "a new cluster of the backup is healthy after %.1fs", time.Since(began).Seconds())
	for _, table := range []string{"app.t", "app.written"} {
		s.expectEqualRows(t, "copy", table, 3)
		if got, want := s.query(t, "copy", 2, "CHECKSUM TABLE "+table), s.query(t, "test", 0, "CHECKSUM TABLE "+table); got != want {
			t.Errorf("rows of %s: expected %q, found %q", table, want, got)
		}
	}
	for i := 1; i < 3; i++ {
		if got := s.query(t, "copy", i, "SELECT STATE FROM performance_schema.clone_status"); got != "Completed" {
			t.Errorf("instance %d: expected it to be a clone of the restored one, found %q", i, got)
		}
	}
}

// testDeleteWhileStopped deletes both clusters, one of them while everything in it is stopped.
func (s *mysqlSuite) testDeleteWhileStopped(t *testing.T) {
	began := time.Now()
	s.kubectl(t, "moco", "stop", "clustering", "test", "--wait")
	s.kubectl(t, "moco", "stop", "reconciliation", "test", "--wait")
	s.kubectl(t, "delete", "mysqlcluster", "test", "copy", "--timeout=3m")
	eventually(t, "nothing is left", func() error {
		left := s.kubectl(t, "get", "pods,pvc,pv,services,secrets,configmaps,serviceaccounts,statefulsets,poddisruptionbudgets,cronjobs,jobs", "-A",
			"-o", `jsonpath={range .items[*]}{.kind}/{.metadata.name}{"\n"}{end}`)
		var ours []string
		for line := range strings.Lines(left) {
			if strings.Contains(line, "moco") || strings.HasPrefix(line, "PersistentVolume") || strings.HasPrefix(line, "Pod/") {
				ours = append(ours, strings.TrimSpace(line))
			}
		}
		if len(ours) > 0 {
			return fmt.Errorf("expected nothing, found %q", ours)
		}
		return nil
	})
	if series := s.readMetric(t, "moco_"); series != "" {
		t.Errorf("metrics: expected none of clusters that are gone, found:\n%s", series)
	}
	s.logf(t, "deleted while stopped, nothing is left after %.1fs", time.Since(began).Seconds())
}
