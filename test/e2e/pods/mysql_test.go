// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestMySQLOnRealPods tests a cluster while clients write through its Service.
func TestMySQLOnRealPods(t *testing.T) {
	s := &mysqlSuite{podsEnv: newPodsEnv(t)}
	s.startCluster(t)
	s.startManager(t)
	t.Cleanup(func() {
		if s.writer != nil {
			s.writer.stopWriting()
		}
	})
	runSteps(t, s, []testStep[*mysqlSuite]{
		{"a cluster is created and serves clients", (*mysqlSuite).testCreate},
		{"clustering is stopped, a DBA changes the replicas, and clustering is started", (*mysqlSuite).testClusteringStop},
		{"reconciliation is stopped, and a rollout waits for the start of clustering, too", (*mysqlSuite).testReconciliationStop},
		{"a rollout replaces one Pod at a time, the primary last", (*mysqlSuite).testRollout},
		{"volumes grow without a restart, and keep their size when the template shrinks", (*mysqlSuite).testVolumesGrow},
		{"a second cluster is cloned from the first one and replicates from it", (*mysqlSuite).testFollower},
		{"sessions are encrypted, and passwords change while clients write", (*mysqlSuite).testRotation},
		{"the second cluster recovers from changed passwords, and becomes independent", (*mysqlSuite).testPromotion},
		{"a replica's server that hangs is restarted", (*mysqlSuite).testHungReplica},
		{"the primary's server is killed, and another is promoted", (*mysqlSuite).testPrimaryKilled},
		{"the primary's Pod is deleted, and another is promoted", (*mysqlSuite).testPrimaryDeleted},
		{"a new cluster restores the rows from before a deletion", (*mysqlSuite).testBackupAndRestore},
		{"a stopped cluster is deleted", (*mysqlSuite).testDeleteWhileStopped},
	})
}

// mysqlSuite is the common state of the steps.
type mysqlSuite struct {
	*podsEnv
	writer *rowWriter
}

func (s *mysqlSuite) testCreate(t *testing.T) {
	began := time.Now()
	s.apply(t, "cluster.yaml")
	s.waitUntilHealthy(t, "test")
	s.logf(t, "created and healthy after %.1fs", time.Since(began).Seconds())
	s.expectColumns(t, "test True True 0 3 True True <no value>")
	s.mustRun(t, "CREATE DATABASE app; CREATE TABLE app.written (id INT PRIMARY KEY); CREATE TABLE app.t (id INT PRIMARY KEY, v VARCHAR(20)); INSERT INTO app.t VALUES (1, 'seed')",
		s.programs+"/kubectl", "moco", "mysql", "-u", "moco-writable", "-i", "test")
	password := s.kubectl(t, "moco", "credential", "-u", "moco-writable", "test")
	for service, want := range map[string]string{"moco-test-primary": "moco-test-0 0", "moco-test-replica": " 1"} {
		got := s.mustRun(t, "MYSQL_PWD="+password+" mysql -u moco-writable -h "+service+" -Nr -e 'SELECT @@hostname, @@read_only'",
			s.programs+"/kubectl", "exec", "-i", "moco-test-1", "-c", "mysqld", "--", "sh")
		if !strings.HasSuffix(strings.ReplaceAll(got, "\t", " "), want) {
			t.Errorf("answer behind %s: expected %q, found %q", service, want, got)
		}
	}
}

