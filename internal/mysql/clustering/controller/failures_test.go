// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
	"github.com/torpor-dev/torpor/test/env/mysqlpods"
)

func TestEmptyReplicasAreCloned(t *testing.T) {
	t.Parallel()
	e := newEnvironmentWithServers(t)
	e.mustRun(t, 0, "root", "set global read_only = 0", "create database app", "create table app.t (id int primary key)",
		"insert into app.t values (1), (2)", "set global super_read_only = 1")
	e.createCluster(t, nil)
	e.startManager(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.waitForAnswer(t, "select count(*) from app.t", "2")
	for i := 1; i < instances; i++ {
		if got := e.query(t, i, "select concat(@@super_read_only, (select state from performance_schema.clone_status))"); got != "1Completed" {
			t.Errorf("instance %d: expected a clone that is read-only, found %s", i, got)
		}
	}
	// The metrics have the names that MOCO's agent uses. The values belong to the last series, which is a replica's.
	testenv.Eventually(t, "the metrics of instances report the clones", func() error {
		found := e.gatherMetrics(t)
		for name, want := range map[string]float64{
			"moco_instance_clone_count": 1, "moco_instance_clone_failure_count": 0, "moco_instance_clone_in_progress": 0, "moco_instance_replication_delay_seconds": 0,
		} {
			if got, isThere := found[name]; !isThere || got != want {
				return fmt.Errorf("%s: expected %v, found %v (%t)", name, want, got, isThere)
			}
		}
		_, isTimed := found["moco_instance_clone_duration_seconds"]
		return testenv.ErrorIf(!isTimed, "found no duration")
	})
}

func TestPrimaryKilled(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	e.servers[0].KillAtOnce(t)
	killed := clock.RealClock{}.Now()
	heir, value := e.waitForAcknowledgedWrite(t)
	t.Logf("acknowledged %s after the kill", clock.RealClock{}.Since(killed))
	cluster := e.waitForCondition(t, mocov1beta2.AvailableCondition, "True Degraded")
	if cluster.Status.CurrentPrimaryIndex != heir {
		t.Errorf("expected the primary %d, found %d", heir, cluster.Status.CurrentPrimaryIndex)
	}
	e.servers[0].StartAndWait(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.waitForAnswer(t, "select group_concat(v order by id) from app.t", "first,"+value)
	if got := e.metricValue(t, "moco_cluster_failover_total"); got != 1 {
		t.Errorf("expected one failover, found %v", got)
	}
}

func TestDemoteSwitchesOver(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	e.requestStepDown(t, 0)
	testenv.Eventually(t, "another instance is the primary", func() error {
		return testenv.ErrorIf(e.getCluster(t).Status.CurrentPrimaryIndex == 0, "not yet")
	})
	cluster := e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.mustRun(t, cluster.Status.CurrentPrimaryIndex, "app", "insert into app.t (v) values ('after')")
	e.waitForAnswer(t, "select group_concat(v order by id) from app.t", "first,after")
	if got := e.metricValue(t, "moco_cluster_switchover_total"); got != 1 {
		t.Errorf("expected one switchover, found %v", got)
	}
}

// TestErrantReplicaIsIsolated checks that errant transactions do not reach any other instance.
func TestErrantReplicaIsIsolated(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	e.mustRun(t, 2, "root", "set global super_read_only = 0", "create database astray", "set global super_read_only = 1")
	e.triggerPass(t)
	cluster := e.waitForCondition(t, mocov1beta2.AvailableCondition, "True Degraded")
	if !slices.Equal(cluster.Status.ErrantReplicaList, []int{2}) || cluster.Status.ErrantReplicas != 1 || cluster.Status.Instances[2].ErrantGTIDs == "" {
		t.Errorf("expected instance 2 to be errant, found %+v", cluster.Status)
	}
	e.waitForAnswerBut(t, 2, "select count(*) from information_schema.schemata where schema_name = 'astray'", "0")
}

func (e *environment) requestStepDown(t *testing.T, i int) {
	t.Helper()
	e.annotatePod(t, i, mocov1beta2.DemoteAnnotation)
}

func (e *environment) annotatePod(t *testing.T, i int, annotation string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: e.name.Namespace, Name: fmt.Sprintf("moco-%s-%d", clusterName, i)}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+annotation+`":"true"}}}`))
	testenv.ExpectNoError(t, e.Client.Patch(t.Context(), pod, patch))
}

