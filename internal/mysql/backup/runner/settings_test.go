// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/mysql/backup/runner"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// restoreWithResult restores into a new server and returns the result. If change sets a restore point, it waits until
// the binary logs up to that point are shipped.
func (e *testEnv) restoreWithResult(t *testing.T, target *mysqld.Server, change func(*runner.RestoreOptions)) backup.RestoreResult {
	t.Helper()
	o := e.restoreOptions(target.Address)
	o.Result = filepath.Join(t.TempDir(), "result")
	newest := o.Point
	change(&o)
	if o.Point.Equal(newest) {
		testenv.ExpectNoError(t, runner.RunRestore(t.Context(), o))
	} else {
		testenv.Eventually(t, "the point can be reached", func() error { return runner.RunRestore(t.Context(), o) })
	}
	text, err := os.ReadFile(o.Result)
	testenv.ExpectNoError(t, err)
	result, err := backup.ParseRestoreResult(string(text))
	testenv.ExpectNoError(t, err)
	return result
}

func unchanged(*runner.RestoreOptions) {}

// tableDefinitions is a query for the tables of the schemas that tests fill.
const tableDefinitions = `select concat(table_schema, '.', table_name, '.', column_name, ' ', column_type, ' ', extra) from information_schema.columns
 where table_schema in ('app', 'one', 'two') order by 1`

// TestSettingsOfServersDoNotChangeData covers settings that change the data a session reads, or the statements it may
// run: in the dump, in its load and in the binary logs.
func TestSettingsOfServersDoNotChangeData(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	fillLargeTable(t, source)
	statements := func(table string) []string {
		return []string{
			"set session sql_require_primary_key = off, sql_generate_invisible_primary_key = off", "create table app." + table + "_nopk (id int)", "insert into app." + table + "_nopk values (1)",
			"set session restrict_fk_on_non_standard_key = off", "create table app." + table + "_p (id int, v int, key (id))",
			"create table app." + table + "_float1 (id int primary key, a float, b float)", "create table app." + table + "_float2 (id int primary key, a float, b float)",
			"create table app." + table + "_c (id int primary key, p int, foreign key (p) references app." + table + "_p (id))",
			// An ALTER TABLE that copies the table checks the foreign key. One that does not copy ignores the row.
			"set session foreign_key_checks = off", "insert into app." + table + "_c values (1, 404)", "set session foreign_key_checks = on",
			"alter table app." + table + "_c add column extra int",
			"set session innodb_strict_mode = off", "create table app." + table + "_loose (id int primary key) row_format = fixed",
			"set session sql_generate_invisible_primary_key = on", "create table app." + table + "_gipk (v int)", "insert into app." + table + "_gipk values (7), (8), (9), (10), (11)",
			"xa start '" + table + "'", "insert into app." + table + "_nopk values (2)", "xa end '" + table + "'", "xa prepare '" + table + "'", "xa commit '" + table + "'",
		}
	}
	execInSession(t, source, statements("dumped")...)
	e.startShipping(t, source.Address)
	execStatements(t, source, "set global show_gipk_in_create_table_and_information_schema = off",
		"set global max_execution_time = 1", "set global sql_select_limit = 2", "set global max_join_size = 1", "set global completion_type = 2", "set global sql_safe_updates = on", "set global max_sort_length = 4")
	_, err := e.runBackup(t.Context(), t, source.Address)
	execStatements(t, source, "set global max_execution_time = 0", "set session sql_safe_updates = off",
		"set global sql_select_limit = default", "set global max_join_size = default", "set global completion_type = 0", "set global sql_safe_updates = off", "set global max_sort_length = default",
		"set global show_gipk_in_create_table_and_information_schema = on")
	testenv.ExpectNoError(t, err)
	execInSession(t, source, statements("logged")...)
	point := passPoint(t)
	execStatements(t, source, "create schema after_the_point")
	target := e.installation.StartServer(t)
	execStatements(t, target, "set global sql_require_primary_key = on", "set global sql_generate_invisible_primary_key = on", "set global restrict_fk_on_non_standard_key = on",
		"set global max_execution_time = 1", "set global sql_select_limit = 2", "set global max_join_size = 1", "set global completion_type = 2", "set global sql_safe_updates = on",
		"set global xa_detach_on_prepare = off", "set global old_alter_table = on", "set global autocommit = 0", "set global transaction_read_only = on", "set global sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'")
	result := e.restoreWithResult(t, target, func(o *runner.RestoreOptions) { o.Point = point })
	testenv.ExpectEqual(t, "parts that were left out", 0, result.LeftOut)
	execStatements(t, target, "set global max_execution_time = 0", "set global sql_select_limit = default", "set global max_join_size = default", "set global completion_type = 0",
		"set global sql_safe_updates = off", "set global autocommit = 1", "set global transaction_read_only = off", "set global sql_mode = default")
	want := readContents(t, source)
	delete(want, "schemas after_the_point")
	testenv.ExpectEqual(t, "contents", want, readContents(t, target))
	testenv.ExpectEqual(t, "definitions", queryList(t, source, tableDefinitions), queryList(t, target, tableDefinitions))
	testenv.ExpectEqual(t, "transactions", "1", queryOne(t, target, "select gtid_subset('"+queryOne(t, target, "select @@gtid_executed")+"', '"+queryOne(t, source, "select @@gtid_executed")+"')"))
}

