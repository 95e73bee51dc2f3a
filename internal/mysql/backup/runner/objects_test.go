// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
	"github.com/torpor-dev/torpor/internal/mysql/backup/runner"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestBrokenViews covers all kinds of views with which mysqldump fails, and valid views that look similar.
func TestBrokenViews(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	execStatements(t, source,
		"create table app.gone2 (id int primary key, v int)", "create view app.on_table as select * from app.gone2", "create view app.on_view as select id from app.on_table",
		"create table app.narrow (id int primary key, v int)", "create view app.on_column as select v from app.narrow",
		"create function app.vanishes() returns int deterministic return 1", "create view app.on_routine as select app.vanishes() as one",
		"create user short@'%'", "create definer = short@'%' view app.on_definer as select id from app.t",
		"create user poor@'%'", "create definer = poor@'%' view app.on_right as select id from app.t",
		"create schema doomed", "create table doomed.t (id int)", "create view app.on_schema as select * from doomed.t", "drop schema doomed",
		"create view app.valid as select id from app.narrow",
		"create view `odd ``name`.`a ``view` as select * from app.gone2",
		"drop table app.gone2", "alter table app.narrow drop column v", "drop function app.vanishes", "drop user short@'%'",
	)
	status, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	const named = "because they refer to tables, columns or routines that are missing: app.on_column, app.on_routine, app.on_schema, app.on_table, app.on_view; correct or drop them"
	testenv.ExpectEqual(t, "warnings", []string{"6 views are not in the backup, " + named}, status.Warnings)
	target := e.installation.StartServer(t)
	o, restored := e.restoreOptions(target.Address), mocov1beta2.BackupStatus{}
	o.Result = filepath.Join(t.TempDir(), "result")
	testenv.ExpectNoError(t, runner.RunRestore(t.Context(), o))
	readJSON(t, o.Result, &restored)
	if !slices.Contains(restored.Warnings, "6 views are not restored, "+named) {
		t.Errorf("expected a warning that names the views, found %q", restored.Warnings)
	}
	const views = "select table_name from information_schema.views where table_schema not like '%sys' order by 1"
	testenv.ExpectEqual(t, "views", []string{"on_definer", "on_right", "valid", "w"}, queryList(t, target, views))
	if n := queryOne(t, target, "select count(*) from information_schema.schemata where schema_name = 'torpor_restoring'"); n != "0" {
		t.Error("expected the mark to be gone")
	}

	t.Run("repaired views are in the next backup", func(t *testing.T) {
		execStatements(t, source, "create table app.gone2 (id int primary key, v int)", "alter table app.narrow add column v int",
			"create function app.vanishes() returns int deterministic return 1", "create schema doomed", "create table doomed.t (id int)")
		status, err := e.runBackup(t.Context(), t, source.Address)
		testenv.ExpectNoError(t, err)
		testenv.ExpectEqual(t, "warnings", []string(nil), status.Warnings)
		target := e.installation.StartServer(t)
		testenv.ExpectNoError(t, e.runRestore(t, target.Address))
		testenv.ExpectEqual(t, "views", queryList(t, source, views), queryList(t, target, views))
	})
	t.Run("a broken view with the name of a table in another case fails the backup", func(t *testing.T) {
		// mysqldump would omit the table as well.
		execStatements(t, source, "create table app.NAMESAKE (id int)", "create table app.gone3 (id int)", "create view app.namesake as select * from app.gone3", "drop table app.gone3")
		_, err := e.runBackup(t.Context(), t, source.Address)
		expectError(t, err, "app.namesake", "1356")
		if strings.Contains(err.Error(), "check the bucket") {
			t.Errorf("expected no advice about the bucket, found %v", err)
		}
	})
}

// TestViewThatIsBrokenOnlyAtTheBackup covers statements about a view that is broken during the backup and repaired in
// later binary logs.
func TestViewThatIsBrokenOnlyAtTheBackup(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	e.startShipping(t, source.Address)
	execStatements(t, source,
		"create table app.staging (id int primary key)",
		"create view app.a_view as select 1 as id", "create view app.over_staging as select id from app.staging", "create or replace view app.a_view as select id from app.over_staging",
		"create view app.dropped as select id from app.staging", "create view app.replaced as select id from app.staging", "create view app.stays as select id from app.staging where id > 1",
		"drop table app.staging",
	)
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	execStatements(t, source, "drop view app.dropped, app.w", "create or replace view app.replaced as select 2 as id", "create table app.staging (id int primary key)", "insert into app.staging values (1), (2)")
	w := startRowWriter(t, source)
	begun := len(queryList(t, source, "select id from app.ticks"))
	waitForRows(t, source, begun+40)
	w.stop()
	target := e.installation.StartServer(t)
	// These objects remain from a restore that was killed after it had created stand-in tables.
	execStatements(t, target, "set global super_read_only = off", "create schema torpor_restoring", "create table torpor_restoring.backup (record varchar(512) primary key)",
		"create schema app", "create view app.stays as select record from torpor_restoring.backup", "set global event_scheduler = off")
	o := e.restoreOptions(target.Address)
	o.Point = momentBefore(t, source, begun+25)
	testenv.Eventually(t, "the point can be reached", func() error { return runner.RunRestore(t.Context(), o) })
	testenv.ExpectEqual(t, "the scheduler", "ON", queryOne(t, target, "select @@global.event_scheduler"))
	const views = "select concat(table_schema, '.', table_name, ' ', view_definition) from information_schema.views where table_schema = 'app' order by 1"
	testenv.ExpectEqual(t, "views", queryList(t, source, views), queryList(t, target, views))
	testenv.ExpectEqual(t, "rows", []string{"2"}, queryList(t, target, "select id from app.stays"))
}

