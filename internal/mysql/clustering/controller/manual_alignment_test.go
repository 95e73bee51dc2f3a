// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/cli/exit"
)

// TestReplicasCanBeAlignedByHand is what a stop is for: a DBA aligns the GTIDs of the replicas, and no manager undoes it.
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

	t.Log("By hand: the replicas stop applying. A row is written and put into each replica beside the replication, and its number is advanced there.")
	for i := 1; i < instances; i++ {
		e.mustRun(t, i, "root", "stop replica sql_thread")
	}
	e.mustRun(t, 0, "app", "insert into app.t (v) values ('third')")
	uuid, last := e.query(t, 0, "select @@server_uuid"), e.query(t, 0, "select regexp_substr(@@gtid_executed, '[0-9]+$')")
	for i := 1; i < instances; i++ {
		e.mustRun(t, i, "root", fmt.Sprintf("set gtid_next = '%s:%s'", uuid, last), "begin", "commit", "set gtid_next = 'automatic'")
		e.mustRun(t, i, "root", "set global super_read_only = 0", "set sql_log_bin = 0", "insert into app.t (v) values ('third')", "set global super_read_only = 1")
	}

	t.Log("No manager interferes: the threads stay stopped, and the servers have heard nothing from the manager but questions.")
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
			t.Errorf("instance %d: expected that the manager goes on looking, found no question", i)
		}
		for _, statement := range heard {
			if !strings.HasPrefix(statement, "select") {
				t.Errorf("instance %d: the manager sent %q while clustering was stopped", i, statement)
			}
		}
	}
	e.expectColumns(t, "test Unknown Unknown 0 1 False <no value>")

	t.Log("kubectl moco start clustering: the check finds nothing that speaks against it, and the replicas go on.")
	ran = e.runPlugin(t, "start", "clustering", clusterName, "--wait")
	if want := fmt.Sprintf("started clustering of MySQLCluster %q\n", e.name); ran.code != exit.Done || ran.out != want {
		t.Fatalf("expected %q, found %+v", want, ran)
	}
	e.waitForCondition(t, mocov1beta2.HealthyCondition, "True Healthy")
	e.expectColumns(t, "test True True 0 3 True <no value>")
	e.mustRun(t, 0, "app", "insert into app.t (v) values ('fourth')")
	e.waitForAnswer(t, "select group_concat(v order by id) from app.t", "first,second,third,fourth")
	e.waitForAnswer(t, "select @@gtid_executed", e.query(t, 0, "select @@gtid_executed"))
	for i := 1; i < instances; i++ {
		if want, got := e.checksumTable(t, 0), e.checksumTable(t, i); got != want {
			t.Errorf("instance %d: expected the checksum %s, found %s", i, want, got)
		}
	}
}

// expectColumns demands what kubectl get shows, blanks left out: nothing is errant, and who reconciles the spec does not run here.
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

// enableGeneralLog lets every server log its statements.
func (e *environment) enableGeneralLog(t *testing.T) {
	t.Helper()
	for i := range e.servers {
		e.mustRun(t, i, "root", "set global log_output = 'TABLE'", "set global general_log = on")
	}
}

// listManagerStatements returns what the manager sent to an instance, its passwords left out.
func (e *environment) listManagerStatements(t *testing.T, i int) []string {
	t.Helper()
	const query = `select group_concat(convert(left(argument, 60) using utf8mb4) order by event_time separator '\n') from mysql.general_log
		where user_host like 'moco-admin%' and command_type not in ('Connect', 'Quit')`
	e.mustRun(t, i, "root", "set global group_concat_max_len = 1000000")
	all := strings.TrimSpace(e.query(t, i, query))
	if all == "" {
		return nil
	}
	return strings.Split(all, "\n")
}

// checksumTable is of the rows of an instance.
func (e *environment) checksumTable(t *testing.T, i int) string {
	t.Helper()
	db := e.openSession(t, i, "root")
	defer func() { _ = db.Close() }()
	var table, sum string
	if err := db.QueryRowContext(t.Context(), "checksum table app.t").Scan(&table, &sum); err != nil {
		t.Fatal(err)
	}
	return sum
}
