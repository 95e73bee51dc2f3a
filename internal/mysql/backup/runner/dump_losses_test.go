// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"errors"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/torpor-dev/torpor/internal/mysql/backup/runner"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// expectEqualStates compares the states of a target and its source.
func expectEqualStates(t *testing.T, want, found recordedState) {
	t.Helper()
	for _, difference := range want.differences(found, func(string) bool { return false }) {
		t.Error(difference)
	}
}

// TestRestoreKeepsUnusualRowsAndDefinitions covers rows and definitions that the dump contains, but that MySQL's own
// programs would change on a server with init_connect or in the SQL mode of a dump.
func TestRestoreKeepsUnusualRowsAndDefinitions(t *testing.T) {
	e := newTestEnv(t)
	e.installation.Settings = []string{"init_connect='SET NAMES latin1'"}
	source := e.startPrimary(t)
	for _, session := range [][]string{
		// Dates that do not exist.
		{"create table app.dates (id int primary key, d date, at datetime(3), zero date)", "set sql_mode = 'ALLOW_INVALID_DATES'", "insert into app.dates values (1, '2026-02-31', '2026-04-31 10:00:00.5', '2026-00-00')"},
		// Names and texts that latin1 cannot represent.
		{
			"create table app.`таблица` (id int primary key, v varchar(40) comment 'ﾃ', `ключ` int)", "insert into app.`таблица` values (1, 'привет 😀', 7)",
			"create view app.`вид` as select 'é' as a, v from app.`таблица`", "create user 'Üser'@'%'",
		},
		// Keys that MySQL has shortened.
		{"set sql_mode = ''", "create table app.shortened (c varchar(30), v varchar(190) comment ')(7)', key ((hex(c))), key `a)(1)` ((coalesce(v, 1)) desc, (hex(c)))) row_format = compact", "insert into app.shortened values ('a', 'b')"},
		// Views whose definition MySQL prints differently after they are created from a dump.
		{"create view app.joined as select a.id from app.dates a, app.parent b limit 5"},
		{"set sql_quote_show_create = 0", "create view app.unquoted as select id from app.dates"},
		// Names and strings in definitions that MySQL prints differently after the tables are created from a dump.
		{"set sql_mode = 'ANSI_QUOTES'", "create table app.ansi (id int primary key) partition by key (id) partitions 2"},
		{"set names latin1", "create table app.introduced (c varchar(9), d varchar(20) as (concat(c, '\"a''b')), check (c <> 'b'), key ((concat(c, 'd'))))"},
	} {
		execInSession(t, source, session...)
	}
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	want := readState(t, source)
	e.installation.Settings = []string{"innodb_default_row_format=compact"} // This row format reduces the maximum length of an index.
	target := e.installation.StartServer(t)
	expectLeftOut(t, e.restoreWithResult(t, target, unchanged))
	found := readState(t, target)
	delete(want.objects, "account 'reader'@'%'") // The account has grants on objects that no longer exist.
	delete(found.objects, "account 'reader'@'%'")
	expectEqualStates(t, want, found)
}

// TestNamesOfTablesRunNoStatements covers table names with line breaks, which mysqlbinlog writes into comments.
func TestNamesOfTablesRunNoStatements(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	e.startShipping(t, source.Address)
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	for _, name := range []string{"a\nb", "a\nb` mapped to number 7\ncreate schema injected;\n#", "\ncreate user injected;\n#"} {
		execStatements(t, source, "create table app."+inBackticks(name)+" (id int primary key)", "insert into app."+inBackticks(name)+" values (1), (2)")
	}
	want, point := readState(t, source), passPoint(t)
	execStatements(t, source, "create schema after_the_point")
	for name, schema := range map[string]string{"all schemas": "", "a restore of one schema": "app"} {
		t.Run(name, func(t *testing.T) {
			target := e.installation.StartServer(t)
			e.restoreWithResult(t, target, func(o *runner.RestoreOptions) { o.Point, o.Schema = point, schema })
			found, want := readState(t, target), want
			testenv.ExpectEqual(t, "transactions", want.gtids, found.gtids)
			testenv.ExpectEqual(t, "injected", 0, len(queryList(t, target, "select 1 from mysql.user where user = 'injected' union all select 1 from information_schema.schemata where schema_name = 'injected'")))
			expectEqualStates(t, want.ofSchema("app"), found.ofSchema("app"))
		})
	}
}

