// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	"github.com/torpor-dev/torpor/internal/mysql/clustering"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
	"github.com/torpor-dev/torpor/test/env/mysqlpods"
)

// startStatement runs a statement that will wait, in a session of an account, and returns a channel for its result.
func (e *environment) startStatement(t *testing.T, i int, user, password, statement string) <-chan error {
	t.Helper()
	db := e.openSessionWith(t, i, user, password)
	testenv.ExpectNoError(t, db.PingContext(t.Context()))
	ended := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(context.WithoutCancel(t.Context()), statement)
		ended <- err
	}()
	return ended
}

const countWaitingSessions = "select variable_value from performance_schema.global_status where variable_name = 'Rpl_semi_sync_source_wait_sessions'"

func (e *environment) waitForWaitingSessions(t *testing.T, i int) {
	t.Helper()
	testenv.Eventually(t, "a session waits for replicas", func() error {
		got := e.query(t, i, countWaitingSessions)
		return testenv.ErrorIf(got == "0", "found %s", got)
	})
}

// TestGrantDuringDoubleRestart lets an administrator create a user while both replicas restart. The statement blocks
// every login, including the logins of the replicas for which the statement waits.
func TestGrantDuringDoubleRestart(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	e.mustRun(t, 0, "app", "create table app.acked (id bigint primary key)")
	client := e.startWriter(t)
	testenv.Eventually(t, "rows are acknowledged", func() error { return testenv.ErrorIf(client.count() == 0, "none yet") })
	for i := 1; i < instances; i++ {
		e.servers[i].KillAtOnce(t)
	}
	granted := e.startStatement(t, 0, "moco-admin", mysqld.AdminPassword, "create user 'late'@'%' identified by 'x'")
	began := time.Now()
	for i := 1; i < instances; i++ {
		e.servers[i].StartAndWait(t)
	}
	before := client.count()
	testenv.Eventually(t, "rows are acknowledged again", func() error { return testenv.ErrorIf(client.count() <= before, "none yet") })
	t.Logf("no commit got through for %s", time.Since(began).Round(time.Millisecond))
	testenv.Eventually(t, "the statement has ended", func() error {
		select {
		case err := <-granted:
			return testenv.ErrorIf(err == nil, "it was told that its user is safe")
		default:
			return errors.New("not yet")
		}
	})
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	client.check(t, e)
	e.expectEqualRows(t)
}

// TestLoginsHang replaces the manager while a GRANT waits for replicas, so neither the manager nor a replica can log in
// to the primary.
func TestLoginsHang(t *testing.T) {
	t.Parallel()
	for name, triesTo := range map[string]bool{"the replicas have tried to log in": true, "replication of the replicas is stopped": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newHealthyEnvironment(t)
			e.annotate(t, map[string]string{mocov1beta2.RecloneAnnotation: mocov1beta2.RecloneErrant})
			e.mustRun(t, 0, "app", "create table app.acked (id bigint primary key)")
			e.waitForAnswer(t, "select count(*) from app.acked", "0")
			e.stopManager()
			for i := 1; i < instances; i++ {
				e.servers[i].KillAtOnce(t)
			}
			here := e.openSession(t, 0, "root")
			testenv.ExpectNoError(t, here.PingContext(t.Context()))
			granted := e.startStatement(t, 0, "moco-admin", mysqld.AdminPassword, "create user 'late'@'%' identified by 'x'")
			testenv.Eventually(t, "the GRANT waits", func() error {
				var waiting string
				err := here.QueryRowContext(t.Context(), countWaitingSessions).Scan(&waiting)
				return errors.Join(err, testenv.ErrorIf(waiting == "0", "not yet"))
			})
			for i := 1; i < instances; i++ {
				e.servers[i].StartAndWait(t)
				if triesTo {
					e.mustRun(t, i, "root", "set global rpl_semi_sync_replica_enabled = on", "start replica")
				}
			}
			began := time.Now()
			e.startManager(t)
			client := e.startWriter(t)
			testenv.Eventually(t, "rows are acknowledged", func() error { return testenv.ErrorIf(client.count() == 0, "none yet") })
			t.Logf("no commit got through for %s", time.Since(began).Round(time.Millisecond))
			e.servers[0].KillAtOnce(t) // The kubelet, whose probe cannot log in either, does the same.
			if err := <-granted; err == nil {
				t.Error("the GRANT succeeded although no replica has its user")
			}
			e.servers[0].StartAndWait(t)
			e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
			client.check(t, e)
			e.expectEqualRows(t)
		})
	}
}

