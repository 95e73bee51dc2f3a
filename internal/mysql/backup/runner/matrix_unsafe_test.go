// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// TestUnsafeStatementDuringBackup commits an unsafe statement between the snapshot of a dump and the end of the backup.
// A round of the matrix accepts differences only in the tables that this statement may change. The replay with MySQL's
// tools alone fails, too: the trigger's rows get numbers after the AUTO_INCREMENT of the dump, which is newer than the
// snapshot.
func TestUnsafeStatementDuringBackup(t *testing.T) {
	const failure = "mysql: exit status 1: MySQL's error 1062 at line 1"
	m := &matrixRound{testEnv: newTestEnv(t), t: t, totals: &matrixTotals{}, main: newSchemaGenerator(1, 1), rows: newSchemaGenerator(1, 2)}
	m.source = m.installation.StartServer(t)
	const trigger = "create trigger a.counts before insert on a.filled for each row insert into `a`.`counted` () values ()"
	m.run([]string{
		"set global super_read_only = off", "set global read_only = off", "create schema a",
		"create table a.filled (id int auto_increment primary key)", "create table a.counted (id int auto_increment primary key)", trigger,
		"create table a.dumped (id int auto_increment primary key)", "create table a.safe (id int auto_increment primary key)",
		"create trigger a.dumps before insert on a.dumped for each row insert into `a`.`safe` () values ()",
	})
	m.run([]string{"set binlog_format = statement", "begin", "insert into `a`.`dumped` values (), ()", "commit"})
	dump := queryOne(t, m.source, "select @@global.gtid_executed")
	m.run([]string{"set binlog_format = statement", "set insert_id = 100", "begin", "insert into `a`.`filled` values (), (), (), ()", "commit"})
	next := queryOne(t, m.source, "select 1 + max(id) from a.counted")
	m.forgetDumped(dump)
	m.run([]string{"insert into a.counted values ()"})

	target := m.installation.StartServer(t)
	execStatements(t, target, "set global super_read_only = off", "set global read_only = off", "create schema a",
		"create table a.filled (id int auto_increment primary key)", "create table a.counted (id int auto_increment primary key) auto_increment = "+next, trigger)
	if output := replayWithTools(t, m.source, target, dump); !strings.Contains(output, "ERROR 1062") {
		t.Errorf("expected MySQL's error 1062, found %q", output)
	}
	for table, want := range map[string]bool{"filled": true, "counted": true, "dumped": false, "safe": false} {
		testenv.ExpectEqual(t, "rows of "+table+" may differ", want, m.isUnsafe(objectKey("rows of table", "a", table)))
	}
	testenv.ExpectEqual(t, "the restore may fail", true, m.isNamedLimit(errors.New(failure)))
	m.unsafe = nil
	testenv.ExpectEqual(t, "the restore may fail without an unsafe statement", false, m.isNamedLimit(errors.New(failure)))
}

// replayWithTools pipes the first binary log of a server, without some transactions, through mysqlbinlog to mysql. It
// returns the output of both.
func replayWithTools(t *testing.T, source, target *mysqld.Server, without string) string {
	t.Helper()
	const line = `login="--protocol=tcp --port=$0 --user=moco-admin --get-server-public-key"
mysqlbinlog --no-defaults $login --host="$1" --read-from-remote-server --exclude-gtids="$2" "$3" | mysql --no-defaults $login --host="$4"`
	first := newShellDumper(t, source).column("show binary logs")[0]
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line, strconv.Itoa(mysqld.Port), source.Address, without, first, target.Address)
	cmd.Env = append(os.Environ(), "MYSQL_PWD="+adminPassword)
	output, _ := cmd.CombinedOutput() // The exit status is the one of mysql, which also prints the error.
	for _, s := range []*mysqld.Server{source, target} {
		for _, table := range []string{"filled", "counted"} {
			t.Logf("%s on %s: %v", table, s.Address, queryList(t, s, "select id from a."+table+" order by id"))
		}
	}
	return string(output)
}
