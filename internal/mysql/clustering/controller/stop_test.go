// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cli/exit"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// These tests stop clustering in the middle of an operation. The test for a switchover is in stop_defects_test.go.

// TestStopDuringFailover stops clustering while the replicas are fenced and one has an unapplied relay log, which must
// not be lost. The fence is withdrawn, because possibly only the manager is cut off from the primary. A start finishes
// the failover.
func TestStopDuringFailover(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	release := make([]func(), 0, instances)
	for i := 1; i < instances; i++ {
		release = append(release, e.blockApplying(t, i))
	}
	e.mustRun(t, 0, "app", "insert into app.t (v) values ('late')")
	e.servers[0].KillAtOnce(t)
	for i := 1; i < instances; i++ {
		e.waitForIOThread(t, i, "OFF")
	}
	e.stopClustering(t)
	cluster := e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	if p := cluster.Status.Pause; p == nil || !strings.Contains(p.Unfinished, "does not answer") {
		t.Errorf("expected the record to report that the primary does not answer, found %+v", p)
	}
	for i := 1; i < instances; i++ {
		e.waitForIOThread(t, i, "ON", "CONNECTING")
		if got := e.query(t, i, "select @@super_read_only"); got != "1" {
			t.Errorf("instance %d: expected no instance to be promoted, found super_read_only=%s", i, got)
		}
	}
	for _, let := range release {
		let()
	}
	e.startClustering(t)
	e.waitForCondition(t, mocov1beta2.AvailableCondition, "True Degraded")
	e.servers[0].StartAndWait(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.waitForAnswer(t, "select group_concat(v order by id) from app.t", "first,late")
	e.expectOneWritable(t)
}

// TestStopDuringClone checks that a clone in progress is finished, and that no other clone begins.
func TestStopDuringClone(t *testing.T) {
	t.Parallel()
	e := newEnvironmentWithServers(t)
	e.mustRun(t, 0, "root", "set global read_only = 0", "create database app", "create table app.t (id int primary key)",
		"insert into app.t values (1), (2)", "set global super_read_only = 1")
	for i := 1; i < instances; i++ { // The clone is slow until the stop is requested.
		e.mustRun(t, i, "root", "set global clone_autotune_concurrency = off", "set global clone_max_data_bandwidth = 4")
	}
	e.createCluster(t, nil)
	e.startManager(t)
	cloning := 0
	testenv.Eventually(t, "a copy is under way", func() error {
		for i := 1; i < instances; i++ {
			if got, err := e.tryQuery(t, i, "select state from performance_schema.clone_status"); err == nil && got == "In Progress" {
				cloning = i
				return nil
			}
		}
		return errors.New("none is")
	})
	e.stopClustering(t)
	e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "True Quiescing")
	e.mustRun(t, cloning, "root", "set global clone_max_data_bandwidth = 0") // A stop waits for 15 seconds.
	cluster := e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	if p := cluster.Status.Pause; p == nil || p.Unfinished != "" {
		t.Errorf("expected no unfinished work, found %+v", p)
	}
	e.servers[cloning].WaitUntilReady(t) // The clone restarts the server, which must be reachable before the next query.
	e.expectOneWritable(t)
	if got := e.query(t, cloning, "select count(*) from app.t"); got != "2" {
		t.Errorf("instance %d: expected a whole copy, found %s rows", cloning, got)
	}
	other := instances - cloning
	e.waitForLooks(t)
	if got := e.query(t, other, "select concat('x', @@gtid_executed, (select count(*) from performance_schema.clone_status))"); got != "x0" {
		t.Errorf("instance %d: expected no copy to be begun, found %s", other, got)
	}
	e.startClustering(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.waitForAnswer(t, "select count(*) from app.t", "2")
}

// TestFrozenPrimaryIsReplaced checks that an unresponsive primary whose server still runs is replaced, and does not
// acknowledge a write when it resumes.
func TestFrozenPrimaryIsReplaced(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	asked := time.Now()
	e.waitForLooks(t)
	// The next regular pass starts after ten seconds. On a busy machine a failover takes longer, because passes take
	// longer.
	limit := max(10*time.Second, 20*time.Since(asked))
	e.servers[0].Freeze(t)
	frozenAt, thawed := time.Now(), false
	t.Cleanup(func() {
		if !thawed {
			e.servers[0].Thaw(t)
		}
	})
	heir, value := e.waitForAcknowledgedWrite(t)
	t.Logf("no write was acknowledged for %s", time.Since(frozenAt).Round(time.Millisecond))
	if silence := time.Since(frozenAt); silence > limit {
		t.Errorf("expected the frozen primary to be noticed before the next regular pass, found %s without a write, more than %s", silence, limit)
	}
	e.servers[0].Thaw(t)
	thawed = true
	cluster := e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	if cluster.Status.CurrentPrimaryIndex != heir {
		t.Errorf("expected the primary %d, found %d", heir, cluster.Status.CurrentPrimaryIndex)
	}
	e.waitForAnswer(t, "select group_concat(v order by id) from app.t", "first,"+value)
	e.expectOneWritable(t)
}

// TestRestartWhileStopped checks that a manager that is started while clustering is stopped repairs nothing, not even
// after the primary has restarted and is read-only.
func TestRestartWhileStopped(t *testing.T) {
	t.Parallel()
	e := newEnvironmentWithServers(t)
	e.createCluster(t, nil)
	stop := e.startManager(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.stopByPlugin(t)
	stop()
	e.servers[0].Stop(t)
	e.servers[0].StartAndWait(t)
	e.startManager(t)
	testenv.Eventually(t, "the gauge is back at once", func() error {
		got := e.metricValue(t, "moco_cluster_clustering_stopped")
		return testenv.ErrorIf(got != 1, "found %v", got)
	})
	e.waitForLooks(t)
	if got := e.query(t, 0, "select @@super_read_only"); got != "1" {
		t.Errorf("expected the primary to be left as it is, found super_read_only=%s", got)
	}
	e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, "False ClusteringInactive")
	testenv.Eventually(t, "the status reports that the primary takes no writes", func() error {
		e.triggerPass(t)
		got := e.getCluster(t).Status.Instances[0].Writable // The value is unknown while the server does not respond.
		return testenv.ErrorIf(got == nil || *got, "found %v", got)
	})
	e.startClustering(t)
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.expectOneWritable(t)
}

// TestStoppedInstance checks that no action affects the instance for which clustering is stopped, while the other
// instances are managed.
func TestStoppedInstance(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	e.annotate(t, map[string]string{mocov1beta2.StoppedInstancesAnnotation: "[2]"})
	testenv.Eventually(t, "the status reports that it is left alone", func() error {
		return testenv.ErrorIf(!e.getCluster(t).Status.Instances[2].Stopped, "not yet")
	})
	e.mustRun(t, 1, "root", "stop replica")
	e.mustRun(t, 2, "root", "stop replica")
	e.triggerPass(t)
	e.waitForIOThread(t, 1, "ON")
	e.waitForLooks(t)
	e.waitForIOThread(t, 2, "OFF")
	e.requestStepDown(t, 0)
	testenv.Eventually(t, "the other instance is the primary", func() error {
		p := e.getCluster(t).Status.CurrentPrimaryIndex
		return testenv.ErrorIf(p != 1, "found %d", p)
	})
	e.waitForCondition(t, mocov1beta2.AvailableCondition, "True Degraded")
	e.waitForIOThread(t, 2, "OFF")
	e.annotate(t, map[string]string{mocov1beta2.StoppedInstancesAnnotation: ""})
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.mustRun(t, 1, "app", "insert into app.t (v) values ('after')")
	e.waitForAnswer(t, "select group_concat(v order by id) from app.t", "first,after")
}

// TestPasswordRotated changes the administrator's password in the servers and in the Secret. The manager does not need
// a restart.
func TestPasswordRotated(t *testing.T) {
	t.Parallel()
	e := newHealthyEnvironment(t)
	secret := e.getSecret(t)
	secret.Data[mysqlusers.PasswordKeyOf(mysqlusers.AdminUser)] = []byte("secret-b")
	testenv.ExpectNoError(t, e.Client.Update(t.Context(), secret))
	e.mustRun(t, 0, "root", "alter user 'moco-admin'@'%' identified by 'secret-b'")
	for i := range instances { // Sessions that were opened with the old password last until they are killed.
		e.killSessions(t, i, "moco-admin")
	}
	e.requestStepDown(t, 0)
	testenv.Eventually(t, "another instance is the primary", func() error {
		return testenv.ErrorIf(e.getCluster(t).Status.CurrentPrimaryIndex == 0, "not yet")
	})
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.expectOneWritable(t)
}

// blockApplying prevents an instance from applying received transactions until the returned function is called.
func (e *environment) blockApplying(t *testing.T, i int) func() {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	db := e.openSession(t, i, "root")
	for _, statement := range []string{"set session wait_timeout = 300", "lock tables app.t read"} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if _, err := db.ExecContext(ctx, "unlock tables"); err != nil {
			t.Errorf("let instance %d apply: %v", i, err)
		}
	}
}