// TestSessionsOfUnacknowledgedCommitsAreEnded covers a former primary in which commits of an administrator and of a
// client wait.
func TestSessionsOfUnacknowledgedCommitsAreEnded(t *testing.T) {
	t.Parallel()
	e := newEnvironmentWithServers(t)
	e.createCluster(t, nil)
	stop := e.startManager(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.mustRun(t, 0, "app", "create database app", "create table app.t (id int auto_increment primary key, v varchar(20))")
	e.waitForAnswer(t, "select count(*) from information_schema.tables where table_schema = 'app'", "1")
	stop()
	for i := 1; i < instances; i++ {
		e.mustRun(t, i, "root", "stop replica io_thread")
	}
	waiting := map[string]<-chan error{
		"administrator": e.startStatement(t, 0, "moco-admin", mysqld.AdminPassword, "insert into app.t (v) values ('admin')"),
		"client":        e.startStatement(t, 0, "app", "app", "insert into app.t (v) values ('app')"),
	}
	e.waitForWaitingSessions(t, 0)
	cluster := e.getCluster(t)
	before := cluster.DeepCopy()
	cluster.Status.CurrentPrimaryIndex = 1
	cluster.Status.Instances[0].Role, cluster.Status.Instances[1].Role = mocov1beta2.RoleReplica, mocov1beta2.RolePrimary
	testenv.ExpectNoError(t, e.Client.Status().Patch(t.Context(), cluster, client.MergeFrom(before)))
	e.startManager(t)
	for who, ended := range waiting {
		testenv.Eventually(t, "the session of the "+who+" has ended", func() error {
			select {
			case err := <-ended:
				if err == nil {
					t.Errorf("the commit of the %s succeeded although no other instance has the row", who)
				}
				return nil
			default:
				return errors.New("not yet")
			}
		})
	}
}

// TestFullVolumeIsNotHealthy fills the volumes of all replicas, and then the primary's volume, while a client writes.
func TestFullVolumeIsNotHealthy(t *testing.T) {
	t.Parallel()
	for name, full := range map[string][]int{"the replicas'": {1, 2}, "the primary's": {0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newHealthyEnvironment(t, func(o *mysqlpods.ClusterOptions) { o.VolumeMegabytes = 300 })
			e.mustRun(t, 0, "app", "create table app.acked (id bigint primary key, v longtext)", "insert into app.acked (id, v) values (1, '')")
			e.waitForLooks(t)
			for _, i := range full {
				e.servers[i].FillVolume(t)
			}
			began := time.Now()
			// Each row is small enough not to go to a temporary file first. Together the rows need another page.
			var written []<-chan error
			for id := range 4 {
				written = append(written, e.startStatement(t, 0, "app", "app", fmt.Sprintf("insert into app.acked values (%d, repeat('x', 3000))", id+2)))
			}
			testenv.Eventually(t, "the cluster is not available", func() error {
				c := meta.FindStatusCondition(e.getCluster(t).Status.Conditions, mocov1beta2.AvailableCondition)
				return testenv.ErrorIf(c.Status != "False" || !strings.Contains(c.Message, "completes no commit"), "found %s: %s", c.Status, c.Message)
			})
			t.Logf("reported as available for %s", time.Since(began).Round(time.Millisecond))
			for _, i := range full {
				e.servers[i].FreeVolume(t)
			}
			e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
			for _, ended := range written {
				testenv.ExpectNoError(t, <-ended)
			}
			e.waitForAnswer(t, "select count(*) from app.acked", "5")
		})
	}
}

// TestBusyFailoversHealWithoutHelp kills the primary twice while a commit that no replica has waits in it. During crash
// recovery, the server keeps these unacknowledged transactions. The cluster recovers without help from a user.
func TestBusyFailoversHealWithoutHelp(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t, func(o *mysqlpods.ClusterOptions) { o.IsLinked = true })
	e.annotate(t, map[string]string{mocov1beta2.RecloneAnnotation: mocov1beta2.RecloneErrant})
	e.mustRun(t, 0, "app", "create table app.acked (id bigint primary key)")
	client := e.startWriter(t)
	for range 2 {
		e.failOverWithTail(t, client)
		e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	}
	client.check(t, e)
	e.expectEqualRows(t)
	named := 0
	for _, i := range e.getCluster(t).Status.Instances {
		if i.DiscardedGTIDs != "" {
			named++
		}
	}
	if named != 2 || !strings.Contains(e.log.String(), clustering.EventRecloned) {
		t.Errorf("expected two instances with recorded discarded transactions, found %d", named)
	}
}

