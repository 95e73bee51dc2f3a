// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	testenv "github.com/torpor-dev/torpor/test/env"
)

const startRefused = "False StartRefused"

// advance commits an empty transaction in the last instance, three numbers ahead of the primary, as a user does when
// aligning replicas. It returns the GTID.
func (e *environment) advance(t *testing.T) string {
	t.Helper()
	p := e.getCluster(t).Status.CurrentPrimaryIndex
	next := e.query(t, p, "select concat(@@server_uuid, ':', 3 + regexp_substr(@@gtid_executed, '[0-9]+$'))")
	e.commitEmpty(t, 2, next)
	return next
}

func (e *environment) commitEmpty(t *testing.T, i int, gtid string) {
	t.Helper()
	e.mustRun(t, i, "root", "set gtid_next = '"+gtid+"'", "begin", "commit", "set gtid_next = 'automatic'")
}

// align executes, on the primary, empty transactions with the GTIDs that an instance has and the primary lacks.
func (e *environment) align(t *testing.T, i int) {
	t.Helper()
	p := e.getCluster(t).Status.CurrentPrimaryIndex
	more := e.query(t, p, fmt.Sprintf("select gtid_subtract('%s', @@gtid_executed)", e.query(t, i, "select replace(@@gtid_executed, '\\n', '')")))
	e.commitEmpty(t, p, strings.TrimSpace(more))
}

// deleteBinaryLogs purges an instance's binary logs of everything that it has executed. A log that a replica still
// reads is kept for now.
func (e *environment) deleteBinaryLogs(t *testing.T, i int) {
	t.Helper()
	testenv.Eventually(t, "the binary logs are deleted", func() error {
		e.mustRun(t, i, "root", "flush binary logs", "purge binary logs before now() + interval 1 hour")
		return testenv.ErrorIf(e.query(t, i, "select gtid_subset(@@global.gtid_executed, @@global.gtid_purged)") != "1", "a replica still reads one")
	})
}

// expectEqualRows writes five rows and checks that every instance receives them.
func (e *environment) expectEqualRows(t *testing.T) {
	t.Helper()
	p := e.getCluster(t).Status.CurrentPrimaryIndex
	for range 5 {
		e.mustRun(t, p, "app", "insert into app.t (v) values ('more')")
	}
	e.waitForEqualAnswers(t, p, "select @@gtid_executed")
	e.waitForEqualAnswers(t, p, "select count(*) from app.t")
}

// waitForEqualAnswers waits until every instance returns the same result as the primary. The primary's result may
// change during the wait, because the manager renews its accounts.
func (e *environment) waitForEqualAnswers(t *testing.T, primary int, query string) {
	t.Helper()
	testenv.Eventually(t, query+" is the same everywhere", func() error {
		want := e.query(t, primary, query)
		for i := range e.servers {
			if found, err := e.tryQuery(t, i, query); err != nil || found != want {
				return fmt.Errorf("instance %d: expected %q, found %q (%w)", i, want, found, err)
			}
		}
		return nil
	})
}

// TestStartChecksThePresentState requests a start immediately after each mistake, and immediately after each fix. A
// result based on an earlier observation would be wrong.
func TestStartChecksThePresentState(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	expectStart := func(want exit.Code, says string) {
		t.Helper()
		ran := e.runPlugin(t, "start", "clustering", clusterName, "--wait")
		if ran.code != want || !strings.Contains(ran.err, says) {
			t.Fatalf("expected a start with exit code %d and the output %q, found %+v", want, says, ran)
		}
	}
	e.stopByPlugin(t)
	for range 2 {
		t.Log("A number ahead of the primary: the replica would skip the primary's row.")
		ahead := e.advance(t)
		expectStart(exit.Refused, ahead)
		e.align(t, 2)
	}
	t.Log("An errant transaction.")
	e.mustRun(t, 1, "root", "set global super_read_only = 0", "create database astray", "set global super_read_only = 1")
	expectStart(exit.Refused, "which the primary lacks")
	e.align(t, 1)
	t.Log("Binary logs that the primary has purged and a replica needs.")
	e.mustRun(t, 1, "root", "stop replica io_thread")
	e.mustRun(t, 0, "app", "insert into app.t (v) values ('gone')")
	e.deleteBinaryLogs(t, 0)
	expectStart(exit.Refused, "which the primary has purged")
	e.servers[1].WipeData(t)
	e.servers[1].StartAndWait(t)
	expectStart(exit.Done, "instance 1 is empty; a start makes it a copy")
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.waitForAnswer(t, "select count(*) from information_schema.schemata where schema_name = 'app'", "1")
	e.expectEqualRows(t)
}