func (e *environment) waitForIOThread(t *testing.T, i int, states ...string) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("the receiving thread of instance %d is %v", i, states), func() error {
		got, err := e.tryQuery(t, i, "select service_state from performance_schema.replication_connection_status")
		if err != nil || !slices.Contains(states, got) {
			return fmt.Errorf("found %q (%w)", got, err)
		}
		return nil
	})
}

// expectOneWritable fails unless clients can write to the primary and to no other instance.
func (e *environment) expectOneWritable(t *testing.T) {
	t.Helper()
	p := e.getCluster(t).Status.CurrentPrimaryIndex
	for i := range e.servers {
		want := map[bool]string{true: "00", false: "11"}[i == p]
		if got := e.query(t, i, "select concat(@@read_only, @@super_read_only)"); got != want {
			t.Errorf("instance %d of a cluster with the primary %d: expected read_only and super_read_only %s, found %s", i, p, want, got)
		}
	}
}

func (e *environment) killSessions(t *testing.T, i int, user string) {
	t.Helper()
	ids := e.query(t, i, "select group_concat(id) from performance_schema.processlist where user = '"+user+"'")
	for id := range strings.SplitSeq(ids, ",") {
		if id != "" {
			_ = e.runStatements(t, i, "root", "kill "+id) // The session may have ended already.
		}
	}
}

