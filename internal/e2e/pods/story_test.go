// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestMySQLOnRealPods plays the stories one after the other on one cluster, while clients write through its Service.
func TestMySQLOnRealPods(t *testing.T) {
	w := newWorld(t)
	w.up(t)
	w.manage(t)
	s := &scene{world: w}
	t.Cleanup(func() {
		if s.clients != nil {
			s.clients.end()
		}
	})
	for _, story := range []struct {
		name string
		play func(*scene, *testing.T)
	}{
		{"a cluster is created and serves", (*scene).created},
		{"clustering stops, a GTID is advanced by hand, clustering starts", (*scene).clusteringStops},
		{"reconciliation stops, and a rollout waits for clustering too", (*scene).reconciliationStops},
		{"a rollout replaces one Pod at a time, the primary last", (*scene).rollsOut},
		{"the primary's server is killed", (*scene).primaryIsKilled},
		{"the primary's Pod is deleted", (*scene).primaryIsDeleted},
		{"a backup is restored into a new cluster", (*scene).backedUp},
		{"a cluster that is stopped is deleted", (*scene).deleted},
	} {
		if !t.Run(story.name, func(t *testing.T) { story.play(s, t) }) {
			t.FailNow() // The next story would only repeat the failure.
		}
	}
}

// scene is what a story leaves for the next one.
type scene struct {
	*world
	clients *clients
}

func (s *scene) created(t *testing.T) {
	began := time.Now()
	s.apply(t, "cluster.yaml")
	s.healthy(t, "test")
	s.tell(t, "created and healthy after %.1fs", time.Since(began).Seconds())
	s.columns(t, "test True True 0 3 True True <no value>")
	s.run(t, "CREATE DATABASE app; CREATE TABLE app.written (id INT PRIMARY KEY); CREATE TABLE app.t (id INT PRIMARY KEY, v VARCHAR(20)); INSERT INTO app.t VALUES (1, 'seed')",
		s.programs+"/kubectl", "moco", "mysql", "-u", "moco-writable", "-i", "test")
	password := s.kubectl(t, "moco", "credential", "-u", "moco-writable", "test")
	for service, want := range map[string]string{"moco-test-primary": "moco-test-0 0", "moco-test-replica": " 1"} {
		got := s.run(t, "MYSQL_PWD="+password+" mysql -u moco-writable -h "+service+" -Nr -e 'SELECT @@hostname, @@read_only'",
			s.programs+"/kubectl", "exec", "-i", "moco-test-1", "-c", "mysqld", "--", "sh")
		if !strings.HasSuffix(strings.ReplaceAll(got, "\t", " "), want) {
			t.Errorf("who answers behind %s: expected %q, found %q", service, want, got)
		}
	}
}

// clusteringStops is the seed's story: a DBA works on the replicas by hand.
func (s *scene) clusteringStops(t *testing.T) {
	if out := s.kubectl(t, "moco", "stop", "clustering", "test", "--reason", "compare replicas", "--wait"); out != `stopped clustering of MySQLCluster "default/test"` {
		t.Errorf("expected upstream's words, found %q", out)
	}
	s.columns(t, "test Unknown Unknown 0 3 False True <no value>")
	const gauge = `moco_cluster_clustering_stopped{name="test",namespace="default"} `
	if got := s.metric(t, gauge); got != gauge+"1" {
		t.Errorf("expected %s1, found %q", gauge, got)
	}
	for i := 1; i < 3; i++ {
		s.sql(t, "test", i, "STOP REPLICA SQL_THREAD")
	}
	s.sql(t, "test", 0, "INSERT INTO app.t VALUES (2, 'by hand')")
	executed := s.sql(t, "test", 0, "SELECT @@gtid_executed")
	number := executed[:strings.Index(executed, ":")] + ":" + executed[strings.LastIndexAny(executed, ":-")+1:]
	for i := 1; i < 3; i++ {
		s.sql(t, "test", i, "SET GLOBAL super_read_only = OFF", "SET GTID_NEXT = '"+number+"'", "INSERT INTO app.t VALUES (2, 'by hand')",
			"SET GTID_NEXT = 'AUTOMATIC'", "SET GLOBAL super_read_only = ON")
	}
	s.tell(t, "GTID %s is advanced by hand on both replicas", number)
	before := s.pods(t)
	stays(t, "nobody interferes", func() error {
		var errs []error
		for i := 1; i < 3; i++ {
			if got := s.sql(t, "test", i, "SELECT SERVICE_STATE FROM performance_schema.replication_applier_status", "SELECT @@gtid_executed"); got != "OFF\n"+executed {
				errs = append(errs, fmt.Errorf("instance %d: expected its SQL thread off at %s, found %q", i, executed, got))
			}
		}
		for name, p := range s.pods(t) {
			if p.Metadata.UID != before[name].Metadata.UID || p.role() != before[name].role() {
				errs = append(errs, fmt.Errorf("expected Pod %s untouched, found it changed", name))
			}
		}
		return errors.Join(errs...)
	})
	if out := s.kubectl(t, "moco", "start", "clustering", "test", "--wait"); !strings.HasPrefix(out, `started clustering of MySQLCluster "default/test"`) {
		t.Errorf("expected upstream's words, found %q", out)
	}
	s.healthy(t, "test")
	s.columns(t, "test True True 0 3 True True <no value>")
	s.equal(t, "test", "app.t", 3)
	s.tell(t, "started, healthy, and the rows are equal")
}