// TestTablesThatOneModeCannotOpen covers tables whose expressions MySQL stores with a backslash. A session with
// NO_BACKSLASH_ESCAPES can use these tables only while they are already open.
func TestTablesThatOneModeCannotOpen(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	execStatements(t, source, "create table app.quoted (id int primary key, v varchar(20) as (concat('it''s ', id)) stored)",
		"create table app.checked (id int primary key, v varchar(20) default (concat('it''s')), check (v <> 'isn''t'))")
	e.startShipping(t, source.Address)
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	execInSession(t, source, "insert into app.quoted (id) values (1)", "insert into app.checked (id) values (1)",
		"alter table app.quoted comment = 'now closed'", "alter table app.checked comment = 'now closed'",
		"select * from app.quoted", "select * from app.checked", // These statements open the tables, and are not in the binary logs.
		"set session sql_mode = 'NO_BACKSLASH_ESCAPES'", "insert into app.quoted (id) values (2)",
		"begin", "insert into app.checked (id) values (2)", "update app.quoted set id = 3 where id = 2", "commit",
		"xa start 'mode'", "delete from app.quoted where id = 1", "xa end 'mode'", "xa prepare 'mode'", "xa commit 'mode'",
		"set session binlog_transaction_compression = on", "insert into app.checked (id) values (3)")
	want, point := readState(t, source), passPoint(t)
	execStatements(t, source, "create schema after_the_point")
	for name, schema := range map[string]string{"all schemas": "", "a restore of one schema": "app"} {
		t.Run(name, func(t *testing.T) {
			target := e.installation.StartServer(t)
			e.restoreWithResult(t, target, func(o *runner.RestoreOptions) { o.Point, o.Schema = point, schema })
			expectEqualStates(t, want.ofSchema("app"), readState(t, target).ofSchema("app"))
		})
	}
}

// TestStatementsAreAppliedAsStatements covers generated columns that the source did not recompute, because a statement
// was not logged as rows.
func TestStatementsAreAppliedAsStatements(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	execStatements(t, source, "create table app.computed (id int primary key, n int, d date as ('2026-02-31') stored)")
	execInSession(t, source, "set session sql_mode = 'ALLOW_INVALID_DATES'", "insert into app.computed (id, n) values (1, 1), (2, 2)")
	e.startShipping(t, source.Address)
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	execInSession(t, source, "set session transaction_isolation = 'REPEATABLE-READ', binlog_format = 'STATEMENT', sql_mode = 'STRICT_ALL_TABLES'", "update app.computed set n = 3 where id = 1",
		"set session sql_mode = ''", "update app.computed set n = 4 where id = 2", "set session binlog_format = 'ROW'", "insert into app.t (v) values ('as rows')")
	want, point := readState(t, source), passPoint(t)
	execStatements(t, source, "create schema after_the_point")
	e.installation.Settings = []string{"transaction_isolation=READ-COMMITTED"}
	target := e.installation.StartServer(t)
	e.restoreWithResult(t, target, func(o *runner.RestoreOptions) { o.Point = point })
	expectEqualStates(t, want.ofSchema("app"), readState(t, target).ofSchema("app"))
}