// TestStopWithdrawnWithoutThePluginIsChecked withdraws a stop without the plugin, in a state in which a start would
// silently lose a row.
func TestStopWithdrawnWithoutThePluginIsChecked(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	for name, takeBack := range map[string]func(){
		"the stop's annotation is removed": func() {
			e.stopByPlugin(t)
			e.advance(t)
			e.startClustering(t)
		},
		"the stop's end time passes": func() {
			e.stopByPlugin(t, "--until", "1h")
			e.advance(t)
			e.annotate(t, map[string]string{mocov1beta2.ClusteringUntilAnnotation: e.clock.Now().Add(2 * time.Second).UTC().Format(time.RFC3339)})
		},
	} {
		t.Log(name)
		takeBack()
		cluster := e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, startRefused)
		if p := cluster.Status.Pause; p == nil || p.Clustering == nil || cluster.Status.Conditions == nil {
			t.Errorf("expected the record of the stop to stay, found %+v", p)
		}
		if overdue := e.metricValue(t, "torpor_mysql_stop_overdue_seconds"); name == "the end time has passed" && overdue == 0 {
			t.Error("expected the metric of a stop that is overdue, found 0")
		}
		e.mustRun(t, 1, "root", "stop replica")
		e.waitForLooks(t)
		e.waitForIOThread(t, 1, "OFF") // Clustering stays stopped.
		e.align(t, 2)
		e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
		e.expectEqualRows(t)
	}
	t.Log("A forced start succeeds, once.")
	e.stopByPlugin(t)
	e.advance(t)
	e.startClustering(t)
	e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, startRefused)
	if ran := e.runPlugin(t, "start", "clustering", clusterName, "--force", "--wait"); ran.code != exit.Done {
		t.Errorf("expected a forced start, found %+v", ran)
	}
	testenv.Eventually(t, "no annotation is left that would force the next start", func() error {
		left := e.getCluster(t).Annotations
		_, isThere := left["torpor.dev/force-start"]
		return testenv.ErrorIf(isThere, "found %v", left)
	})
}

// TestStaleUntilDoesNotEndALaterStop requests a second stop with tools that do not support torpor.dev/until, such as
// upstream's plugin and kubectl.
func TestStaleUntilDoesNotEndALaterStop(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	const until = "torpor.dev/until"
	t.Log("An end time in the past is present when the stop is requested.")
	past := e.clock.Now().Add(-time.Minute).UTC().Format(time.RFC3339)
	e.annotate(t, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true", until: past})
	cluster := e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	e.waitForLooks(t)
	if now := e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive"); !now.ClusteringStopped() {
		t.Errorf("expected the stop to stand, found %v", now.Annotations)
	}
	if active := cluster.Status.Conditions; !strings.Contains(fmt.Sprint(active), past) {
		t.Errorf("expected the status to report that %s is ignored, found %+v", past, active)
	}
	t.Log("A tool starts clustering and leaves the end time: it is removed before the next stop.")
	e.annotate(t, map[string]string{until: e.clock.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
	e.startClustering(t)
	testenv.Eventually(t, "the end time is removed", func() error {
		left := e.getCluster(t).Annotations
		return testenv.ErrorIf(left[until] != "", "found %v", left)
	})
	e.stopClustering(t)
	cluster = e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	if p := cluster.Status.Pause; p.Clustering.Until != nil {
		t.Errorf("expected a stop without end, found %+v", p.Clustering)
	}
}