func TestStopEndsByItself(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	end := e.clock.Now().Add(time.Hour).UTC().Truncate(time.Second)
	e.createCluster(t, map[string]string{
		mocov1beta2.ClusteringStoppedAnnotation: "true", torporv1alpha1.UntilAnnotation: end.Format(time.RFC3339), torporv1alpha1.ReasonAnnotation: "a while",
	})
	stop := e.startManager(t)
	cluster := e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	if p := cluster.Status.Pause; p == nil || p.Clustering == nil || p.Clustering.Until == nil || !p.Clustering.Until.Time.Equal(end) {
		t.Errorf("expected the end %s, found %+v", end, p)
	}
	stop() // The stop ends on time although the manager was not running for an hour less two seconds.
	e.clock.ahead = end.Sub(clock.RealClock{}.Now()) - 2*time.Second
	e.startManager(t)
	cluster = e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "True ClusteringActive")
	if len(cluster.Annotations) != 0 || cluster.Status.Pause != nil {
		t.Errorf("expected no trace of the stop, found %v, %+v", cluster.Annotations, cluster.Status.Pause)
	}
	if early := end.Sub(e.clock.Now()); early > 0 {
		t.Errorf("the stop ended %s too early", early)
	}
	testenv.Eventually(t, "the end of the stop is an event", func() error { // Events are emitted after the status is saved.
		return testenv.ErrorIf(!strings.Contains(e.log.String(), stoprecord.EventStopEnded), "expected an event %s", stoprecord.EventStopEnded)
	})
}

// maxStatementsPerSecond is the maximum number of statements per second for an idle, healthy cluster of three.
const maxStatementsPerSecond = 0.35

func TestIdleClusterCostsLittle(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it watches for a minute")
	}
	e := newHealthyEnvironment(t)
	const looks = 6 // These passes take a minute, and accounts are read once per minute.
	e.waitUntilSettled(t)
	waitForPasses := func(n float64) {
		t.Helper()
		before := e.metricValue(t, "moco_cluster_checks_total")
		testenv.Eventually(t, "some passes have run", func() error {
			ran := e.metricValue(t, "moco_cluster_checks_total") - before
			return testenv.ErrorIf(ran < n, "%v", ran)
		})
	}
	waitForPasses(1) // The time between passes counts too.
	start := e.countStatements(t)
	checks, began := e.metricValue(t, "moco_cluster_checks_total"), clock.RealClock{}.Now()
	waitForPasses(looks)
	asked, took := e.countStatements(t)-start, clock.RealClock{}.Since(began)
	rate := float64(asked) / took.Seconds()
	t.Logf("%d statements in %s for %v passes: %.2f statements per second", asked, took, e.metricValue(t, "moco_cluster_checks_total")-checks, rate)
	if rate > maxStatementsPerSecond {
		t.Errorf("expected at most %v statements per second, found %.2f", maxStatementsPerSecond, rate)
	}
}

// TestBusyClusterWritesItsStatusSeldom writes rows before every pass, and counts the passes that change the status.
func TestBusyClusterWritesItsStatusSeldom(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	const looks, most = 10, 2 // One status write is for the first rows, and one for a minute that ends during the test.
	e.waitUntilSettled(t)
	began, writes := e.clock.Now(), 0
	last := e.getCluster(t).Status.Instances
	for range looks {
		e.mustRun(t, 0, "app", "insert into app.t (v) values ('more')")
		checks := e.metricValue(t, "moco_cluster_checks_total")
		e.triggerPass(t)
		testenv.Eventually(t, "a pass has run", func() error {
			return testenv.ErrorIf(e.metricValue(t, "moco_cluster_checks_total") <= checks, "not yet")
		})
		if now := e.getCluster(t).Status.Instances; !reflect.DeepEqual(now, last) {
			writes, last = writes+1, now
		}
	}
	took := e.clock.Since(began)
	t.Logf("%d writes of the status for %d passes in %s", writes, looks, took)
	if limit := most + int(took/progressInterval); writes > limit {
		t.Errorf("expected at most %d writes of the status, found %d", limit, writes)
	}
	e.annotate(t, map[string]string{mocov1beta2.StoppedInstancesAnnotation: "[1]"})
	testenv.Eventually(t, "another change is written at once", func() error {
		return testenv.ErrorIf(!e.getCluster(t).Status.Instances[1].Stopped, "not yet")
	})
}