// TestRowFormatOfTheTargetRefusesNoKey covers keys that are too long for the default row format of the target.
func TestRowFormatOfTheTargetRefusesNoKey(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	const create, addKey = "create table app.%s (c varchar(60))", "alter table app.%s add key long_key ((hex(c)))"
	execStatements(t, source, fmt.Sprintf(create, "dumped"), fmt.Sprintf(addKey, "dumped"))
	e.startShipping(t, source.Address)
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	execStatements(t, source, fmt.Sprintf(create, "later"), fmt.Sprintf(addKey, "later"))
	want, point := readState(t, source), passPoint(t)
	execStatements(t, source, "create schema after_the_point")
	e.installation.Settings = []string{"innodb_default_row_format=redundant"}
	target := e.installation.StartServer(t)
	expectLeftOut(t, e.restoreWithResult(t, target, func(o *runner.RestoreOptions) { o.Point = point }))
	expectEqualStates(t, want.ofSchema("app"), readState(t, target).ofSchema("app"))
	testenv.ExpectEqual(t, "the setting after the restore", "redundant", queryOne(t, target, "select @@global.innodb_default_row_format"))
}

// TestRowsAreCountedWithoutIndexes covers an index on an expression that MySQL has corrupted.
func TestRowsAreCountedWithoutIndexes(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	execInSession(t, source, "create table app.padded (id int primary key, c char(30), key ((hex(c))))", "insert into app.padded values (1, 'a'), (2, 'b'), (3, 'c')",
		"set session sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'", "update app.padded set c = 'x'")
	testenv.ExpectEqual(t, "entries of the index", "6", queryOne(t, source, "select count(*) from app.padded"))
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	target := e.installation.StartServer(t)
	expectLeftOut(t, e.restoreWithResult(t, target, unchanged))
	testenv.ExpectEqual(t, "rows", []string{"1 x", "2 x", "3 x"}, queryList(t, target, "select concat(id, ' ', c) from app.padded order by id"))
}

// expectLeftOut compares the parts that a restore omitted.
func expectLeftOut(t *testing.T, result backup.RestoreResult, want ...string) {
	t.Helper()
	found := result.Warnings[:result.LeftOut]
	if len(found) != len(want) {
		t.Errorf("expected %d parts that were left out, found %q", len(want), found)
	}
	for _, words := range want {
		if !slices.ContainsFunc(found, func(text string) bool { return strings.Contains(text, words) }) {
			t.Errorf("expected %q among the parts that were left out, found %q", words, found)
		}
	}
}

// zoneFile is a file in the time zone database.
const zoneFile = "/usr/share/zoneinfo/Europe/Berlin"

// loadTimeZone adds a time zone to a server, as spec.initializeTimezoneData does.
func loadTimeZone(t *testing.T, s *mysqld.Server) {
	t.Helper()
	if _, err := os.Stat(zoneFile); err != nil {
		t.Skipf("no time zone database: %v: install the package tzdata", err)
	}
	text, err := exec.CommandContext(t.Context(), "mysql_tzinfo_to_sql", zoneFile, "Europe/Berlin").Output()
	testenv.ExpectNoError(t, err)
	line := s.ClientCommand("moco-admin", adminPassword)
	load := exec.CommandContext(t.Context(), line[0], append(line[1:], "--init-command=set sql_log_bin = off", "mysql")...)
	load.Stdin = bytes.NewReader(text)
	out, err := load.CombinedOutput()
	if err != nil {
		t.Fatalf("load time zones: %v: %s", err, out)
	}
}

// newZoneInfo returns the folder of a time zone database with a single zone.
func newZoneInfo(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	text, err := os.ReadFile(zoneFile)
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, os.Mkdir(filepath.Join(dir, "Europe"), 0o700))
	testenv.ExpectNoError(t, os.WriteFile(filepath.Join(dir, "Europe", "Berlin"), text, 0o600))
	return dir
}

