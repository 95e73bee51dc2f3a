// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/testenv"
)

// TestMySQLOnRealPods tests one cluster while clients write through its Service.
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
		{"a cluster is created and serves", (*mysqlSuite).testCreate},
		{"clustering stops, a GTID is advanced by hand, clustering starts", (*mysqlSuite).testClusteringStop},
		{"reconciliation stops, and a rollout waits for clustering too", (*mysqlSuite).testReconciliationStop},
		{"a rollout replaces one Pod at a time, the primary last", (*mysqlSuite).testRollout},
		{"the primary's server is killed", (*mysqlSuite).testPrimaryKilled},
		{"the primary's Pod is deleted", (*mysqlSuite).testPrimaryDeleted},
		{"a backup is restored into a new cluster", (*mysqlSuite).testBackupAndRestore},
		{"a cluster that is stopped is deleted", (*mysqlSuite).testDeleteWhileStopped},
	})
}

// mysqlSuite is what one step leaves for the next.
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
			t.Errorf("who answers behind %s: expected %q, found %q", service, want, got)
		}
	}
}

// testClusteringStop has a DBA work on the replicas by hand.
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
	testenv.Consistently(t, stayTime, "nobody interferes", func() error {
		var errs []error
		for i := 1; i < 3; i++ {
			if got := s.query(t, "test", i, "SELECT SERVICE_STATE FROM performance_schema.replication_applier_status", "SELECT @@gtid_executed"); got != "OFF\n"+executed {
				errs = append(errs, fmt.Errorf("instance %d: expected its SQL thread off at %s, found %q", i, executed, got))
			}
		}
		for name, p := range s.listPods(t) {
			if p.Metadata.UID != before[name].Metadata.UID || p.role() != before[name].role() {
				errs = append(errs, fmt.Errorf("expected Pod %s untouched, found it changed", name))
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

// testReconciliationStop has a change of the spec wait.
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
		if got := label(); got != "" {
			return fmt.Errorf("expected no label, found %q", got)
		}
		return nil
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
				return fmt.Errorf("expected Pod %s as it was, found a new one", name)
			}
		}
		return nil
	})
	s.expectColumns(t, "test Unknown Unknown 0 3 False True <no value>")
	s.logf(t, "the change waited for reconciliation, and its rollout waits for clustering")
}

// testRollout starts clustering again, and what has waited goes on while clients write.
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
		if len(replaced) < 3 {
			return fmt.Errorf("expected three new Pods, found %q", replaced)
		}
		return nil
	})
	after := s.waitUntilHealthy(t, "test")
	if got := strings.Join(replaced, " "); got != "moco-test-1 moco-test-2 moco-test-0" || after.Status.Primary == 0 {
		t.Errorf("order: expected the replicas, then the old primary after a switchover, found %s and the primary %d", got, after.Status.Primary)
	}
	s.logf(t, "rolled out in %.1fs; the longest time without an acknowledgement was %s", time.Since(began).Seconds(), s.writer.longestGap())
	s.expectNothingLost(t)
}

// startWriting has clients write from now on.
func (s *mysqlSuite) startWriting(t *testing.T) {
	t.Helper()
	if s.writer == nil {
		s.writer = startRowWriter(t, s.podsEnv, "test")
	}
	s.writer.longestGap() // What was before does not count.
}

// expectNothingLost waits until clients write again, and compares what was acknowledged with the primary's rows.
func (s *mysqlSuite) expectNothingLost(t *testing.T) {
	t.Helper()
	before := len(s.writer.acknowledged())
	eventually(t, "clients write", func() error { return s.writer.expectMoreThan(before) })
	acknowledged := s.writer.acknowledged()
	rows := s.query(t, "test", s.readCluster(t, "test").Status.Primary, "SELECT id FROM app.written")
	if lost := missingNumbers(t, acknowledged, rows); len(lost) > 0 {
		t.Errorf("acknowledged rows: expected all of %d, found %v missing", len(acknowledged), lost)
	}
	s.logf(t, "%d rows were acknowledged so far, and all of them are there", len(acknowledged))
}