// waitUntilSettled returns when the manager has no work left, so only its regular passes follow.
func (e *environment) waitUntilSettled(t *testing.T) {
	t.Helper()
	const quiet = 3 * time.Second // A manager with work left starts a pass every second.
	checks, since := -1.0, time.Now()
	testenv.Eventually(t, "the manager has nothing left to do", func() error {
		if now := e.metricValue(t, "moco_cluster_checks_total"); now != checks {
			checks, since = now, time.Now()
		}
		return testenv.ErrorIf(time.Since(since) < quiet, "the last of %v passes was a moment ago", checks)
	})
}

// countStatements returns the number of statements that the servers have received from the manager.
func (e *environment) countStatements(t *testing.T) int {
	t.Helper()
	sum := 0
	for i := range e.servers {
		n, err := strconv.Atoi(e.query(t, i, "select variable_value from performance_schema.status_by_user where user = 'moco-admin' and variable_name = 'Questions'"))
		testenv.ExpectNoError(t, err)
		sum += n
	}
	return sum
}

func (e *environment) triggerPass(t *testing.T) {
	t.Helper()
	e.annotate(t, map[string]string{"example.com/touched": e.clock.Now().Format(time.RFC3339Nano)})
}

// metricValue returns the value of a metric with one series; -1 if the metric has no series.
func (e *environment) metricValue(t *testing.T, name string) float64 {
	t.Helper()
	if v, ok := e.gatherMetrics(t)[name]; ok {
		return v
	}
	return -1
}

func (e *environment) gatherMetrics(t *testing.T) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(e.metrics)
	families, err := registry.Gather()
	testenv.ExpectNoError(t, err)
	found := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			found[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return found
}

// TestBothReplicasLost lets both replicas come back empty while clients of the primary wait for acknowledgements. A
// clone would wait for these commits, and the commits for the clone. Therefore the manager kills the client sessions.
func TestBothReplicasLost(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	e.mustRun(t, 0, "app", "create table app.acked (id bigint primary key)")
	client := e.startWriter(t)
	for i := 1; i < instances; i++ {
		e.servers[i].WipeData(t)
		e.servers[i].StartAndWait(t)
	}
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	client.check(t, e)
	e.expectOneWritable(t)
}