// TestNamedTimeZones covers events in a time zone that the target server does not support.
func TestNamedTimeZones(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	loadTimeZone(t, source)
	e.startShipping(t, source.Address)
	execInSession(t, source, "set time_zone = 'Europe/Berlin'", "create event app.early on schedule every 1 day starts '2027-07-01 03:00:00' do select 1",
		"create event app.wrong on schedule every 1 day starts '2027-07-01 03:00:00' do select 1")
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	const events = "select concat(event_name, ' ', time_zone, ' ', starts) from information_schema.events where event_schema = 'app' order by 1"
	dumped := queryList(t, source, events)

	t.Run("events in time zones that cannot be loaded are left out", func(t *testing.T) {
		target := e.installation.StartServer(t)
		result := e.restoreWithResult(t, target, func(o *runner.RestoreOptions) { o.ZoneInfo = t.TempDir() })
		expectLeftOut(t, result, "event app.early is not restored: MySQL's error 1298: Unknown or incorrect time zone: 'Europe/Berlin'", "event app.wrong is not restored: MySQL's error 1298")
		testenv.ExpectEqual(t, "events", []string{"e"}, queryList(t, target, "select event_name from information_schema.events where event_schema = 'app'"))
	})
	execInSession(t, source, "set time_zone = 'Europe/Berlin'", "insert into app.t (v, at) values ('zone', now())",
		"create event app.late on schedule every 1 day starts '2027-07-01 03:00:00' do select 1", "drop event app.early")
	point := passPoint(t)
	want := queryList(t, source, events)
	execStatements(t, source, "create schema after_the_point")
	t.Run("events in time zones that can be loaded are restored", func(t *testing.T) {
		target := e.installation.StartServer(t)
		result := e.restoreWithResult(t, target, func(o *runner.RestoreOptions) { o.Point, o.ZoneInfo = point, newZoneInfo(t) })
		expectLeftOut(t, result)
		testenv.ExpectEqual(t, "events", want, queryList(t, target, events))
		testenv.ExpectEqual(t, "events of the dump", 3, len(dumped))
		testenv.ExpectEqual(t, "rows", queryList(t, source, "select at from app.t order by id"), queryList(t, target, "select at from app.t order by id"))
	})
}

// TestPartsThatTheTargetRefuses covers privileges and accounts that need a plugin, and views that refer to other
// schemas.
func TestPartsThatTheTargetRefuses(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	execStatements(t, source, "install plugin rewriter soname 'rewriter.so'", "grant skip_query_rewrite, role_admin on *.* to app@'%'",
		"create schema one", "create schema two", "create table one.t (id int primary key)", "create table two.t (id int primary key)", "insert into two.t values (5)",
		"create view two.both_ as select o.id from one.t o join two.t using (id)", "create view two.good as select id from two.t")
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)

	t.Run("a privilege that the target does not support is left out", func(t *testing.T) {
		target := e.installation.StartServer(t)
		result := e.restoreWithResult(t, target, unchanged)
		expectLeftOut(t, result, "a privilege of account 'app'@'%' is not restored: SKIP_QUERY_REWRITE: MySQL's error 1149")
		grants := queryList(t, target, "show grants for app@'%'")
		if !slices.ContainsFunc(grants, func(g string) bool { return strings.Contains(g, "ROLE_ADMIN") }) || len(grants) != 4 {
			t.Errorf("expected the other privileges, found %q", grants)
		}
		want := readContents(t, source)
		testenv.ExpectEqual(t, "contents", want, readContents(t, target))
	})
	t.Run("a restore with onError Fail ends with an error", func(t *testing.T) {
		target := e.installation.StartServer(t)
		o := e.restoreOptions(target.Address)
		o.FailsOnLeftOut = true
		err := runner.RunRestore(t.Context(), o)
		expectError(t, err, "found 1 that were not: a privilege of account 'app'@'%' is not restored: SKIP_QUERY_REWRITE", "spec.restore.onError")
		if _, isRefused := errors.AsType[*runner.RefusedError](err); !isRefused {
			t.Errorf("expected an error that ends the Job, found %v", err)
		}
		testenv.ExpectEqual(t, "the mark", "1", queryOne(t, target, "select count(*) from information_schema.schemata where schema_name = 'torpor_restoring'"))
		expectLeftOut(t, e.restoreWithResult(t, target, unchanged), "SKIP_QUERY_REWRITE")
		testenv.ExpectEqual(t, "contents", readContents(t, source), readContents(t, target))
	})
	t.Run("a client that is killed after a refusal is an error", func(t *testing.T) {
		path, err := exec.LookPath("mysql")
		testenv.ExpectNoError(t, err)
		dir := t.TempDir()
		testenv.ExpectNoError(t, os.WriteFile(filepath.Join(dir, "mysql"), []byte("#!/bin/sh\n'"+path+"' \"$@\"\nkill -9 $$\n"), 0o700))
		t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		o := e.restoreOptions(e.installation.StartServer(t).Address)
		o.Schema = "two"
		expectError(t, runner.RunRestore(t.Context(), o), "signal: killed")
	})
	t.Run("a view on another schema is left out", func(t *testing.T) {
		target := e.installation.StartServer(t)
		result := e.restoreWithResult(t, target, func(o *runner.RestoreOptions) { o.Schema = "two" })
		testenv.ExpectEqual(t, "rows", []string{"5"}, queryList(t, target, "select id from two.good"))
		testenv.ExpectEqual(t, "views", []string{"good"}, queryList(t, target, "select table_name from information_schema.views where table_schema = 'two'"))
		if !slices.ContainsFunc(result.Warnings[:result.LeftOut], func(w string) bool {
			return strings.Contains(w, "view two.both_ is not restored: MySQL's error 1049: Unknown database 'one'")
		}) {
			t.Errorf("expected the view among the parts that were left out, found %q", result.Warnings)
		}
	})
}

