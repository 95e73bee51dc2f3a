// SPDX-License-Identifier: Apache-2.0

package controller

import (
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
	t.Parallel()
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
