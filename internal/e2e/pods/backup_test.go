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

// backedUp makes a backup now, and a new cluster of it.
func (s *scene) backedUp(t *testing.T) {
	s.write(t)
	s.nothingLost(t)
	s.clients.end()
	s.equal(t, "test", "app.written", 3)
	store := testenv.S3At(t, address)
	words := []string{"{ACCESS}", store.AccessKey, "{SECRET}", store.SecretKey, "{BUCKET}", testenv.S3Bucket, "{ENDPOINT}", store.URL}
	s.apply(t, "backup.yaml", words...)
	s.kubectl(t, "patch", "mysqlcluster", "test", "--type=merge", "-p", `{"spec":{"backupPolicyName":"daily"}}`)
	testenv.Eventually(t, "there is a CronJob", func() error {
		_, err := s.try(t, "", s.programs+"/kubectl", "create", "job", "--from=cronjob/moco-backup-test", "now")
		return err
	})
	began := time.Now()
	s.kubectl(t, "wait", "job/now", "--for=condition=Complete", "--timeout=3m")
	point := ""
	eventually(t, "the status tells of the backup", func() error {
		at := s.see(t, "test").Status.Backup.Time
		if at == nil {
			return errors.New("expected a time, found none")
		}
		point = at.UTC().Format(time.RFC3339)
		return nil
	})
	s.columns(t, fmt.Sprintf("test True True %d 3 True True %s", s.see(t, "test").Status.Primary, point))
	s.tell(t, "a backup is made after %.1fs", time.Since(began).Seconds())
	began = time.Now()
	s.apply(t, "copy.yaml", append(words, "{POINT}", point)...)
	if s.healthy(t, "copy").Status.RestoredTime == nil {
		t.Error("expected the time of the restore, found none")
	}
	s.tell(t, "a new cluster of the backup is healthy after %.1fs", time.Since(began).Seconds())
	for _, table := range []string{"app.t", "app.written"} {
		s.equal(t, "copy", table, 3)
		if got, want := s.sql(t, "copy", 2, "CHECKSUM TABLE "+table), s.sql(t, "test", 0, "CHECKSUM TABLE "+table); got != want {
			t.Errorf("rows of %s: expected %q, found %q", table, want, got)
		}
	}
	for i := 1; i < 3; i++ {
		if got := s.sql(t, "copy", i, "SELECT STATE FROM performance_schema.clone_status"); got != "Completed" {
			t.Errorf("instance %d: expected it to be a clone of the restored one, found %q", i, got)
		}
	}
}

// deleted removes both clusters, one of them while somebody has stopped everything.
func (s *scene) deleted(t *testing.T) {
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
	if series := s.metric(t, "moco_"); series != "" {
		t.Errorf("metrics: expected none of clusters that are gone, found:\n%s", series)
	}
	s.tell(t, "deleted while stopped, nothing is left after %.1fs", time.Since(began).Seconds())
}
