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

// TestSeedStory is what the pause is for: a DBA aligns the GTIDs of the replicas by hand, and nobody undoes it.
func TestSeedStory(t *testing.T) {
	t.Parallel()
	t.Log("A cluster of three real servers, with rows, all of which are replicated.")
	w := healthyWorld(t)
	w.must(t, 0, "app", "insert into app.t (v) values ('second')")
	w.everywhere(t, "select count(*) from app.t", "2")
	w.columns(t, "test True True 0 3 True <no value>")

	t.Log("kubectl moco stop clustering")
	ran := w.moco(t, "stop", "clustering", theName, "--reason", "compare the replicas", "--wait")
	if want := fmt.Sprintf("stopped clustering of MySQLCluster %q\n", w.name); ran.code != exit.Done || ran.out != want {
		t.Fatalf("expected %q, found %+v", want, ran)
	}
	w.columns(t, "test Unknown Unknown 0 3 False <no value>")
	w.listen(t)

	t.Log("By hand: the replicas stop applying. A row is written and put into each replica beside the replication, and its number is advanced there.")
	for i := 1; i < size; i++ {
		w.must(t, i, "root", "stop replica sql_thread")
	}
	w.must(t, 0, "app", "insert into app.t (v) values ('third')")
	uuid, last := w.ask(t, 0, "select @@server_uuid"), w.ask(t, 0, "select regexp_substr(@@gtid_executed, '[0-9]+$')")
	for i := 1; i < size; i++ {
		w.must(t, i, "root", fmt.Sprintf("set gtid_next = '%s:%s'", uuid, last), "begin", "commit", "set gtid_next = 'automatic'")
		w.must(t, i, "root", "set global super_read_only = 0", "set sql_log_bin = 0", "insert into app.t (v) values ('third')", "set global super_read_only = 1")
	}

	t.Log("Nobody interferes: the threads stay stopped, and the servers have heard nothing from the manager but questions.")
	w.looked(t)
	w.looked(t)
	for i := 1; i < size; i++ {
		if got := w.ask(t, i, "select service_state from performance_schema.replication_applier_status"); got != "OFF" {
			t.Errorf("instance %d: expected that nobody interferes, found the SQL thread %s", i, got)
		}
	}
	for i := range size {
		heard := w.heard(t, i)
		if len(heard) == 0 {
			t.Errorf("instance %d: expected that the manager goes on looking, found no question", i)
		}
		for _, statement := range heard {
			if !strings.HasPrefix(statement, "select") {
				t.Errorf("instance %d: the manager sent %q while clustering was stopped", i, statement)
			}
		}
	}
	w.columns(t, "test Unknown Unknown 0 1 False <no value>")

	t.Log("kubectl moco start clustering: the check finds nothing that speaks against it, and the replicas go on.")
	ran = w.moco(t, "start", "clustering", theName, "--wait")
	if want := fmt.Sprintf("started clustering of MySQLCluster %q\n", w.name); ran.code != exit.Done || ran.out != want {
		t.Fatalf("expected %q, found %+v", want, ran)
	}
	w.becomes(t, mocov1beta2.HealthyCondition, "True Healthy")
	w.columns(t, "test True True 0 3 True <no value>")
	w.must(t, 0, "app", "insert into app.t (v) values ('fourth')")
	w.everywhere(t, "select group_concat(v order by id) from app.t", "first,second,third,fourth")
	w.everywhere(t, "select @@gtid_executed", w.ask(t, 0, "select @@gtid_executed"))
	for i := 1; i < size; i++ {
		if want, got := w.checksum(t, 0), w.checksum(t, i); got != want {
			t.Errorf("instance %d: expected the checksum %s, found %s", i, want, got)
		}
	}
}

// columns demands what kubectl get shows, blanks left out: nothing is errant, and who reconciles the spec does not run here.
func (w *world) columns(t *testing.T, want string) {
	t.Helper()
	shown := strings.Split(strings.TrimSpace(w.kubectl(t, "get", "mysqlcluster")), "\n")
	titles := regexp.MustCompile(` {2,}`).ReplaceAllString(strings.TrimSpace(shown[0]), "|")
	if all := "NAME|AVAILABLE|HEALTHY|PRIMARY|SYNCED REPLICAS|ERRANT REPLICAS|CLUSTERING ACTIVE|RECONCILE ACTIVE|LAST BACKUP"; titles != all {
		t.Errorf("expected the columns %s, found %s", all, titles)
	}
	if got := strings.Join(strings.Fields(shown[len(shown)-1]), " "); got != want {
		t.Errorf("expected %q, found %q", want, got)
	}
}

// listen lets every server write down what it is told.
func (w *world) listen(t *testing.T) {
	t.Helper()
	for i := range w.servers {
		w.must(t, i, "root", "set global log_output = 'TABLE'", "set global general_log = on")
	}
}

// heard is what an instance was told by the manager, its passwords left out.
func (w *world) heard(t *testing.T, i int) []string {
	t.Helper()
	const query = `select group_concat(convert(left(argument, 60) using utf8mb4) order by event_time separator '\n') from mysql.general_log
		where user_host like 'moco-admin%' and command_type not in ('Connect', 'Quit')`
	w.must(t, i, "root", "set global group_concat_max_len = 1000000")
	all := strings.TrimSpace(w.ask(t, i, query))
	if all == "" {
		return nil
	}
	return strings.Split(all, "\n")
}

// checksum is of the rows of an instance.
func (w *world) checksum(t *testing.T, i int) string {
	t.Helper()
	db := w.connect(t, i, "root")
	defer func() { _ = db.Close() }()
	var table, sum string
	if err := db.QueryRowContext(t.Context(), "checksum table app.t").Scan(&table, &sum); err != nil {
		t.Fatal(err)
	}
	return sum
}