// testClusteringStop changes the replicas by hand, as a DBA would.
func (s *mysqlSuite) testClusteringStop(t *testing.T) {
	if out := s.kubectl(t, "moco", "stop", "clustering", "test", "--reason", "compare replicas", "--wait"); out != `stopped clustering of MySQLCluster "default/test"` {
		t.Errorf("expected upstream's words, found %q", out)
	}
	s.expectColumns(t, "test Unknown Unknown 0 3 False True <no value>")
	const gauge = `moco_cluster_clustering_stopped{name="test",namespace="default"} `
	if got := s.readMetric(t, gauge); got != gauge+"1" {
		t.Errorf("expected %s1, found %q", gauge, got)
	}
	for i := 1; i < 3; i++ {
		s.query(t, "test", i, "STOP REPLICA SQL_THREAD")
	}
	s.query(t, "test", 0, "INSERT INTO app.t VALUES (2, 'by hand')")
	executed := s.query(t, "test", 0, "SELECT @@gtid_executed")
	number := executed[:strings.Index(executed, ":")] + ":" + executed[strings.LastIndexAny(executed, ":-")+1:]
	for i := 1; i < 3; i++ {
		s.query(t, "test", i, "SET GLOBAL super_read_only = OFF", "SET GTID_NEXT = '"+number+"'", "INSERT INTO app.t VALUES (2, 'by hand')",
			"SET GTID_NEXT = 'AUTOMATIC'", "SET GLOBAL super_read_only = ON")
	}
	s.logf(t, "GTID %s is advanced by hand on both replicas", number)
	before := s.listPods(t)
	testenv.Consistently(t, stayTime, "nothing changes the replicas", func() error {
		var errs []error
		for i := 1; i < 3; i++ {
			if got := s.query(t, "test", i, "SELECT SERVICE_STATE FROM performance_schema.replication_applier_status", "SELECT @@gtid_executed"); got != "OFF\n"+executed {
				errs = append(errs, fmt.Errorf("instance %d: expected a stopped SQL thread at %s, found %q", i, executed, got))
			}
		}
		for name, p := range s.listPods(t) {
			if p.Metadata.UID != before[name].Metadata.UID || p.role() != before[name].role() {
				errs = append(errs, fmt.Errorf("expected Pod %s unchanged, found it changed", name))
			}
		}
		return errors.Join(errs...)
	})
	if out := s.kubectl(t, "moco", "start", "clustering", "test", "--wait"); !strings.HasPrefix(out, `started clustering of MySQLCluster "default/test"`) {
		t.Errorf("expected upstream's words, found %q", out)
	}
	s.waitUntilHealthy(t, "test")
	s.expectColumns(t, "test True True 0 3 True True <no value>")
	s.expectEqualRows(t, "test", "app.t", 3)
	s.logf(t, "started, healthy, and the rows are equal")
}

func (s *mysqlSuite) testReconciliationStop(t *testing.T) {
	s.kubectl(t, "moco", "stop", "reconciliation", "test", "--wait")
	s.expectColumns(t, "test True True 0 3 True False <no value>")
	before := s.listPods(t)
	s.kubectl(t, "patch", "mysqlcluster", "test", "--type=merge", "-p",
		`{"spec":{"podTemplate":{"metadata":{"annotations":{"story":"changed"}}},"primaryServiceTemplate":{"metadata":{"labels":{"story":"changed"}}}}}`)
	label := func() string {
		return s.kubectl(t, "get", "service", "moco-test-primary", "-o", "jsonpath={.metadata.labels.story}")
	}
	testenv.Consistently(t, stayTime, "the change waits", func() error {
		got := label()
		return testenv.ErrorIf(got != "", "expected no label, found %q", got)
	})
	s.kubectl(t, "moco", "stop", "clustering", "test", "--wait")
	s.kubectl(t, "moco", "start", "reconciliation", "test", "--wait")
	eventually(t, "the change is applied", func() error {
		if got := label(); got != "changed" {
			return fmt.Errorf("expected the label changed, found %q", got)
		}
		return s.readCluster(t, "test").expectCondition("StatefulSetReady", metav1.ConditionFalse,
			"the rollout waits while clustering is stopped", "moco-test-0, moco-test-1, moco-test-2", "kubectl moco start clustering test")
	})
	testenv.Consistently(t, stayTime, "the rollout waits", func() error {
		for name, p := range s.listPods(t) {
			if p.Metadata.UID != before[name].Metadata.UID {
				return fmt.Errorf("expected the same Pod %s, found a new one", name)
			}
		}
		return nil
	})
	s.expectColumns(t, "test Unknown Unknown 0 3 False True <no value>")
	s.logf(t, "the change waited for reconciliation, and its rollout waits for clustering")
}

