// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/backup/runner"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// execInSession runs statements in one session, so USE and SET apply to the statements that follow.
func execInSession(t *testing.T, s *mysqld.Server, statements ...string) {
	t.Helper()
	session, err := connect(t, s, "moco-admin", adminPassword).Conn(t.Context())
	testenv.ExpectNoError(t, err)
	defer func() { _ = session.Close() }() // The statements have returned.
	for _, statement := range statements {
		if _, err := session.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// describeSchema returns the definitions of all objects in a schema, and checksums of the rows.
func describeSchema(t *testing.T, s *mysqld.Server, name string) []string {
	t.Helper()
	var all []string
	for _, query := range []string{
		"select concat('charset ', default_character_set_name) from information_schema.schemata where schema_name = '%s'",
		"select concat('column ', table_name, '.', column_name, ' ', column_type, ' ', is_nullable, ' ', extra) from information_schema.columns where table_schema = '%s' order by 1",
		"select concat('index ', table_name, '.', index_name, '.', column_name) from information_schema.statistics where table_schema = '%s' order by 1",
		"select concat('foreign key ', table_name, ' ', referenced_table_name, ' ', delete_rule) from information_schema.referential_constraints where constraint_schema = '%s' order by 1",
		"select concat('view ', table_name, ' ', view_definition) from information_schema.views where table_schema = '%s' order by 1",
		"select concat('routine ', routine_name, ' ', routine_definition) from information_schema.routines where routine_schema = '%s' order by 1",
		"select concat('trigger ', trigger_name, ' ', action_statement) from information_schema.triggers where trigger_schema = '%s' order by 1",
		"select concat('event ', event_name, ' ', event_definition) from information_schema.events where event_schema = '%s' order by 1",
	} {
		all = append(all, queryList(t, s, fmt.Sprintf(query, name))...)
	}
	for key, sum := range readContents(t, s) {
		if strings.HasPrefix(key, "`"+name+"`.") {
			all = append(all, key+" "+sum)
		}
	}
	slices.Sort(all)
	return all
}

// sessionsAfterBackup returns statements, by session, that change the schemas one and two after a backup.
func sessionsAfterBackup() [][]string {
	return [][]string{
		// Statements without a default schema, as migrations and administration tools often send them.
		{"truncate table two.t", "insert into two.t values (9, 'x')", "create table two.fresh (id int primary key)", "insert into two.fresh values (9)"},
		{"alter table two.t drop column v", "insert into two.t values (10)", "create table two.twin like two.t", "create table two.copied as select * from two.t"},
		{"/* tool */ truncate /* all */ `two` . `emptied`", "insert into one.t values (50)", "truncate one.emptied", "create table one.twin like one.t"},
		// Statements with the other schema or with their own schema as the default schema.
		{"use two", "alter table one.t add column n int", "insert into one.t values (51, 1)", "create table one.made_from_two (id int)"},
		{"use one", "alter table two.t add column w int default 7", "create table two.made_from_one (id int primary key)", "create index w on two.t (w)"},
		{"use two", "create view shown as select id from t", "insert into t (id) values (11)", "rename table copied to renamed"},
		{
			"use one", "create procedure two.p() insert into two.t (id) values (99)", "create function two.f() returns int deterministic return 1",
			"create trigger two.tr before insert on two.fresh for each row set new.id = new.id + 100", "create event two.e on schedule every 1 day do delete from two.t",
		},
		// Both schemas in one transaction, and in one statement.
		{
			"begin", "insert into two.t (id) values (12)", "insert into one.emptied values (1)", "savepoint s", "insert into two.t (id) values (13)", "rollback to s",
			"insert into one.emptied values (2)", "insert into two.t (id) values (14)", "commit",
		},
		{"update two.t, one.t set two.t.w = 8, one.t.id = one.t.id + 1000 where two.t.id = 9"},
		{"update one.t, two.t set one.t.id = one.t.id + 1000, two.t.w = 9 where two.t.id = 10"},
		{"insert into two.fresh values (10)", "delete from two.parent where id = 1"},
		// Foreign keys to the other schema, which does not exist on the target server.
		{
			"insert into one.parent values (1), (2), (3)", "insert into two.of_one values (1, 1), (2, 2)", "update two.of_one set parent = 3 where id = 1", "replace into two.of_one values (2, 1)",
			"update one.parent set id = 9 where id = 3", "delete from one.parent where id = 1", "insert into two.below values (1, 1), (2, 2)", "update two.of_one set id = 11 where id = 1", "delete from two.of_one where id = 2",
			"create table two.late (id int primary key, foreign key (id) references one.parent (id))", "insert into two.late values (2)",
			"alter table two.below add column other int, add foreign key (other) references one.parent (id)", "update two.below set other = 9",
		},
		// Other formats in the binary log.
		{"set session binlog_transaction_compression = on", "begin", "insert into two.t (id) values (15)", "insert into one.emptied values (3)", "insert into two.t (id) values (16)", "commit"},
		{"set session binlog_rows_query_log_events = on", "insert into two.t (id) values (17)", "insert into one.emptied values (4)"},
		{"set session binlog_row_value_options = partial_json", "update two.document set d = json_set(d, '$.a', 2)"},
		{"set session binlog_format = statement", "insert into two.t (id, w) values (18, 1)", "insert into one.emptied values (5)", "use one", "set @w = 19", "insert into two.t (id, w) values (@w, 2)"},
		{"xa start 'both'", "insert into two.t (id) values (20)", "insert into one.emptied values (6)", "xa end 'both'", "xa prepare 'both'", "xa commit 'both'"},
		{"xa start 'other'", "insert into one.emptied values (7)", "xa end 'other'", "xa prepare 'other'", "xa commit 'other'"},
		{"xa start 'single'", "insert into two.t (id) values (21)", "xa end 'single'", "xa commit 'single' one phase"},
		// Statements about the server and its accounts.
		{"create user late@'%' identified by 'late-secret'", "grant select on two.t to late@'%'", "grant select on one.t to late@'%'", "grant insert on one.* to late@'%'"},
		{"flush tables", "analyze table one.t, two.t", "create tablespace space add datafile 'space.ibd'", "create table two.spaced (id int) tablespace space"},
		{"drop table one.twin", "drop view two.shown", "create view two.shown as select 1 as id", "drop table two.made_from_one", "alter schema two character set latin1"},
		{"create schema third", "use third", "create table third.t (id int)", "drop table two.twin", "drop schema third"},
	}
}

// startSchemas starts a primary with two schemas, makes a backup, and starts shipping its binary logs.
func startSchemas(t *testing.T, e *testEnv) (source *mysqld.Server, stopShipping func()) {
	t.Helper()
	source = e.startPrimary(t)
	stopShipping = e.startShipping(t, source.Address)
	execStatements(t, source, "create schema one", "create schema two", "create table one.t (id int primary key)", "insert into one.t values (1), (2)",
		"create table one.emptied (id int)", "create table two.t (id int primary key, v varchar(10))", "insert into two.t values (1, 'a'), (2, 'b'), (3, 'c')",
		"create table two.emptied (id int)", "insert into two.emptied values (1)",
		"create table two.document (id int primary key, d json)", "insert into two.document values (1, '{\"a\": 1}')",
		"create table two.parent (id int primary key)", "create table two.child (id int primary key, foreign key (id) references two.parent (id) on delete cascade)",
		"create table one.child (id int primary key, foreign key (id) references two.parent (id) on delete cascade)",
		"create table one.parent (id int primary key)", "create table two.of_one (id int primary key, parent int, foreign key (parent) references one.parent (id) on update cascade on delete set null)",
		"create table two.below (id int primary key, above int, foreign key (above) references two.of_one (id) on update cascade on delete cascade)",
		// These statements are in the dump, so it does not matter that they change both schemas.
		"create table two.modelled like one.t", "rename table two.modelled to one.modelled",
		"insert into two.parent values (1), (2)", "insert into two.child values (1), (2)", "insert into one.child values (1), (2)")
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	return source, stopShipping
}

// passPoint returns a restore point after everything that was committed, and waits until the point has passed.
func passPoint(t *testing.T) time.Time {
	t.Helper()
	point := time.Now().Truncate(time.Second).Add(2 * time.Second) // The time of a backup is rounded up.
	testenv.Eventually(t, "the point is over", func() error { return testenv.ErrorIf(!time.Now().After(point.Add(time.Second)), "not yet") })
	return point
}

// TestOneSchemaIsRestoredToAPointAfterTheBackup restores each schema alone and compares it with the source.
func TestOneSchemaIsRestoredToAPointAfterTheBackup(t *testing.T) {
	e := newTestEnv(t)
	source, stopShipping := startSchemas(t, e)
	for _, session := range sessionsAfterBackup() {
		execInSession(t, source, session...)
	}
	want, executed := map[string][]string{}, queryOne(t, source, "select @@gtid_executed")
	for _, schema := range []string{"one", "two"} {
		want[schema] = describeSchema(t, source, schema)
	}
	point := passPoint(t)
	execStatements(t, source, "truncate two.t", "truncate one.t") // The transaction after the point ends the copy.
	for _, schema := range []string{"one", "two"} {
		target := e.installation.StartServer(t)
		o := e.restoreOptions(target.Address)
		o.Schema, o.Point = schema, point
		testenv.Eventually(t, "the point can be reached", func() error { return runner.RunRestore(t.Context(), o) })
		testenv.ExpectEqual(t, "schema "+schema, want[schema], describeSchema(t, target, schema))
		testenv.ExpectEqual(t, "transactions", executed, queryOne(t, target, "select @@gtid_executed"))
		testenv.ExpectEqual(t, "schemas", []string{schema}, queryList(t, target,
			"select schema_name from information_schema.schemata where schema_name not in ('information_schema', 'mysql', 'performance_schema', 'sys')"))
		if _, err := connect(t, target, "late", "late-secret").ExecContext(t.Context(), "select 1"); err != nil {
			t.Errorf("expected the account that was created after the backup, found %v", err)
		}
	}
	stopShipping()
}

// TestInseparableBinaryLogsAreRefused covers statements whose effect on one schema depends on another schema.
func TestInseparableBinaryLogsAreRefused(t *testing.T) {
	for statement, want := range map[string]string{
		"rename table two.emptied to one.moved": "a statement RENAME TABLE that changes the schemas two and one",
		"create table two.modelled like one.t":  "a statement CREATE TABLE that changes the schemas one and two",
	} {
		t.Run(statement, func(t *testing.T) {
			e := newTestEnv(t)
			source, stopShipping := startSchemas(t, e)
			execStatements(t, source, statement)
			point := passPoint(t)
			execStatements(t, source, "create schema later")
			target := e.installation.StartServer(t)
			o := e.restoreOptions(target.Address)
			o.Schema, o.Point = "two", point
			var err error
			testenv.Eventually(t, "the binary logs reach the point", func() error {
				err = runner.RunRestore(t.Context(), o)
				return testenv.ErrorIf(err == nil || strings.Contains(err.Error(), "expected the binary logs to reach"), "found %v", err)
			})
			stopShipping()
			expectError(t, err, want, "restore all schemas into a new MySQLCluster", "restores the backup alone")
			if n := queryOne(t, target, "select count(*) from information_schema.schemata where schema_name in ('two', 'torpor_restoring')"); n != "0" {
				t.Errorf("expected nothing to be written, found %s schemas", n)
			}
		})
	}
}