// TestSecondPasswordsAndAccountsWithoutAName covers accounts that SHOW CREATE USER shows only in part, or not at all.
func TestSecondPasswordsAndAccountsWithoutAName(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	execStatements(t, source, "alter user app@'%' identified by 'new-secret' retain current password", "create user ''@'10.1.%' identified by 'x-secret'", "grant select on app.* to ''@'10.1.%'")
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	target := e.installation.StartServer(t)
	expectLeftOut(t, e.restoreWithResult(t, target, unchanged))
	for _, password := range []string{"app-secret", "new-secret"} {
		if err := connect(t, target, "app", password).PingContext(t.Context()); err != nil {
			t.Errorf("expected the password %s to be accepted, found %v", password, err)
		}
	}
	const accounts = "select concat(user, '@', host, ' ', hex(authentication_string), ' ', coalesce(user_attributes, '')) from mysql.user where user in ('', 'app') order by 1"
	testenv.ExpectEqual(t, "accounts", queryList(t, source, accounts), queryList(t, target, accounts))
	testenv.ExpectEqual(t, "grants", queryList(t, source, "show grants for ''@'10.1.%'"), queryList(t, target, "show grants for ''@'10.1.%'"))
}

// clientMemory is the limit for a client's address space in kilobytes. It is too small for all rows of a large
// statement at once. The program and its libraries take about half of it.
const clientMemory = 160 << 10

// limitClientMemory puts a mysql client with the limit clientMemory on the PATH.
func limitClientMemory(t *testing.T) {
	t.Helper()
	path, err := exec.LookPath("mysql")
	testenv.ExpectNoError(t, err)
	dir := t.TempDir()
	text := fmt.Sprintf("#!/bin/sh\nulimit -v %d\nexec '%s' \"$@\"\n", clientMemory, path)
	testenv.ExpectNoError(t, os.WriteFile(filepath.Join(dir, "mysql"), []byte(text), 0o700))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// TestLargeStatementsAreAppliedInParts covers statements whose rows are larger than max_allowed_packet and than the
// memory of a Job.
func TestLargeStatementsAreAppliedInParts(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	execStatements(t, source, "create table app.wide (id int auto_increment primary key, n int default 0, b mediumblob)", "insert into app.wide (b) values (random_bytes(1000))",
		"update app.wide set b = repeat(b, 64)", "create table app.total (id int primary key, n int)", "insert into app.total values (1, 0)")
	for range 9 { // 33 MB in 512 rows.
		execStatements(t, source, "insert into app.wide (b) select b from app.wide")
	}
	e.startShipping(t, source.Address)
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	execInSession(t, source, "update app.wide set n = n + 1", "update app.wide, app.total set app.wide.n = app.wide.n + 1, app.total.n = app.total.n + 1",
		"set session binlog_transaction_compression = on", "update app.wide set n = n + 1 where id % 2 = 0", "begin", "insert into app.wide (b) select b from app.wide limit 100", "delete from app.wide where id < 5", "commit")
	want, point := readContents(t, source), passPoint(t)
	execStatements(t, source, "truncate app.wide")
	limitClientMemory(t)
	for name, schema := range map[string]string{"all schemas": "", "a restore of one schema": "app"} {
		t.Run(name, func(t *testing.T) {
			target := e.installation.StartServer(t)
			execStatements(t, target, "set global max_allowed_packet = 16777216")
			e.restoreWithResult(t, target, func(o *runner.RestoreOptions) { o.Point, o.Schema = point, schema })
			found := readContents(t, target)
			for _, table := range []string{"`app`.`wide`", "`app`.`total`"} {
				testenv.ExpectEqual(t, table, want[table], found[table])
			}
		})
	}
}