// testRollout starts clustering again, and expects the waiting rollout to proceed while clients write.
func (s *mysqlSuite) testRollout(t *testing.T) {
	s.startWriting(t)
	before, began := s.listPods(t), time.Now()
	s.kubectl(t, "moco", "start", "clustering", "test", "--wait")
	var replaced []string
	eventually(t, "all Pods are replaced", func() error {
		now, away := s.listPods(t), 0
		for i := range 3 {
			name := podName(i)
			p, ok := now[name]
			if !ok || !p.ready() {
				away++
			}
			if ok && p.Metadata.UID != before[name].Metadata.UID {
				replaced = append(replaced, name)
				before[name] = p
			}
		}
		if away > 1 {
			t.Errorf("Pods that are away: expected one at a time, found %d", away)
		}
		return testenv.ErrorIf(len(replaced) < 3, "expected three new Pods, found %q", replaced)
	})
	after := s.waitUntilHealthy(t, "test")
	if got := strings.Join(replaced, " "); got != "moco-test-2 moco-test-1 moco-test-0" || after.Status.Primary == 0 {
		t.Errorf("order: expected the replicas, then the old primary after a switchover, found %s and the primary %d", got, after.Status.Primary)
	}
	s.logf(t, "rolled out in %.1fs; the longest time without an acknowledgement was %s", time.Since(began).Seconds(), s.writer.longestGap())
	s.expectNothingLost(t)
}

func (s *mysqlSuite) startWriting(t *testing.T) {
	t.Helper()
	if s.writer == nil {
		s.writer = startRowWriter(t, s.podsEnv, "test")
	}
	s.writer.longestGap() // Ignore the time until now.
}

// expectNothingLost waits until clients write again, and compares the acknowledged rows with the primary's
// rows.
func (s *mysqlSuite) expectNothingLost(t *testing.T) {
	t.Helper()
	before := len(s.writer.acknowledged())
	eventually(t, "clients write", func() error { return s.writer.expectMoreThan(before) })
	acknowledged := s.writer.acknowledged()
	rows := s.queryPrimary(t, "SELECT id FROM app.written")
	if lost := missingNumbers(t, acknowledged, rows); len(lost) > 0 {
		t.Errorf("acknowledged rows: expected all of %d, found %v missing", len(acknowledged), lost)
	}
	s.logf(t, "all %d rows acknowledged so far exist", len(acknowledged))
}

// testFollower clones a cluster from the primary of another one, while clients write.
func (s *mysqlSuite) testFollower(t *testing.T) {
	s.startWriting(t)
	s.queryPrimary(t, "CREATE USER follower@'%' IDENTIFIED BY 'follows'; GRANT BACKUP_ADMIN, REPLICATION SLAVE ON *.* TO follower@'%'")
	began := time.Now()
	s.apply(t, "follower.yaml", "{PASSWORD}", "follows")
	s.waitUntilHealthy(t, "follower")
	s.logf(t, "a copy of the cluster follows it after %.1fs; the longest time without an acknowledgement was %s", time.Since(began).Seconds(), s.writer.longestGap())
	s.expectFollowed(t)
	if got := s.query(t, "follower", 0, "SELECT @@super_read_only, COUNT(*) FROM information_schema.schemata WHERE schema_name = 'only_here'"); got != "1\t1" {
		t.Errorf("expected a read-only copy in which INIT_AFTER_CLONE_SQL was run, found %q", got)
	}
}