// failOverWithTail kills the primary while it holds a commit that no replica has, and restarts its server.
func (e *environment) failOverWithTail(t *testing.T, client *rowWriter) {
	t.Helper()
	before := client.count()
	testenv.Eventually(t, "rows are acknowledged", func() error { return testenv.ErrorIf(client.count() <= before, "none yet") })
	failed := e.getCluster(t).Status.CurrentPrimaryIndex
	e.eachBut(failed, func(i int) { e.pods.Network.CutOff(i, mysqlpods.ResetConnections) })
	// The client's commit may have reached a replica before the connection was cut. The next commit is in the binary
	// log of this instance only.
	e.waitForWaitingSessions(t, failed)
	answered := e.startStatement(t, failed, "app", "app", "insert into app.t (v) values ('unacknowledged')")
	testenv.Eventually(t, "the statement is in the binary log", func() error {
		select {
		case err := <-answered:
			t.Fatalf("expected a statement that waits for replicas which are cut off, found it answered: %v", err)
		default:
		}
		return testenv.ErrorIf(!e.servers[failed].HasLoggedRow(t, "unacknowledged"), "not yet")
	})
	e.servers[failed].KillAtOnce(t)
	e.pods.Network.CloseLink(failed)
	e.eachBut(failed, e.pods.Network.HealCut)
	testenv.Eventually(t, "another instance is the primary", e.expectAnotherPrimary(t, failed))
	if found := e.query(t, e.getCluster(t).Status.CurrentPrimaryIndex, "select count(*) from app.t where v = 'unacknowledged'"); found != "0" {
		t.Fatalf("expected no commit to pass the cut, found the one of instance %d at the new primary", failed)
	}
	e.servers[failed].StartAndWait(t)
	testenv.ExpectNoError(t, e.pods.Network.OpenLink(t.Context(), failed))
	testenv.Eventually(t, "the old primary is reported as errant, or is healed", func() error {
		status := e.getCluster(t).Status
		return testenv.ErrorIf(status.ErrantReplicas == 0 && status.Instances[failed].DiscardedGTIDs == "", "not yet")
	})
}

func (e *environment) eachBut(but int, do func(int)) {
	for i := range e.servers {
		if i != but {
			do(i)
		}
	}
}

// TestRecloneOfOneInstance requests a re-clone in the same way as the plugin.
func TestRecloneOfOneInstance(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	e.mustRun(t, 2, "root", "set global super_read_only = 0", "set sql_log_bin = 0", "delete from app.t", "set global super_read_only = 1")
	if ran := e.runPlugin(t, "reclone", clusterName, "--index", "2"); ran.code != exit.Done {
		t.Fatalf("expected the request to be taken, found %+v", ran)
	}
	testenv.Eventually(t, "the instance has the primary's rows again", func() error {
		got, err := e.tryQuery(t, 2, "select count(*) from app.t")
		return errors.Join(err, testenv.ErrorIf(got != "1", "found %s", got))
	})
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.expectEqualRows(t)
}

// TestCutBetweenManagerAndPrimary cuts off only the manager from the primary. Clients and replicas can still reach the
// primary.
func TestCutBetweenManagerAndPrimary(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]mysqlpods.CutMode{"packets are dropped": mysqlpods.DropPackets, "connections are reset": mysqlpods.ResetConnections} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newHealthyEnvironment(t, func(o *mysqlpods.ClusterOptions) { o.IsLinked = true })
			e.mustRun(t, 0, "app", "create table app.acked (id bigint primary key)")
			client := e.startWriter(t)
			testenv.Eventually(t, "rows are acknowledged", func() error { return testenv.ErrorIf(client.count() == 0, "none yet") })
			e.pods.Network.CutOffFromManager(0, how)
			e.waitForCondition(t, mocov1beta2.AvailableCondition, "Unknown PrimaryUnanswered")
			const looks = 20 // After the first few passes, the interval is one second.
			began, checks, rows := time.Now(), e.metricValue(t, "moco_cluster_checks_total"), client.count()
			testenv.Eventually(t, "the manager has run many passes", func() error {
				return testenv.ErrorIf(e.metricValue(t, "moco_cluster_checks_total") < checks+looks, "not yet")
			})
			t.Logf("%d rows in %s without the manager", client.count()-rows, time.Since(began).Round(time.Millisecond))
			if primary := e.getCluster(t).Status.CurrentPrimaryIndex; primary != 0 || client.count() == rows {
				t.Errorf("expected instance 0 to stay the primary, found the primary %d and %d rows", primary, client.count()-rows)
			}
			e.pods.Network.HealCut(0)
			e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
			client.check(t, e)
			if n := e.metricValue(t, "moco_cluster_failover_total"); n > 0 {
				t.Errorf("expected no failover, found %v", n)
			}
		})
	}
}