// TestStopWhilePrimaryAwaitsCopies requests a stop while instances are added, after the only instance with data was
// killed. The stop makes that instance writable, although commits of its clients wait for the new instances.
func TestStopWhilePrimaryAwaitsCopies(t *testing.T) {
	t.Parallel()
	e := newEnvironmentWithServers(t)
	e.mustRun(t, 0, "root", "set global read_only = 0", "create database app", "create table app.acked (id bigint primary key)", "create table app.t (id int auto_increment primary key, v varchar(20))")
	e.ExpectCreated(t, testenv.BuildMySQLCluster(t, e.name, 1))
	e.startManager(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	client := e.startWriter(t)
	e.servers[0].KillAtOnce(t)
	e.patchReplicas(t, instances)
	e.servers[0].StartAndWait(t)
	e.annotate(t, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true"}) // A stop does not wait for a server that is down.
	e.waitForWaitingSessions(t, 0)
	e.startClustering(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	client.check(t, e)
	e.expectEqualRows(t)
}

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

// TestWeakenedSettingsAndAccountsAreRestored changes settings and accounts of running servers on which acknowledgements
// and the administrator depend. It does not trigger a pass, so the regular pass has to find the change.
func TestWeakenedSettingsAndAccountsAreRestored(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	e.mustRun(t, 0, "root", "set global sync_binlog = 0", "set global rpl_semi_sync_source_wait_no_replica = off", "set global rpl_semi_sync_source_wait_point = 'AFTER_COMMIT'")
	e.mustRun(t, 1, "root", "set global innodb_flush_log_at_trx_commit = 2")
	e.waitForAnswer(t, "select concat(@@sync_binlog, @@innodb_flush_log_at_trx_commit, @@rpl_semi_sync_source_wait_no_replica, @@rpl_semi_sync_source_wait_point)", "111AFTER_SYNC")
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	// These accounts match those of an older Torpor: one is missing, and the application account may write to the
	// server's own tables.
	e.mustRun(t, 0, "root", "drop user 'moco-exporter'@'%'", "grant insert on *.* to 'moco-writable'@'%'", "alter user 'moco-admin'@'%' attribute '{\"torporAccounts\": null}'")
	e.waitForAnswer(t, "select count(*) from mysql.user where user = 'moco-exporter'", "1")
	e.waitForAnswer(t, "select count(*) from mysql.user where user = 'moco-writable' and json_search(user_attributes->'$.Restrictions', 'one', 'INSERT') is not null", "1")
	e.expectEqualRows(t)
}

// TestReplicaWithOldDataHasNoReaders breaks the replication of one instance, checks that the Service for readers no
// longer selects the instance, and repairs it.
func TestReplicaWithOldDataHasNoReaders(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	const victim = 2
	e.waitForRole(t, victim, "replica")
	e.waitForLooks(t) // The next regular pass starts after ten seconds.
	e.mustRun(t, victim, "root", "set global super_read_only = 0", "set sql_log_bin = 0", "insert into app.t values (7, 'twice')", "set global super_read_only = 1")
	e.mustRun(t, 0, "app", "insert into app.t values (7, 'twice')")
	t.Logf("readers are led to old data for %s", e.waitForRole(t, victim, "").Round(time.Millisecond))
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "False Degraded")
	e.mustRun(t, victim, "root", "set global super_read_only = 0", "set sql_log_bin = 0", "delete from app.t where id = 7", "set global super_read_only = 1", "start replica")
	e.waitForRole(t, victim, "replica")
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.expectEqualRows(t)
}

// TestReplicasThatDoNotFollowHaveNoReaders stops the replication of one instance in every known way, and repairs it. It
// logs how long the Service for readers still selects the instance, and how long the instance is excluded.
func TestReplicasThatDoNotFollowHaveNoReaders(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	const victim, maxDelay = 2, 5
	cluster := e.getCluster(t)
	before := cluster.DeepCopy()
	cluster.Spec.MaxDelaySeconds = new(maxDelay)
	testenv.ExpectNoError(t, e.Client.Patch(t.Context(), cluster, client.MergeFrom(before)))
	alone := func(statement string) []string {
		return []string{"set global super_read_only = 0", "set sql_log_bin = 0", statement, "set global super_read_only = 1"}
	}
	change := func(option string) {
		e.mustRun(t, victim, "root", "stop replica io_thread", "change replication source to "+option, "start replica io_thread")
	}
	for _, way := range []struct {
		name  string
		spoil func() (mend func())
	}{
		{"the SQL thread fails", func() func() {
			e.mustRun(t, victim, "root", alone("insert into app.t values (700, 'twice')")...)
			e.mustRun(t, 0, "app", "insert into app.t values (700, 'twice')")
			return func() {
				e.mustRun(t, victim, "root", append(alone("delete from app.t where id = 700"), "start replica sql_thread")...)
			}
		}},
		{"the password is wrong", func() func() {
			change("source_password = 'wrong'")
			return func() { change("source_password = '" + mysqld.ReplicationPassword + "'") }
		}},
		{"the source is unreachable", func() func() {
			change("source_bind = '192.0.2.1'") // No interface has this address.
			return func() { change("source_bind = ''") }
		}},
		{"a lock blocks the SQL thread", func() func() {
			unlock := e.blockApplying(t, victim)
			e.mustRun(t, 0, "app", "insert into app.t (v) values ('blocked')")
			return unlock
		}},
	} {
		e.waitForRole(t, victim, "replica")
		e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
		e.waitForLooks(t) // The next regular pass starts ten seconds after the last one.
		mend := way.spoil()
		gone := e.waitForRole(t, victim, "")
		mend()
		back := e.waitForRole(t, victim, "replica")
		t.Logf("%s: readers are led to old data for %s, and do without the instance for %s", way.name, gone.Round(time.Millisecond), back.Round(time.Millisecond))
	}
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.expectEqualRows(t)
}

// TestManuallyStoppedThreadsAreStarted stops each thread of a replica. In each replica, a waiting statement reports a
// stopped SQL thread to the manager immediately. A stop of clustering cancels that statement.
func TestManuallyStoppedThreadsAreStarted(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	const victim = 2
	expectWatches := func(want string) {
		t.Helper()
		testenv.Eventually(t, "the instances are watched as wanted", func() error {
			var found strings.Builder
			for i := range instances {
				found.WriteString(e.query(t, i, "select count(*) from performance_schema.processlist where info like 'select source_pos_wait(%'"))
			}
			return testenv.ErrorIf(found.String() != want, "expected %s, found %s", want, found.String())
		})
	}
	for thread, table := range map[string]string{"sql_thread": "replication_applier_status", "io_thread": "replication_connection_status"} {
		expectWatches("011")
		e.waitForLooks(t) // The next regular pass starts ten seconds after the last one.
		began := e.clock.Now()
		e.mustRun(t, victim, "root", "stop replica "+thread)
		e.waitForAnswerBut(t, 0, "select service_state from performance_schema."+table, "ON")
		t.Logf("the %s is started after %s", thread, e.clock.Since(began).Round(time.Millisecond))
	}
	e.requestStepDown(t, 0)
	testenv.Eventually(t, "another instance is the primary", func() error {
		return testenv.ErrorIf(e.getCluster(t).Status.CurrentPrimaryIndex == 0, "not yet")
	})
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	expectWatches(map[int]string{1: "101", victim: "110"}[e.getCluster(t).Status.CurrentPrimaryIndex])
	e.stopByPlugin(t)
	expectWatches("000")
	e.startClustering(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.expectEqualRows(t)
}

// TestChannelToAnotherPortIsCorrected makes a replica connect to another server on the primary's host.
func TestChannelToAnotherPortIsCorrected(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	const victim = 2
	e.mustRun(t, victim, "root", "stop replica io_thread", "change replication source to source_port = 1", "start replica io_thread")
	e.waitForAnswerBut(t, 0, "select port from performance_schema.replication_connection_configuration", strconv.Itoa(mysqld.Port))
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.expectEqualRows(t)
}

// waitForRole waits until an instance has a role, or no role if want is empty, and returns the duration of the wait.
func (e *environment) waitForRole(t *testing.T, i int, want string) time.Duration {
	t.Helper()
	began := time.Now()
	testenv.Eventually(t, "the role of the instance is "+want, func() error {
		return e.expectRole(t, i, want)
	})
	return time.Since(began)
}

// TestReplicaThatLacksDeletedTransactions restarts a replica after the primary has purged transactions that the replica
// lacks. Readers are not directed to the replica, and the advice in the status resolves the problem.
func TestReplicaThatLacksDeletedTransactions(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	const victim = 1
	e.waitForRole(t, victim, "replica")
	e.servers[victim].KillAtOnce(t)
	e.mustRun(t, 0, "app", "insert into app.t (v) values ('missed')")
	e.deleteBinaryLogs(t, 0)
	e.servers[victim].StartAndWait(t)
	t.Logf("readers are led to old data for %s", e.waitForRole(t, victim, "").Round(time.Millisecond))
	testenv.Eventually(t, "the status lists the missing transactions and the next step", func() error {
		found := e.getCluster(t).Status.Instances[victim]
		return testenv.ErrorIf(found.MissingGTIDs == "" || !strings.Contains(found.Message, "kubectl moco reclone NAME --index 1"), "found %+v", found)
	})
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "False Degraded")
	if ran := e.runPlugin(t, "reclone", clusterName, "--index", "1"); ran.code != exit.Done {
		t.Fatalf("expected the request to be taken, found %+v", ran)
	}
	e.waitForRole(t, victim, "replica")
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.expectEqualRows(t)
}

// TestPodOfPrimaryStaysWhileReplicaLags requests deletions and evictions of Pods in dry runs, and one actual deletion.
func TestPodOfPrimaryStaysWhileReplicaLags(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	e.ExpectCreated(t, mysqlpods.BuildServiceAccount(e.name.Namespace))
	cluster := testenv.BuildMySQLCluster(t, e.name, instances)
	const primary, limit = 1, 10
	cluster.Spec.MaxDelaySecondsForPodDeletion = limit
	e.ExpectCreated(t, cluster)
	pods := make([]*corev1.Pod, instances)
	for i := range pods {
		pods[i] = mysqlpods.BuildPod(e.name, i)
		pods[i].Finalizers = []string{"example.com/held"}
		e.ExpectCreated(t, pods[i])
	}
	setLag := func(seconds int64) {
		cluster.Status.CurrentPrimaryIndex = primary
		cluster.Status.Instances = []mocov1beta2.InstanceStatus{{Ordinal: 0, LagSeconds: new(int64(0))}, {Ordinal: primary}, {Ordinal: 2, LagSeconds: &seconds}}
		testenv.ExpectNoError(t, e.Client.Status().Update(t.Context(), cluster))
	}
	deletePod := func(i int) error { return e.Client.Delete(t.Context(), pods[i], client.DryRunAll) }
	evictPod := func(i int) error {
		dry := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}}
		return e.Client.SubResource("eviction").Create(t.Context(), pods[i], dry)
	}
	for what, ask := range map[string]func(int) error{"deletion": deletePod, "eviction": evictPod} {
		setLag(limit + 1)
		testenv.Eventually(t, "the "+what+" of the primary's Pod is refused", func() error {
			err := ask(primary)
			return testenv.ErrorIf(!k8serrors.IsForbidden(err) || !strings.Contains(err.Error(), "to lag behind its primary by more than 10 s"), "found %v", err)
		})
		testenv.ExpectNoError(t, ask(0))
		setLag(limit)
		testenv.Eventually(t, "the "+what+" of the primary's Pod is allowed", func() error { return ask(primary) })
	}
	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), pods[primary]))
	setLag(limit + 1)
	testenv.Eventually(t, "the policy refuses because of the lag again", func() error { return testenv.ErrorIf(evictPod(primary) == nil, "it does not") })
	testenv.ExpectNoError(t, deletePod(primary)) // The kubelet eventually does the same.
	for _, pod := range pods {
		before := pod.DeepCopy()
		pod.Finalizers = nil
		testenv.ExpectNoError(t, e.Client.Patch(t.Context(), pod, client.MergeFrom(before)))
	}
}