// reconciliationStops is the other half of the seed: a change of the spec waits.
func (s *scene) reconciliationStops(t *testing.T) {
	s.kubectl(t, "moco", "stop", "reconciliation", "test", "--wait")
	s.columns(t, "test True True 0 3 True False <no value>")
	before := s.pods(t)
	s.kubectl(t, "patch", "mysqlcluster", "test", "--type=merge", "-p",
		`{"spec":{"podTemplate":{"metadata":{"annotations":{"story":"changed"}}},"primaryServiceTemplate":{"metadata":{"labels":{"story":"changed"}}}}}`)
	label := func() string {
		return s.kubectl(t, "get", "service", "moco-test-primary", "-o", "jsonpath={.metadata.labels.story}")
	}
	stays(t, "the change waits", func() error {
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
		return s.see(t, "test").is("StatefulSetReady", metav1.ConditionFalse,
			"the rollout waits while clustering is stopped", "moco-test-0, moco-test-1, moco-test-2", "kubectl moco start clustering test")
	})
	stays(t, "the rollout waits", func() error {
		for name, p := range s.pods(t) {
			if p.Metadata.UID != before[name].Metadata.UID {
				return fmt.Errorf("expected Pod %s as it was, found a new one", name)
			}
		}
		return nil
	})
	s.columns(t, "test Unknown Unknown 0 3 False True <no value>")
	s.tell(t, "the change waited for reconciliation, and its rollout waits for clustering")
}

// rollsOut starts clustering again, and what has waited goes on while clients write.
func (s *scene) rollsOut(t *testing.T) {
	s.write(t)
	before, began := s.pods(t), time.Now()
	s.kubectl(t, "moco", "start", "clustering", "test", "--wait")
	var replaced []string
	eventually(t, "all Pods are replaced", func() error {
		now, away := s.pods(t), 0
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
	after := s.healthy(t, "test")
	if got := strings.Join(replaced, " "); got != "moco-test-1 moco-test-2 moco-test-0" || after.Status.Primary == 0 {
		t.Errorf("order: expected the replicas, then the old primary after a switchover, found %s and the primary %d", got, after.Status.Primary)
	}
	s.tell(t, "rolled out in %.1fs; the longest time without an acknowledgement was %s", time.Since(began).Seconds(), s.clients.longest())
	s.nothingLost(t)
}

// write has clients write from now on.
func (s *scene) write(t *testing.T) {
	t.Helper()
	if s.clients == nil {
		s.clients = startClients(t, s.world, "test")
	}
	s.clients.longest() // What was before does not count.
}

// nothingLost waits until clients write again, and compares what was acknowledged with the primary's rows.
func (s *scene) nothingLost(t *testing.T) {
	t.Helper()
	before := len(s.clients.acknowledged())
	eventually(t, "clients write", func() error { return s.clients.more(before) })
	acknowledged := s.clients.acknowledged()
	rows := s.sql(t, "test", s.see(t, "test").Status.Primary, "SELECT id FROM app.written")
	if lost := missing(t, acknowledged, rows); len(lost) > 0 {
		t.Errorf("acknowledged rows: expected all of %d, found %v missing", len(acknowledged), lost)
	}
	s.tell(t, "%d rows were acknowledged so far, and all of them are there", len(acknowledged))
}