// expectFollowed writes a row, and waits until the copy has it.
func (s *mysqlSuite) expectFollowed(t *testing.T) {
	t.Helper()
	newest := s.queryPrimary(t, "SELECT MAX(id) FROM app.written")
	eventually(t, "the copy has the newest row", func() error {
		found, err := s.tryQuery(t, "follower", 0, "SELECT COUNT(*) FROM app.written WHERE id = "+newest)
		return errors.Join(err, testenv.ErrorIf(found != "1", "expected row %s, found none", newest))
	})
}

// readFollowerPod returns a field of the copy's Pod; an error if there is none, as for a moment during a rollout.
func (s *mysqlSuite) readFollowerPod(t *testing.T, path string) (string, error) {
	t.Helper()
	return s.tryRun(t, "", filepath.Join(s.programs, "kubectl"), "get", "pod", "moco-follower-0", "-o", "jsonpath="+path)
}

// testPromotion runs after a rotation of the source's passwords, which leaves the old ones valid in the copy, too.
// The test discards the old passwords only in the copy, because Torpor needs access to the source.
func (s *mysqlSuite) testPromotion(t *testing.T) {
	s.expectFollowed(t)
	s.query(t, "follower", 0, "SET sql_log_bin = 0", "SET GLOBAL super_read_only = 0", "ALTER USER 'moco-admin'@'%' IDENTIFIED BY 'changed'",
		"ALTER USER 'moco-admin'@'%' DISCARD OLD PASSWORD", "SET GLOBAL super_read_only = 1")
	began := time.Now()
	eventually(t, "the kubelet has restarted the copy's server", func() error {
		restarts, err := s.readFollowerPod(t, "{.status.containerStatuses[?(@.name=='mysqld')].restartCount}")
		return errors.Join(err, testenv.ErrorIf(restarts == "" || restarts == "0", "expected a restart, found %q", restarts))
	})
	s.waitUntilHealthy(t, "follower")
	s.expectFollowed(t)
	s.logf(t, "the copy has its own accounts again after %.1fs", time.Since(began).Seconds())
	began = time.Now()
	s.kubectl(t, "patch", "mysqlcluster", "follower", "--type=merge", "-p", `{"spec":{"replicationSourceSecretName":null}}`)
	eventually(t, "the copy accepts writes", func() error {
		_, err := s.tryQuery(t, "follower", 0, "INSERT INTO app.t VALUES (99, 'own')")
		return err
	})
	s.logf(t, "the copy accepts writes after %.1fs", time.Since(began).Seconds())
	eventually(t, "its Pod does not create accounts anymore", func() error {
		found, err := s.readFollowerPod(t, "{.spec.volumes[*].name}")
		return errors.Join(err, testenv.ErrorIf(strings.Contains(found, "take-over"), "found %s", found))
	})
	s.waitUntilHealthy(t, "follower")
	s.kubectl(t, "delete", "mysqlcluster", "follower", "--wait")
	s.expectNothingLost(t)
}

// testRotation rotates the passwords but leaves the old ones valid, because the writing client uses one of them.
func (s *mysqlSuite) testRotation(t *testing.T) {
	s.startWriting(t)
	s.expectEncryptedSessions(t)
	credential := func() string { return s.kubectl(t, "moco", "credential", "-u", "moco-writable", "test") }
	old, began := credential(), time.Now()
	s.kubectl(t, "moco", "rotate", "test", "--wait")
	if credential() == old {
		t.Error("expected another password, found the same")
	}
	s.logf(t, "passwords are rotated after %.1fs; the longest time without an acknowledgement was %s", time.Since(began).Seconds(), s.writer.longestGap())
	s.waitUntilHealthy(t, "test")
	s.expectEncryptedSessions(t)
	s.expectNothingLost(t)
}