// TestPodOfPrimaryIsProtectedWhileReplicaLags delays a replica in the same way as MOCO's test. The annotation is set,
// deletions are rejected, and a requested switchover waits until the replica has caught up.
func TestPodOfPrimaryIsProtectedWhileReplicaLags(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	const late = 2
	cluster := e.getCluster(t)
	before := cluster.DeepCopy()
	cluster.Spec.MaxDelaySecondsForPodDeletion = 2
	testenv.ExpectNoError(t, e.Client.Patch(t.Context(), cluster, client.MergeFrom(before)))
	annotationIs := func(i int, want string) {
		t.Helper()
		testenv.Eventually(t, fmt.Sprintf("the annotation of instance %d is %q", i, want), func() error {
			got := e.getPod(t, i).Annotations[mocov1beta2.PreventDeleteAnnotation]
			return testenv.ErrorIf(got != want, "found %q", got)
		})
	}
	delay := func(seconds int) {
		e.mustRun(t, late, "root", "stop replica sql_thread", fmt.Sprintf("change replication source to source_delay = %d", seconds), "start replica")
	}
	e.annotatePod(t, 1, mocov1beta2.PreventDeleteAnnotation)
	annotationIs(1, "") // A user cannot protect a Pod.
	delay(10000)
	e.mustRun(t, 0, "app", "insert into app.t (v) values ('late')")
	annotationIs(0, "true")
	annotationIs(late, "")
	testenv.Eventually(t, "the metric of the last instance exceeds the limit", func() error {
		delay := e.metricValue(t, "moco_instance_replication_delay_seconds") // The metric shows the status, which follows the annotation.
		return testenv.ErrorIf(delay < 2, "found %v", delay)
	})
	remove := func(i int) error { return e.Client.Delete(t.Context(), e.getPod(t, i), client.DryRunAll) }
	testenv.Eventually(t, "the deletion of the primary's Pod is refused", func() error {
		err := remove(0)
		want := e.getPod(t, 0).Name + " is protected from deletion"
		return testenv.ErrorIf(!k8serrors.IsForbidden(err) || !strings.Contains(err.Error(), want), "found %v", err)
	})
	testenv.ExpectNoError(t, remove(late))
	e.requestStepDown(t, 0)
	e.waitForMessage(t, mocov1beta2.HealthyCondition, "the switchover from instance 0 waits until no replica lags by more than 2s")
	testenv.ExpectEqual(t, "primary", 0, e.getCluster(t).Status.CurrentPrimaryIndex)
	delay(0)
	annotationIs(0, "")
	testenv.Eventually(t, "another instance is the primary", func() error {
		return testenv.ErrorIf(e.getCluster(t).Status.CurrentPrimaryIndex == 0, "not yet")
	})
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.expectEqualRows(t)
}