// TestStopThatCannotEnd covers a stop whose end time has passed while the API server rejects its removal.
func TestStopThatCannotEnd(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	e.clock = shiftedClock{ahead: 2 * time.Minute} // The end time has passed now, but had not when the stop began.
	e.createCluster(t, nil)
	e.forbidEndOfStop(t)
	end := e.clock.Now().Add(-time.Minute).UTC().Truncate(time.Second)
	e.annotate(t, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true", torporv1alpha1.UntilAnnotation: end.Format(time.RFC3339)})
	e.startManager(t)
	testenv.Eventually(t, "the stop is overdue", func() error {
		late, said := e.metricValue(t, "torpor_mysql_stop_overdue_seconds"), strings.Contains(e.log.String(), stoprecord.EventStopOverdue)
		return testenv.ErrorIf(late < time.Minute.Seconds() || !said, "found the metric %v and an event %t", late, said)
	})
	e.annotate(t, map[string]string{torporv1alpha1.UntilAnnotation: e.clock.Now().Add(time.Hour).Format(time.RFC3339)})
	testenv.Eventually(t, "the stop is no longer overdue", func() error {
		late := e.metricValue(t, "torpor_mysql_stop_overdue_seconds")
		return testenv.ErrorIf(late != 0, "found the metric %v", late)
	})
}

// forbidEndOfStop makes the API server reject the removal of a stop in the test's namespace.
func (e *environment) forbidEndOfStop(t *testing.T) {
	t.Helper()
	name := e.name.Namespace
	e.ExpectCreated(t, &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{"moco.cybozu.com"}, APIVersions: []string{"*"}, Resources: []string{"mysqlclusters"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: `!("` + mocov1beta2.ClusteringStoppedAnnotation + `" in oldObject.metadata.?annotations.orValue({})) ||
				"` + mocov1beta2.ClusteringStoppedAnnotation + `" in object.metadata.?annotations.orValue({})`}},
		},
	})
	e.ExpectCreated(t, &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": name}}},
		},
	})
	e.annotate(t, map[string]string{mocov1beta2.ClusteringStoppedAnnotation: "true"})
	testenv.Eventually(t, "a start is refused", func() error {
		cluster := e.getCluster(t)
		before := cluster.DeepCopy()
		cluster.Annotations = nil
		if err := e.Client.Patch(t.Context(), cluster, client.MergeFrom(before), client.DryRunAll); err == nil {
			return errors.New("it is allowed")
		}
		return nil
	})
}