// expectEncryptedSessions expects encrypted sessions of Torpor's users. It ignores the probes, whose connections
// stay in their Pod, the session of the query, which uses the socket, and replication threads, which have the name
// of the user who started them.
func (s *mysqlSuite) expectEncryptedSessions(t *testing.T) {
	t.Helper()
	var all []string
	for i := range 3 {
		for line := range strings.Lines(s.query(t, "test", i, "SELECT DISTINCT processlist_user, variable_value FROM performance_schema.threads JOIN "+
			"performance_schema.status_by_thread USING (thread_id) WHERE variable_name = 'Ssl_cipher' AND name = 'thread/sql/one_connection' AND "+
			"processlist_user LIKE 'moco-%' AND processlist_user <> 'moco-agent' AND processlist_id <> CONNECTION_ID()")) {
			user, cipher, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if cipher == "" {
				t.Errorf("instance %d: expected each session to be encrypted, found one of %s that is not", i, user)
			}
			all = append(all, user)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	s.logf(t, "the sessions of %s are encrypted", strings.Join(all, ", "))
	for _, user := range []string{"moco-admin", "moco-repl", "moco-writable"} {
		if !slices.Contains(all, user) {
			t.Errorf("sessions: expected one of %s, found %q", user, all)
		}
	}
}

// testBackupAndRestore deletes rows after a backup, as by mistake, and restores them in a new cluster.
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
	eventually(t, "the status reports the backup", func() error {
		at := s.readCluster(t, "test").Status.Backup.Time
		if at == nil {
			return errors.New("expected a time, found none")
		}
		point = at.UTC().Format(time.RFC3339)
		return nil
	})
	s.expectColumns(t, fmt.Sprintf("test True True %d 3 True True %s", s.readCluster(t, "test").Status.Primary, point))
	s.logf(t, "there is a backup after %.1fs", time.Since(began).Seconds())
	began = time.Now()
	s.queryPrimary(t, "INSERT INTO app.t VALUES (3, 'after the backup')")
	want := s.queryPrimary(t, "CHECKSUM TABLE app.t, app.written")
	point = s.queryPrimary(t, "SELECT DATE_FORMAT(UTC_TIMESTAMP() + INTERVAL 1 SECOND, '%Y-%m-%dT%TZ')")
	testenv.Eventually(t, "the point has passed", func() error {
		now := s.queryPrimary(t, "SELECT DATE_FORMAT(UTC_TIMESTAMP(), '%Y-%m-%dT%TZ')")
		return testenv.ErrorIf(now <= point, "expected a time after %s, found %s", point, now)
	})
	s.queryPrimary(t, "DELETE FROM app.t")
	eventually(t, "the point can be restored", func() error {
		shipped := s.readCluster(t, "test").Status.BinlogShipping
		return testenv.ErrorIf(shipped.RestorableSince == "" || shipped.ShippedUntil < point, "expected every point until %s, found %+v", point, shipped)
	})
	s.logf(t, "the point before the mistake can be restored after %.1fs", time.Since(began).Seconds())
	began = time.Now()
	s.apply(t, "copy.yaml", append(words, "{POINT}", point)...)
	if s.waitUntilHealthy(t, "copy").Status.RestoredTime == nil {
		t.Error("expected the time of the restore, found none")
	}
	s.logf(t, "a new cluster as of that point is healthy after %.1fs", time.Since(began).Seconds())
	for _, table := range []string{"app.t", "app.written"} {
		s.expectEqualRows(t, "copy", table, 3)
	}
	if got := s.query(t, "copy", 2, "CHECKSUM TABLE app.t, app.written"); got != want {
		t.Errorf("rows: expected %q, found %q", want, got)
	}
	for i := 1; i < 3; i++ {
		if got := s.query(t, "copy", i, "SELECT STATE FROM performance_schema.clone_status"); got != "Completed" {
			t.Errorf("instance %d: expected it to be a clone of the restored one, found %q", i, got)
		}
	}
}

// testVolumesGrow does not check file systems: a driver would grow them, but a folder of the node has no driver.
func (s *mysqlSuite) testVolumesGrow(t *testing.T) {
	s.startWriting(t)
	s.kubectl(t, "patch", "storageclass", "local", "--type=merge", "-p", `{"allowVolumeExpansion":true}`)
	setSize := func(size string) {
		s.kubectl(t, "patch", "mysqlcluster", "test", "--type=merge", "-p", `{"spec":{"volumeClaimTemplates":[{"metadata":{"name":"mysql-data"},"spec":`+
			`{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"`+size+`"}}}}]}}`)
	}
	const sizes = "jsonpath={.items[*].spec.resources.requests.storage} {.items[*].spec.volumeClaimTemplates[*].spec.resources.requests.storage}"
	before, began := s.listPods(t), time.Now()
	setSize("2Gi")
	eventually(t, "all claims and the template have grown", func() error {
		found := s.kubectl(t, "get", "pvc,statefulset", "-l", "app.kubernetes.io/instance=test", "-o", sizes)
		return testenv.ErrorIf(strings.Join(strings.Fields(found), " ") != "2Gi 2Gi 2Gi 2Gi", "found %s", found)
	})
	s.waitUntilHealthy(t, "test")
	grown := time.Since(began)
	testenv.Consistently(t, stayTime, "no Pod is replaced or restarted", func() error {
		for name, p := range s.listPods(t) {
			if p.Metadata.UID != before[name].Metadata.UID || p.restarts() != before[name].restarts() {
				return fmt.Errorf("expected %s unchanged, found it with %d restarts", name, p.restarts())
			}
		}
		return nil
	})
	s.logf(t, "volumes have grown after %.1fs; the longest time without an acknowledgement was %s", grown.Seconds(), s.writer.longestGap())
	s.expectNothingLost(t)
	// As in MOCO, a smaller size applies to the template, and existing claims keep their sizes.
	for _, size := range []string{"1Gi", "2Gi"} {
		setSize(size)
		eventually(t, "the template has "+size+", and the claims keep their size", func() error {
			found := s.kubectl(t, "get", "pvc,statefulset", "-l", "app.kubernetes.io/instance=test", "-o", sizes)
			return testenv.ErrorIf(strings.Join(strings.Fields(found), " ") != "2Gi 2Gi 2Gi "+size, "found %s", found)
		})
		s.waitUntilHealthy(t, "test")
	}
	for name, p := range s.listPods(t) {
		if p.Metadata.UID != before[name].Metadata.UID || p.restarts() != before[name].restarts() {
			t.Errorf("expected %s unchanged, found it with %d restarts", name, p.restarts())
		}
	}
	s.expectNothingLost(t)
}

// testHungReplica suspends the server in a Pod by SIGSTOP, so that its port stays open.
func (s *mysqlSuite) testHungReplica(t *testing.T) {
	s.startWriting(t)
	name := podName((s.readCluster(t, "test").Status.Primary + 1) % 3)
	before, began := s.listPods(t)[name], time.Now()
	signalServer(t, before, syscall.SIGSTOP)
	eventually(t, "its container is restarted", func() error {
		return testenv.ErrorIf(s.listPods(t)[name].restarts() == before.restarts(), "expected one more than %d restarts", before.restarts())
	})
	s.logf(t, "%s is restarted %.1fs after its server was suspended", name, time.Since(began).Seconds())
	eventually(t, "the instance is a replica again", func() error {
		p := s.listPods(t)[name]
		return testenv.ErrorIf(!p.ready() || p.role() != "replica", "expected it to be ready and a replica, found role %q", p.role())
	})
	s.waitUntilHealthy(t, "test")
	s.expectNothingLost(t)
}

func (s *mysqlSuite) testDeleteWhileStopped(t *testing.T) {
	began := time.Now()
	s.kubectl(t, "moco", "stop", "clustering", "test", "--wait")
	s.kubectl(t, "moco", "stop", "reconciliation", "test", "--wait")
	s.kubectl(t, "delete", "mysqlcluster", "test", "copy", "--timeout=3m")
	eventually(t, "no object is left", func() error {
		left := s.kubectl(t, "get", "pods,pvc,pv,services,secrets,configmaps,serviceaccounts,statefulsets,poddisruptionbudgets,cronjobs,jobs", "-A",
			"-o", `jsonpath={range .items[*]}{.kind}/{.metadata.name}{"\n"}{end}`)
		var ours []string
		for line := range strings.Lines(left) {
			if strings.Contains(line, "moco") || strings.HasPrefix(line, "PersistentVolume") || strings.HasPrefix(line, "Pod/") {
				ours = append(ours, strings.TrimSpace(line))
			}
		}
		return testenv.ErrorIf(len(ours) > 0, "expected nothing, found %q", ours)
	})
	if series := s.readMetric(t, "moco_"); series != "" {
		t.Errorf("metrics: expected no metrics of deleted clusters, found:\n%s", series)
	}
	s.logf(t, "a cluster deleted while stopped: nothing is left after %.1fs", time.Since(began).Seconds())
}

func (s *mysqlSuite) testPrimaryKilled(t *testing.T) {
	old := s.readCluster(t, "test").Status.Primary
	s.expectReplacement(t, old, "kill -9 of its server", func() { signalServer(t, s.listPods(t)[podName(old)], syscall.SIGKILL) })
}

func (s *mysqlSuite) testPrimaryDeleted(t *testing.T) {
	old := s.readCluster(t, "test").Status.Primary
	s.expectReplacement(t, old, "its Pod's deletion", func() { s.kubectl(t, "delete", "pod", podName(old), "--wait=false") })
}

// expectReplacement expects that another primary accepts writes within a minute, and that the old one becomes a
// replica.
func (s *mysqlSuite) expectReplacement(t *testing.T, old int, what string, do func()) {
	t.Helper()
	s.startWriting(t)
	do()
	began := time.Now()
	primary := old
	eventually(t, "another primary", func() error {
		primary = s.readCluster(t, "test").Status.Primary
		return testenv.ErrorIf(primary == old, "expected another primary than %d", old)
	})
	s.logf(t, "instance %d is the primary %.1fs after %s", primary, time.Since(began).Seconds(), what)
	s.expectNothingLost(t)
	gap := s.writer.longestGap()
	s.logf(t, "the longest time without an acknowledgement was %s", gap)
	if gap > time.Minute {
		t.Errorf("time without an acknowledgement: expected seconds, found %s", gap)
	}
	testenv.Eventually(t, "the old primary is a replica", func() error {
		p := s.listPods(t)[podName(old)]
		return testenv.ErrorIf(!p.ready() || p.role() != "replica", "expected %s to be ready and a replica, found role %q", podName(old), p.role())
	})
	s.waitUntilHealthy(t, "test")
	s.logf(t, "instance %d is a replica now, and the cluster is healthy", old)
}

const (
	// tryLimit is a client's time limit for one acknowledgement, after which it opens a new connection.
	tryLimit      = time.Second
	writeInterval = 50 * time.Millisecond
)

// rowWriter writes rows with unique numbers through the Service of the primary, one after another, and records which
// of them were acknowledged.
type rowWriter struct {
	db   *sql.DB
	stop context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	acked []int
	last  time.Time
	gap   time.Duration
	// problem is the error of the last row that was not acknowledged.
	problem error
}

// startRowWriter starts a writer that connects to the Service from this machine, as a program in the cluster would.
func startRowWriter(t *testing.T, e *podsEnv, cluster string) *rowWriter {
	t.Helper()
	cfg := mysql.NewConfig()
	cfg.Net, cfg.DBName = "tcp", "app"
	cfg.Addr = e.kubectl(t, "get", "service", "moco-"+cluster+"-primary", "-o", "jsonpath={.spec.clusterIP}") + ":3306"
	cfg.User, cfg.Passwd = "moco-writable", e.kubectl(t, "moco", "credential", "-u", "moco-writable", cluster)
	cfg.TLSConfig = "skip-verify"
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout, cfg.RejectReadOnly = tryLimit, tryLimit, tryLimit, true
	connector, err := mysql.NewConnector(cfg)
	testenv.ExpectNoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	c := &rowWriter{db: sql.OpenDB(connector), stop: cancel, last: time.Now()}
	c.done.Go(func() { c.write(ctx) })
	return c
}

func (c *rowWriter) write(ctx context.Context) {
	tick := time.NewTicker(writeInterval)
	defer tick.Stop()
	for number := 1; ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		try, cancel := context.WithTimeout(ctx, tryLimit)
		_, err := c.db.ExecContext(try, "INSERT INTO app.written VALUES (?)", number)
		cancel()
		c.recordAnswer(number, err)
	}
}