func (e *environment) getPod(t *testing.T, i int) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	name := types.NamespacedName{Namespace: e.name.Namespace, Name: fmt.Sprintf("moco-%s-%d", clusterName, i)}
	testenv.ExpectNoError(t, e.Client.Get(t.Context(), name, pod))
	return pod
}

// TestScaleUpStopsNoWrites adds two empty instances, twice, to a primary under constant writes.
func TestScaleUpStopsNoWrites(t *testing.T) {
	t.Parallel()
	const most = 5
	e := newEnvironmentOfSize(t, most)
	e.mustRun(t, 0, "root", "set global read_only = 0", "create database app", "create table app.acked (id bigint primary key)", "create table app.t (id int auto_increment primary key, v varchar(20))")
	cluster := testenv.BuildMySQLCluster(t, e.name, 1)
	e.ExpectCreated(t, cluster)
	e.startManager(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	writer := e.startWriter(t)
	e.triggerPass(t)
	e.waitForLooks(t)
	for _, size := range []int{instances, most} {
		e.patchReplicas(t, size)
		testenv.Eventually(t, "every instance is in sync", func() error {
			got := e.getCluster(t).Status.SyncedReplicas
			return testenv.ErrorIf(got != size, "found %d of %d", got, size)
		})
		e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
		t.Logf("%d instances are healthy", size)
	}
	writer.check(t, e)
	var longest int64
	for i := 1; i < len(writer.ackedAt); i++ {
		longest = max(longest, int64(writer.ackedAt[i].Sub(writer.ackedAt[i-1])))
	}
	t.Logf("%d rows, the longest silence is %s", len(writer.acked), time.Duration(longest).Round(time.Millisecond))
	if got := e.query(t, 0, "select concat(@@rpl_semi_sync_source_enabled, @@rpl_semi_sync_source_wait_for_replica_count)"); got != "12" {
		t.Errorf("expected commits to await two replicas in the end, found %s", got)
	}
	if silence := time.Duration(longest); silence > 10*time.Second {
		t.Errorf("expected writes to continue, found a silence of %s", silence)
	}
}

func (e *environment) patchReplicas(t *testing.T, replicas int) {
	t.Helper()
	cluster := e.getCluster(t)
	before := cluster.DeepCopy()
	cluster.Spec.Replicas = int32(replicas)
	testenv.ExpectNoError(t, e.Client.Patch(t.Context(), cluster, client.MergeFrom(before)))
}

// TestPrimaryThatAloneHasCommitsIsNotReplaced adds two instances to a single one. They are cloned but cannot follow
// yet, so commits do not wait for any replica. When the primary disappears, neither clone has the commits that were
// acknowledged in that time.
func TestPrimaryThatAloneHasCommitsIsNotReplaced(t *testing.T) {
	t.Parallel()
	e := newEnvironmentOfSize(t, 1, func(o *mysqlpods.ClusterOptions) { o.LaterPods = instances - 1 })
	e.ExpectCreated(t, testenv.BuildMySQLCluster(t, e.name, 1))
	e.startManager(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.mustRun(t, 0, "app", "create database app", "create table app.t (id int auto_increment primary key, v varchar(20))", "insert into app.t (v) values ('first')")
	setReplicationAccount := func(state string) { // A restarted primary is read-only for a short time.
		testenv.Eventually(t, "the account of replication gets the state "+state, func() error {
			return e.runStatements(t, 0, "root", "set sql_log_bin = 0", "alter user 'moco-repl'@'%' account "+state)
		})
	}
	setReplicationAccount("lock")
	testenv.ExpectNoError(t, e.pods.ScaleTo(t, instances))
	e.waitForAnswer(t, "select count(*) from app.t", "1")
	e.mustRun(t, 0, "app", "insert into app.t (v) values ('told')")
	e.servers[0].KillAtOnce(t)
	e.waitForMessage(t, mocov1beta2.HealthyCondition, "the primary may be the only instance with the acknowledged commits; bring the primary back, or see docs/clustering.md if the primary is lost")
	e.waitForCondition(t, mocov1beta2.AvailableCondition, "False Lost")
	testenv.ExpectEqual(t, "the primary while it is gone", 0, e.primaryIndex(t))

	e.servers[0].StartAndWait(t)
	setReplicationAccount("unlock")
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	testenv.ExpectEqual(t, "the primary", 0, e.primaryIndex(t))
	e.waitForAnswer(t, "select count(*) from app.t", "2")
	testenv.Eventually(t, "a replica is known to have every commit", func() error {
		found := e.getCluster(t).Status.GuaranteedAcknowledgements
		return testenv.ErrorIf(found == nil || *found != 1, "found %v", found)
	})
}