// TestReplicasCanBeAlignedByHand covers the main use of a stop: a DBA aligns the GTIDs of the replicas, and the manager
// does not interfere.
func TestReplicasCanBeAlignedByHand(t *testing.T) {
	t.Parallel()
	t.Log("A cluster of three real servers, with rows, all of which are replicated.")
	e := newHealthyEnvironment(t)
	e.mustRun(t, 0, "app", "insert into app.t (v) values ('second')")
	e.waitForAnswer(t, "select count(*) from app.t", "2")
	e.expectColumns(t, "test True True 0 3 True <no value>")

	t.Log("kubectl moco stop clustering")
	ran := e.runPlugin(t, "stop", "clustering", clusterName, "--reason", "compare the replicas", "--wait")
	if want := fmt.Sprintf("stopped clustering of MySQLCluster %q\n", e.name); ran.code != exit.Done || ran.out != want {
		t.Fatalf("expected %q, found %+v", want, ran)
	}
	e.expectColumns(t, "test Unknown Unknown 0 3 False <no value>")
	e.enableGeneralLog(t)

	t.Log("By hand: the replicas stop applying. A row is written and inserted into each replica outside of replication, and its number is advanced there.")
	for i := 1; i < instances; i++ {
		e.mustRun(t, i, "root", "stop replica sql_thread")
	}
	e.mustRun(t, 0, "app", "insert into app.t (v) values ('third')")
	uuid, last := e.query(t, 0, "select @@server_uuid"), e.query(t, 0, "select regexp_substr(@@gtid_executed, '[0-9]+$')")
	for i := 1; i < instances; i++ {
		e.mustRun(t, i, "root", fmt.Sprintf("set gtid_next = '%s:%s'", uuid, last), "begin", "commit", "set gtid_next = 'automatic'")
		e.mustRun(t, i, "root", "set global super_read_only = 0", "set sql_log_bin = 0", "insert into app.t (v) values ('third')", "set global super_read_only = 1")
	}

	t.Log("The manager does not interfere: the threads stay stopped, and the servers have received only queries from the manager.")
	e.waitForLooks(t)
	e.waitForLooks(t)
	for i := 1; i < instances; i++ {
		if got := e.query(t, i, "select service_state from performance_schema.replication_applier_status"); got != "OFF" {
			t.Errorf("instance %d: expected that no manager interferes, found the SQL thread %s", i, got)
		}
	}
	for i := range instances {
		heard := e.listManagerStatements(t, i)
		if len(heard) == 0 {
			t.Errorf("instance %d: expected the manager to keep observing, found no query", i)
		}
		for _, statement := range heard {
			if !strings.HasPrefix(statement, "select") {
				t.Errorf("instance %d: the manager sent %q while clustering was stopped", i, statement)
			}
		}
	}
	e.expectColumns(t, "test Unknown Unknown 0 1 False <no value>")

	t.Log("kubectl moco start clustering: the check finds no reason to refuse, and the replicas continue.")
	ran = e.runPlugin(t, "start", "clustering", clusterName, "--wait")
	if want := fmt.Sprintf("started clustering of MySQLCluster %q\n", e.name); ran.code != exit.Done || ran.out != want {
		t.Fatalf("expected %q, found %+v", want, ran)
	}
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.expectColumns(t, "test True True 0 3 True <no value>")
	e.mustRun(t, 0, "app", "insert into app.t (v) values ('fourth')")
	e.waitForAnswer(t, "select group_concat(v order by id) from app.t", "first,second,third,fourth")
	e.waitForEqualAnswers(t, 0, "select @@gtid_executed")
	for i := 1; i < instances; i++ {
		if want, got := e.checksumTable(t, 0), e.checksumTable(t, i); got != want {
			t.Errorf("instance %d: expected the checksum %s, found %s", i, want, got)
		}
	}
}

// expectColumns checks the output of kubectl get, with blanks removed. No replica is errant. The controller that
// reconciles the spec does not run in this test.
func (e *environment) expectColumns(t *testing.T, want string) {
	t.Helper()
	shown := strings.Split(strings.TrimSpace(e.runKubectl(t, "get", "mysqlcluster")), "\n")
	titles := regexp.MustCompile(` {2,}`).ReplaceAllString(strings.TrimSpace(shown[0]), "|")
	if all := "NAME|AVAILABLE|HEALTHY|PRIMARY|SYNCED REPLICAS|ERRANT REPLICAS|CLUSTERING ACTIVE|RECONCILE ACTIVE|LAST BACKUP"; titles != all {
		t.Errorf("expected the columns %s, found %s", all, titles)
	}
	if got := strings.Join(strings.Fields(shown[len(shown)-1]), " "); got != want {
		t.Errorf("expected %q, found %q", want, got)
	}
}

// enableGeneralLog makes every server log its statements.
func (e *environment) enableGeneralLog(t *testing.T) {
	t.Helper()
	for i := range e.servers {
		e.mustRun(t, i, "root", "set global log_output = 'TABLE'", "set global general_log = on")
	}
}

// listManagerStatements returns the statements that an instance received from the manager, with passwords removed.
func (e *environment) listManagerStatements(t *testing.T, i int) []string {
	t.Helper()
	const query = `select group_concat(convert(replace(left(argument, 60), '\n', ' ') using utf8mb4) order by event_time separator '\n') from mysql.general_log
		where user_host like 'moco-admin%' and command_type not in ('Connect', 'Quit')`
	e.mustRun(t, i, "root", "set global group_concat_max_len = 1000000")
	all := strings.TrimSpace(e.query(t, i, query))
	if all == "" {
		return nil
	}
	return strings.Split(all, "\n")
}

// checksumTable returns the checksum of an instance's rows.
func (e *environment) checksumTable(t *testing.T, i int) string {
	t.Helper()
	db := e.openSession(t, i, "root")
	defer func() { _ = db.Close() }()
	var table, sum string
	testenv.ExpectNoError(t, db.QueryRowContext(t.Context(), "checksum table app.t").Scan(&table, &sum))
	return sum
}