func (c *rowWriter) recordAnswer(number int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.problem = err
		return
	}
	c.gap = max(c.gap, time.Since(c.last))
	c.acked, c.last = append(c.acked, number), time.Now()
}

func (c *rowWriter) acknowledged() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.acked)
}

// expectMoreThan returns nil when there are more acknowledgements than before.
func (c *rowWriter) expectMoreThan(before int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.acked) > before {
		return nil
	}
	return fmt.Errorf("expected more than %d acknowledgements, found none; the last problem: %w", before, c.problem)
}

// longestGap returns the longest time without an acknowledgement since the last call.
func (c *rowWriter) longestGap() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := max(c.gap, time.Since(c.last))
	c.gap = 0
	return longest.Round(time.Millisecond)
}

func (c *rowWriter) stopWriting() {
	c.stop()
	c.done.Wait()
	_ = c.db.Close() // The connection is no longer needed.
}

// missingNumbers returns the numbers that rows does not contain, which has one number per line.
func missingNumbers(t *testing.T, numbers []int, rows string) []int {
	t.Helper()
	there := map[int]bool{}
	for field := range strings.FieldsSeq(rows) {
		number, err := strconv.Atoi(field)
		if err != nil {
			t.Fatalf("expected numbers, found %q", field)
		}
		there[number] = true
	}
	return slices.DeleteFunc(slices.Clone(numbers), func(number int) bool { return there[number] })
}

