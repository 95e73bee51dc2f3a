// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
)

func TestNewClusterBecomesHealthy(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	e.waitForAnswer(t, "select count(*) from app.t", "1")
	cluster := e.getCluster(t)
	if got := cluster.Status.SyncedReplicas; got != instances {
		t.Errorf("expected %d synced, found %d", instances, got)
	}
	for i := range instances {
		want := map[bool]string{true: "0", false: "1"}[i == cluster.Status.CurrentPrimaryIndex]
		if got := e.query(t, i, "select @@super_read_only"); got != want {
			t.Errorf("instance %d: expected super_read_only=%s, found %s", i, want, got)
		}
	}
	if got := e.query(t, 0, "select concat(@@rpl_semi_sync_source_enabled, @@rpl_semi_sync_source_wait_for_replica_count)"); got != "11" {
		t.Errorf("expected semi-sync with one replica, found %s", got)
	}
}