// TestLineBreaksOfRoutinesStay covers routines that were written with Windows line breaks.
func TestLineBreaksOfRoutinesStay(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	execStatements(t, source,
		"create function app.crlf() returns text deterministic return 'x\\0y\r\nz'",
		"create procedure app.block()\r\nbegin\r\n  -- delimiter $$\r\n  select ';;';\r\n  select 'a\r\nb';\r\nend",
		"create trigger app.crlf before insert on app.parent for each row set @x = 'a\r\nb'",
		"create event app.crlf on schedule every 1 day do select 'a\r\nb'", "insert into app.t (v) values ('a\r\nb')",
	)
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	target := e.installation.StartServer(t)
	testenv.ExpectNoError(t, e.runRestore(t, target.Address))
	for _, query := range []string{
		"select hex(app.crlf())", "select hex(routine_definition) from information_schema.routines where routine_schema = 'app' order by routine_name",
		"select hex(action_statement) from information_schema.triggers where trigger_schema = 'app' order by trigger_name",
		"select hex(event_definition) from information_schema.events where event_schema = 'app' order by event_name", "select hex(v) from app.t order by id",
	} {
		testenv.ExpectEqual(t, query, queryList(t, source, query), queryList(t, target, query))
	}
}

// TestAccountsOfAServerWithANSIQuotes covers a setting that changes how SHOW quotes names.
func TestAccountsOfAServerWithANSIQuotes(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	execStatements(t, source, "set global sql_mode = 'ANSI_QUOTES,STRICT_TRANS_TABLES'")
	_, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	target := e.installation.StartServer(t)
	testenv.ExpectNoError(t, e.runRestore(t, target.Address))
	testenv.ExpectEqual(t, "contents", readContents(t, source), readContents(t, target))
}

// TestEventsDoNotRunDuringARestore kills a restore while it loads an event whose definer may write to a read-only
// server.
func TestEventsDoNotRunDuringARestore(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	execStatements(t, source, "create table app.beats (id int auto_increment primary key, at datetime)",
		"create event app.beat on schedule every 1 second do insert into app.beats (at) values (now())",
		"create schema zlater", "create table zlater.large (id int auto_increment primary key, b blob)", "insert into zlater.large (b) values (random_bytes(1000))")
	for range 12 {
		execStatements(t, source, "insert into zlater.large (b) select random_bytes(1000) from zlater.large")
	}
	status, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	target := e.installation.StartServer(t)
	l := newHaltingProxy(t, target, toServer, halfway/2)
	p := startProgram(t, e, adminPassword, "restore", "--source=ns/test", "--host="+l.Address, "--restore-point="+time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
	l.waitUntilHalted(t)
	const state = "select concat(@@global.event_scheduler, ' ', (select count(*) from information_schema.events where event_name = 'beat' and status = 'ENABLED'))"
	testenv.ExpectEqual(t, "the scheduler while the next schema is loaded", "OFF 1", queryOne(t, target, state))
	p.KillAtOnce(t)
	l.closeAll()
	testenv.ExpectEqual(t, "the scheduler after the kill", "OFF 1", queryOne(t, target, state))
	testenv.Eventually(t, "the next run succeeds", func() error { return e.runRestore(t, target.Address) })
	testenv.ExpectEqual(t, "the scheduler after the restore", "ON 1", queryOne(t, target, state))
	testenv.ExpectEqual(t, "transactions", status.GTIDSet, queryOne(t, target, "select @@gtid_executed"))

	t.Run("a restore that was killed before it made the instance read-only is finished", func(t *testing.T) {
		execStatements(t, target, "set global super_read_only = off, global event_scheduler = off")
		testenv.ExpectNoError(t, e.runRestore(t, target.Address))
		testenv.ExpectEqual(t, "the scheduler", "ON 1", queryOne(t, target, state))
		testenv.ExpectEqual(t, "super_read_only", "1", queryOne(t, target, "select @@super_read_only"))
	})
	for _, setting := range []string{"OFF", "DISABLED"} {
		t.Run("a scheduler that is "+setting+" stays so", func(t *testing.T) {
			e.installation.Settings = []string{"event_scheduler=" + setting}
			still := e.installation.StartServer(t)
			testenv.ExpectNoError(t, e.runRestore(t, still.Address))
			testenv.ExpectEqual(t, "the scheduler", setting+" 1", queryOne(t, still, state))
		})
	}
}

// TestRefusalEndsTheJob runs the program. Its exit code prevents the Job from retrying.
func TestRefusalEndsTheJob(t *testing.T) {
	e := newTestEnv(t)
	e.bucket = bucket.Config{Folder: t.TempDir()}
	source := e.startPrimary(t)
	status, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	p := startProgram(t, e, adminPassword, "restore", "--source=ns/test", "--host=127.77.250.1", "--user=nobody", "--restore-point="+status.Time.UTC().Format(time.RFC3339))
	<-p.ExitChannel()
	if code := p.ExitCode(); code != runner.RefusedExitCode {
		t.Errorf("expected the exit code %d, found %d", runner.RefusedExitCode, code)
	}
}