// TestNamesOfSchemasAreNoOptions covers a name that mysqldump could take for an option.
func TestNamesOfSchemasAreNoOptions(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	execStatements(t, source, "create schema `--no-data`", "create table `--no-data`.t (id int primary key)", "insert into `--no-data`.t values (1)", "create schema `-r`", "create view `-r`.v as select 1 as one")
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	target := e.installation.StartServer(t)
	expectLeftOut(t, e.restoreWithResult(t, target, unchanged))
	testenv.ExpectEqual(t, "contents", readContents(t, source), readContents(t, target))
}

// TestLargeStatementsOfTablesWithoutTransactions covers statements that are larger than the part of one that is applied
// at once, for tables whose statements cannot be applied in parts.
func TestLargeStatementsOfTablesWithoutTransactions(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	e.startShipping(t, source.Address)
	execStatements(t, source, "create table app.plain (id int auto_increment primary key, n int default 0, b mediumblob) engine = myisam", "insert into app.plain (b) values (repeat(x'00ff', 500000))")
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	for range 3 {
		execStatements(t, source, "insert into app.plain (b) select b from app.plain")
	}
	execStatements(t, source, "update app.plain set n = n + 1")
	want, point := readContents(t, source), passPoint(t)
	execStatements(t, source, "create schema after_the_point")
	target := e.restoreTo(t, point)
	testenv.ExpectEqual(t, "contents", want, readContents(t, target))
}

// TestStatementsThatFailedInPart covers statements that failed on the source after they had changed rows of a table
// without transactions. The binary log contains them with their errors.
func TestStatementsThatFailedInPart(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	e.startShipping(t, source.Address)
	execStatements(t, source, "create table app.plain (id int primary key, n int) engine = myisam", "insert into app.plain values (1, 0), (3, 0)",
		"create table app.watched (id int primary key) engine = myisam", "create definer = gone@nowhere trigger app.refused after insert on app.watched for each row set @a = 1")
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	session, err := connect(t, source, "moco-admin", adminPassword).Conn(t.Context())
	testenv.ExpectNoError(t, err)
	for _, statement := range []string{"use app", "set binlog_format = statement"} {
		_, err := session.ExecContext(t.Context(), statement)
		testenv.ExpectNoError(t, err)
	}
	for statement, code := range map[string]uint16{
		"insert into plain values (2, 0), (3, 0), (4, 0)": 1062, "insert into watched values (1), (2)": 1449, "insert into app.plain values (5, 0), (1, 0)": 1062,
	} {
		_, err := session.ExecContext(t.Context(), statement)
		if refused, isRefused := errors.AsType[*driver.MySQLError](err); !isRefused || refused.Number != code {
			t.Fatalf("%s: expected error %d, found %v", statement, code, err)
		}
		execStatements(t, source, "insert into app.t (v) values ('between')")
	}
	want, plain, point := readContents(t, source), queryOne(t, source, "select group_concat(id order by id) from app.plain"), passPoint(t)
	testenv.ExpectEqual(t, "rows of the source", "1,2,3,5", plain)
	execStatements(t, source, "create schema after_the_point")
	testenv.ExpectEqual(t, "contents", want, readContents(t, e.restoreTo(t, point)))
	target := e.installation.StartServer(t)
	o := e.restoreOptions(target.Address)
	o.Schema, o.Point = "app", point
	testenv.Eventually(t, "the point can be reached", func() error { return runner.RunRestore(t.Context(), o) })
	testenv.ExpectEqual(t, "rows of one schema", plain, queryOne(t, target, "select group_concat(id order by id) from app.plain"))
}