func (e *podsEnv) query(t *testing.T, cluster string, index int, statements ...string) string {
	t.Helper()
	out, err := e.tryQuery(t, cluster, index, statements...)
	testenv.ExpectNoError(t, err)
	return out
}

func (s *mysqlSuite) queryPrimary(t *testing.T, statement string) string {
	t.Helper()
	return s.query(t, "test", s.readCluster(t, "test").Status.Primary, statement)
}

func (e *podsEnv) tryQuery(t *testing.T, cluster string, index int, statements ...string) (string, error) {
	t.Helper()
	args := []string{"moco", "mysql", "-u", "moco-admin", "--index", strconv.Itoa(index), cluster, "--", "-Nr", "-e", strings.Join(statements, "; ")}
	return e.tryRun(t, "", e.programs+"/kubectl", args...)
}

// expectEqualRows waits until all instances have the same rows. No client may write in the meantime.
func (e *podsEnv) expectEqualRows(t *testing.T, cluster, table string, instances int) {
	t.Helper()
	eventually(t, "the rows of "+table+" are equal", func() error {
		var sums []string
		for i := range instances {
			sum, err := e.tryQuery(t, cluster, i, "CHECKSUM TABLE "+table)
			if err != nil {
				return err
			}
			sums = append(sums, sum)
		}
		distinct := slices.Compact(sums)
		return testenv.ErrorIf(len(distinct) != 1 || strings.HasSuffix(distinct[0], "NULL"), "expected equal checksums, found %q", sums)
	})
}
