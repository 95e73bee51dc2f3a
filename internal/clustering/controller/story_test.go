// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

// healthyWorld is a cluster that the manager has made of three empty servers, with a table.
func healthyWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.addServers(t)
	w.addCluster(t, nil)
	w.start(t)
	w.becomes(t, mocov1beta2.HealthyCondition, "True Healthy")
	w.must(t, 0, "app", "create database app", "create table app.t (id int auto_increment primary key, v varchar(20))", "insert into app.t (v) values ('first')")
	return w
}

func TestNewClusterBecomesHealthy(t *testing.T) {
	w := healthyWorld(t)
	w.everywhere(t, "select count(*) from app.t", "1")
	cluster := w.cluster(t)
	if got := cluster.Status.SyncedReplicas; got != size {
		t.Errorf("expected %d synced, found %d", size, got)
	}
	for i := range size {
		want := map[bool]string{true: "0", false: "1"}[i == cluster.Status.CurrentPrimaryIndex]
		if got := w.ask(t, i, "select @@super_read_only"); got != want {
			t.Errorf("instance %d: expected super_read_only=%s, found %s", i, want, got)
		}
	}
	if got := w.ask(t, 0, "select concat(@@rpl_semi_sync_source_enabled, @@rpl_semi_sync_source_wait_for_replica_count)"); got != "11" {
		t.Errorf("expected semi-sync with one replica, found %s", got)
	}
}

func TestSeedStory(t *testing.T) {
	w := healthyWorld(t)
	w.annotate(t, map[string]string{"torpor.dev/reason": "check the replicas"})
	w.stopClustering(t)
	cluster := w.becomes(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	w.becomes(t, mocov1beta2.AvailableCondition, "Unknown ClusteringStopped")
	w.becomes(t, mocov1beta2.HealthyCondition, "Unknown ClusteringStopped")
	if p := cluster.Status.Pause; p == nil || p.Clustering == nil || p.Clustering.Reason != "check the replicas" || p.Clustering.By == "" || p.Quiescing != "" {
		t.Errorf("expected who stopped it and why, found %+v", p)
	}

	t.Log("By hand: the replicas stop applying, and their transactions are advanced with the primary's.")
	for i := 1; i < size; i++ {
		w.must(t, i, "root", "stop replica sql_thread")
	}
	w.must(t, 0, "app", "insert into app.t (v) values ('second')")
	last := w.ask(t, 0, "select regexp_substr(@@gtid_executed, '[0-9]+$')")
	uuid := w.ask(t, 0, "select @@server_uuid")
	for i := 1; i < size; i++ {
		w.must(t, i, "root", fmt.Sprintf("set gtid_next = '%s:%s'", uuid, last), "begin", "commit", "set gtid_next = 'automatic'")
		w.must(t, i, "root", "set global super_read_only = 0", "set sql_log_bin = 0", "insert into app.t (v) values ('second')", "set global super_read_only = 1")
	}
	before := w.ask(t, 1, "select @@gtid_executed")
	for i := 1; i < size; i++ {
		if got := w.ask(t, i, "select service_state from performance_schema.replication_applier_status"); got != "OFF" {
			t.Errorf("instance %d: expected that nobody interferes, found the SQL thread %s", i, got)
		}
	}

	w.startClustering(t)
	w.becomes(t, mocov1beta2.ClusteringActiveCondition, "True ClusteringActive")
	w.becomes(t, mocov1beta2.HealthyCondition, "True Healthy")
	w.must(t, 0, "app", "insert into app.t (v) values ('third')")
	w.everywhere(t, "select group_concat(v order by id) from app.t", "first,second,third")
	if after := w.ask(t, 1, "select @@gtid_executed"); after == before {
		t.Errorf("expected the replica to have gone on from %s", before)
	}
}
