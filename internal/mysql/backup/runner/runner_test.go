// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"k8s.io/utils/clock"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
	"github.com/torpor-dev/torpor/internal/mysql/backup/runner"
	"github.com/torpor-dev/torpor/internal/mysql/certificates"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

func TestBackupAndRestore(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	store, err := bucket.OpenStore(t.Context(), e.bucket)
	testenv.ExpectNoError(t, err)
	for key, text := range map[string]string{
		backup.SegmentKey("ns", "test", time.Unix(0, 0), "a"): "four",
		backup.SegmentKey("ns", "test", time.Unix(1, 0), "b"): "seven",
		backup.SegmentPrefix("ns", "test") + "other":          "not a binary log",
	} {
		_, err := store.PutObject(t.Context(), key, strings.NewReader(text))
		testenv.ExpectNoError(t, err)
	}

	status, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	testenv.ExpectEqual(t, "size of the binary logs", int64(len("four")+len("seven")), status.BinlogSize)
	want := readContents(t, source)
	if found := queryOne(t, source, "select @@gtid_executed"); found != status.GTIDSet || status.GTIDSet == "" {
		t.Errorf("expected the transactions %q in the status, found %q", found, status.GTIDSet)
	}
	if status.DumpSize == 0 || status.SourceUUID != queryOne(t, source, "select @@server_uuid") || len(status.Warnings) > 0 || status.Elapsed.Duration <= 0 {
		t.Errorf("expected size, source and duration without warnings, found %+v", status)
	}

	target := e.installation.StartServer(t)
	o, restored := e.restoreOptions(target.Address), mocov1beta2.BackupStatus{}
	o.Result = filepath.Join(t.TempDir(), "result")
	testenv.ExpectNoError(t, runner.RunRestore(t.Context(), o))
	readJSON(t, o.Result, &restored)
	testenv.ExpectEqual(t, "warnings", []string{"account 'reader'@'%' lacks 2 of its grants, which are for tables, columns or routines that were not restored"}, restored.Warnings)
	testenv.ExpectEqual(t, "contents", want, readContents(t, target))
	if found := queryOne(t, target, "select @@gtid_executed"); found != status.GTIDSet {
		t.Errorf("expected the transactions %q, found %q", status.GTIDSet, found)
	}
	if found := queryOne(t, target, "select @@super_read_only and @@read_only"); found != "1" {
		t.Error("expected the instance to be closed after the restore, found it open")
	}
	app := connect(t, target, "app", "app-secret")
	if _, err := app.ExecContext(t.Context(), "select * from app.t"); err != nil {
		t.Errorf("expected account app with its password and its role's rights, found %v", err)
	}

	t.Run("a second run changes nothing", func(t *testing.T) {
		if err := e.runRestore(t, target.Address); err != nil {
			t.Error(err)
		}
	})
	t.Run("an instance that has data is not changed", func(t *testing.T) {
		execStatements(t, target, "set global super_read_only = off", "create schema precious", "set global super_read_only = on")
		expectError(t, e.runRestore(t, target.Address), "to be empty")
		if queryOne(t, target, "select count(*) from information_schema.schemata where schema_name = 'precious'") != "1" {
			t.Error("the schema is gone")
		}
	})
	t.Run("an instance that serves clients is not changed", func(t *testing.T) {
		expectError(t, e.runRestore(t, source.Address), "is in service")
	})
}

func TestBackupDuringConcurrentWrites(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	var rows atomic.Int64
	for range 2 {
		db := connect(t, source, "moco-admin", adminPassword)
		writers.Go(func() {
			for ctx.Err() == nil {
				if _, err := db.ExecContext(ctx, "insert into app.t (v, b) values (uuid(), random_bytes(1000))"); err == nil {
					rows.Add(1)
				}
			}
		})
	}
	testenv.Eventually(t, "rows are written", func() error {
		return testenv.ErrorIf(rows.Load() < 200, "too few")
	})
	status, err := e.runBackup(t.Context(), t, source.Address)
	during := rows.Load()
	stop()
	writers.Wait()
	testenv.ExpectNoError(t, err)
	target := e.installation.StartServer(t)
	testenv.ExpectNoError(t, e.runRestore(t, target.Address))
	// Every row is one transaction, so the last number of the GTID set must match the number of rows.
	count := queryOne(t, target, "select count(*) from app.t")
	expected := queryOne(t, target, "select substring_index(@@gtid_executed, '-', -1) - "+nonRowTransactions(t, status.GTIDSet))
	if count != expected {
		t.Errorf("expected %s rows with the transactions %s, found %s", expected, status.GTIDSet, count)
	}
	t.Logf("%s rows in the dump, %d written when it had ended", count, during)
	// Later transactions can be replayed on top of the restored data. After that, both servers have the same rows.
	execStatements(t, target, "set global super_read_only = off",
		"change replication source to source_host = '"+source.Address+"', source_user = 'moco-repl', source_password = 'secret-r', source_auto_position = 1, get_source_public_key = 1",
		"start replica")
	testenv.Eventually(t, "the restored server follows its source", func() error {
		a, b := queryOne(t, source, "select @@gtid_executed"), queryOne(t, target, "select @@gtid_executed")
		return testenv.ErrorIf(a != b, "%s of %s", b, a)
	})
	testenv.ExpectEqual(t, "contents", readContents(t, source), readContents(t, target))
}

// nonRowTransactions returns the number of transactions in a GTID set that did not insert into app.t.
func nonRowTransactions(t *testing.T, set string) string {
	t.Helper()
	if !strings.Contains(set, ":1-") {
		t.Fatalf("expected one interval from 1 on, found %q", set)
	}
	return "(" + strconv.Itoa(len(schemaStatements())-1) + ")"
}

func expectError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("expected an error, found none")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("expected %q in the error, found %v", w, err)
		}
	}
	if strings.Contains(err.Error(), "secret-") {
		t.Errorf("the error shows a password: %v", err)
	}
}

// halfway is a number of bytes. The start of a dump or restore transfers fewer bytes, and all of it transfers more.
const halfway = 2 << 20

// fillLargeTable fills a table, so the dump is large enough to be interrupted halfway.
func fillLargeTable(t *testing.T, s *mysqld.Server) {
	t.Helper()
	execStatements(t, s, "create table app.large (id int auto_increment primary key, b blob)", "insert into app.large (b) values (random_bytes(1000))")
	for range 12 { // 4 MB in a table that is neither the first nor the last one.
		execStatements(t, s, "insert into app.large (b) select random_bytes(1000) from app.large")
	}
}

// startProgram runs the torpor program as a process, which can be killed.
func startProgram(t *testing.T, e *testEnv, password string, args ...string) *testenv.Process {
	t.Helper()
	path := testenv.TorporPath(t)
	return testenv.StartProcess(t, path, append(args, e.bucketFlags()...), programEnv(t, password))
}

// bucketFlags returns the flags of the torpor program for the bucket or the folder.
func (e *testEnv) bucketFlags() []string {
	if e.bucket.Folder != "" {
		return []string{"--folder=" + e.bucket.Folder}
	}
	return []string{"--bucket=" + e.bucket.Name, "--endpoint=" + e.bucket.Endpoint, "--path-style"}
}

// programEnv returns the variables of the torpor program, in addition to those of the test.
func programEnv(t *testing.T, password string) []string {
	t.Helper()
	return []string{"TORPOR_MYSQL_PASSWORD=" + password, "TMPDIR=" + t.TempDir()}
}

func TestKilledBackup(t *testing.T) {
	t.Run("a backup into a bucket", func(t *testing.T) { testKilledBackup(t, newTestEnv(t), func() {}) })
	t.Run("a backup into a folder", func(t *testing.T) {
		e := newTestEnv(t)
		e.bucket = bucket.Config{Folder: t.TempDir()}
		testKilledBackup(t, e, func() {
			testenv.Eventually(t, "a part of the dump is written", func() error {
				size := int64(0)
				found, err := filepath.Glob(filepath.Join(e.bucket.Folder, "moco/ns/test/*/dump.sql.zst*"))
				for _, name := range found {
					var file os.FileInfo
					if file, err = os.Stat(name); err == nil {
						size += file.Size()
					}
				}
				return testenv.ErrorIf(size == 0, "found nothing in %q (%w)", found, err)
			})
		})
	})
}

func testKilledBackup(t *testing.T, e *testEnv, ready func()) {
	t.Helper()
	source := e.startPrimary(t)
	fillLargeTable(t, source)
	l := newHaltingProxy(t, source, toClient, halfway)
	p := startProgram(t, e, backupPassword, "backup", "--cluster=ns/test", "--host="+l.Address)
	l.waitUntilHalted(t)
	ready()
	p.KillAtOnce(t)
	l.closeAll()
	target := e.installation.StartServer(t)
	expectError(t, e.runRestore(t, target.Address), "expected a backup of ns/test", "none at all")

	if _, err := e.runBackup(t.Context(), t, source.Address); err != nil {
		t.Fatal(err)
	}
	testenv.ExpectNoError(t, e.runRestore(t, target.Address))
	testenv.ExpectEqual(t, "contents", readContents(t, source), readContents(t, target))
}

func TestKilledRestore(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	fillLargeTable(t, source)
	if _, err := e.runBackup(t.Context(), t, source.Address); err != nil {
		t.Fatal(err)
	}
	target := e.installation.StartServer(t)
	l := newHaltingProxy(t, target, toServer, halfway)
	p := startProgram(t, e, adminPassword, "restore", "--source=ns/test", "--host="+l.Address, "--restore-point="+time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
	l.waitUntilHalted(t)
	// The table is locked during the load, so the rows are counted with the server's status variable.
	if queryOne(t, target, "select variable_value >= 100 from performance_schema.global_status where variable_name = 'Innodb_rows_inserted'") != "1" {
		t.Error("expected a part of the rows to be loaded, found none")
	}
	p.KillAtOnce(t)
	l.closeAll()
	if queryOne(t, target, "select count(*) from information_schema.schemata where schema_name = 'torpor_restoring'") != "1" {
		t.Error("expected the mark of half a restore, found none")
	}
	testenv.Eventually(t, "the next run succeeds", func() error { return e.runRestore(t, target.Address) })
	testenv.ExpectEqual(t, "contents", readContents(t, source), readContents(t, target))
	if a, b := queryOne(t, source, "select @@gtid_executed"), queryOne(t, target, "select @@gtid_executed"); a != b {
		t.Errorf("expected the transactions %s, found %s", a, b)
	}
}

func TestBackupThatIsGivenUp(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	fillLargeTable(t, source)
	scratch := t.TempDir()
	t.Setenv("TMPDIR", scratch)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := newHaltingProxy(t, source, toClient, halfway)
	ended := make(chan error, 1)
	go func() {
		_, err := e.runBackup(ctx, t, l.Address)
		ended <- err
	}()
	l.waitUntilHalted(t)
	if found, err := filepath.Glob(filepath.Join(scratch, "torpor-*", "client.cnf")); err != nil || len(found) != 1 {
		t.Errorf("expected one file with a password while the dump runs, found %q, %v", found, err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Fatal("expected an error, found none")
	}
	left, err := filepath.Glob(filepath.Join(scratch, "*", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("expected no file with a password to stay, found %q, %v", left, err)
	}
	expectError(t, e.runRestore(t, e.installation.StartServer(t).Address), "none at all")
}

func TestRefusals(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	if _, err := e.runBackup(t.Context(), t, source.Address); err != nil {
		t.Fatal(err)
	}
	t.Run("no instance is reachable", func(t *testing.T) {
		_, err := e.runBackup(t.Context(), t, "127.77.250.1", "127.77.250.2")
		expectError(t, err, "instance 0 does not answer, instance 1 does not answer")
	})
	t.Run("a wrong password", func(t *testing.T) {
		execStatements(t, source, "create user if not exists someone@'%' identified by 'x'", "alter user 'moco-backup'@'%' identified by 'other'")
		_, err := e.runBackup(t.Context(), t, source.Address)
		expectError(t, err, "wrong user or password")
		execStatements(t, source, "alter user 'moco-backup'@'%' identified by "+`'secret-b"\\ '`)
	})
	t.Run("a restore point before the first backup", func(t *testing.T) {
		o := e.restoreOptions(e.installation.StartServer(t).Address)
		o.Point = o.Point.AddDate(-1, 0, 0)
		expectError(t, runner.RunRestore(t.Context(), o), "found only later backups (1, the first at", "choose a later restore point")
	})
	t.Run("an account that is not in the backup", func(t *testing.T) {
		o := e.restoreOptions(e.installation.StartServer(t).Address)
		o.Users = []string{"nobody"}
		expectError(t, runner.RunRestore(t.Context(), o), `expected account "nobody" in the backup`)
	})
	t.Run("one schema and one account are restored alone", func(t *testing.T) {
		target := e.installation.StartServer(t)
		o := e.restoreOptions(target.Address)
		o.Schema, o.Users = "odd `name", []string{"'reader'@'%'"}
		testenv.ExpectNoError(t, runner.RunRestore(t.Context(), o))
		var found []string
		for key := range readContents(t, target) {
			found = append(found, key)
		}
		want := map[string]bool{"schemas odd `name": true, "`odd ``name`.`a b`": true}
		for _, key := range found {
			if !want[key] && !strings.HasPrefix(key, "accounts reader@%") {
				t.Errorf("expected only %v and reader, found %s", want, key)
			}
		}
		if len(found) != 3 {
			t.Errorf("expected 3 things, found %q", found)
		}
	})
	t.Run("a schema that is not in the backup", func(t *testing.T) {
		o := e.restoreOptions(e.installation.StartServer(t).Address)
		o.Schema = "nowhere"
		expectError(t, runner.RunRestore(t.Context(), o), `expected schema "nowhere" in the backup`)
	})
}

func TestReplicaIsDumped(t *testing.T) {
	e := newTestEnv(t)
	source, replica := e.startPrimary(t), e.installation.StartServer(t)
	execStatements(t, replica, "change replication source to source_host = '"+source.Address+"', source_user = 'moco-repl', source_password = 'secret-r', source_auto_position = 1, get_source_public_key = 1", "start replica")
	testenv.Eventually(t, "the replica is dumped", func() error {
		status, err := e.runBackup(t.Context(), t, source.Address, replica.Address)
		if err != nil || status.SourceIndex != 1 {
			return errors.Join(err, errors.New("not yet: "+strings.Join(status.Warnings, ", ")))
		}
		return nil
	})
	o, restored := e.restoreOptions(e.installation.StartServer(t).Address), mocov1beta2.BackupStatus{}
	o.Result = filepath.Join(t.TempDir(), "result")
	var log strings.Builder
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	testenv.ExpectNoError(t, runner.RunRestore(t.Context(), o))
	readJSON(t, o.Result, &restored)
	if !strings.Contains(log.String(), "1 events are disabled") { // The status may refer to the log.
		t.Errorf("expected the warning in the log, found:\n%s", &log)
	}
	if !slices.ContainsFunc(restored.Warnings, func(w string) bool {
		return strings.HasPrefix(w, "1 events are disabled") && strings.Contains(w, "app.e")
	}) {
		t.Errorf("expected a warning about the event that a replica has disabled, found %q", restored.Warnings)
	}
	commitInReplicaFirst(t, source, replica, func() {
		status, err := e.runBackup(t.Context(), t, source.Address, replica.Address)
		if err != nil || status.SourceIndex != 1 || len(status.Warnings) > 0 {
			t.Errorf("expected the replica although the primary still commits one of its transactions, found %+v, %v", status, err)
		}
	})
	execStatements(t, replica, "stop replica sql_thread")
	status, err := e.runBackup(t.Context(), t, source.Address, replica.Address)
	if err != nil || status.SourceIndex != 0 || len(status.Warnings) != 1 || !strings.Contains(status.Warnings[0], "instance 1 does not replicate") {
		t.Errorf("expected the primary with a warning, found %+v, %v", status, err)
	}
	execStatements(t, replica, "start replica sql_thread", "set global super_read_only = off", "create schema errant", "set global super_read_only = on")
	status, err = e.runBackup(t.Context(), t, source.Address, replica.Address)
	if err != nil || status.SourceIndex != 0 || len(status.Warnings) != 1 || !strings.Contains(status.Warnings[0], "has transactions that the primary does not have") {
		t.Errorf("expected the primary with a warning, found %+v, %v", status, err)
	}
	execStatements(t, replica, "set global super_read_only = off", "set global read_only = off")
	_, err = e.runBackup(t.Context(), t, source.Address, replica.Address)
	expectError(t, err, "expected one primary, found two: instances 0 and 1")
}

// commitInReplicaFirst executes a transaction of the source in the replica while the source has not committed it, as if
// the commit waited for the acknowledgement of another replica. It then runs during, and commits the transaction in the
// source.
func commitInReplicaFirst(t *testing.T, source, replica *mysqld.Server, during func()) {
	t.Helper()
	next := "set gtid_next = '" + queryOne(t, source, "select @@server_uuid") + ":1000000'"
	withAdmin(t, source, func(db *sql.DB) {
		conn, err := db.Conn(t.Context())
		testenv.ExpectNoError(t, err)
		run := func(conn *sql.Conn, statements ...string) {
			for _, statement := range statements {
				_, err := conn.ExecContext(t.Context(), statement)
				testenv.ExpectNoError(t, err)
			}
		}
		run(conn, next, "begin")
		withAdmin(t, replica, func(db *sql.DB) {
			conn, err := db.Conn(t.Context())
			testenv.ExpectNoError(t, err)
			run(conn, "set global super_read_only = off", next, "begin", "commit", "set gtid_next = automatic", "set global super_read_only = on")
		})
		during()
		run(conn, "commit")
	})
}

// TestCopyIsDumped uses a cluster of two read-only instances. The first one follows an external server.
func TestCopyIsDumped(t *testing.T) {
	e := newTestEnv(t)
	outside, primary, replica := e.startPrimary(t), e.installation.StartServer(t), e.installation.StartServer(t)
	for follower, source := range map[*mysqld.Server]*mysqld.Server{primary: outside, replica: primary} {
		execStatements(t, follower, "change replication source to source_host = '"+source.Address+"', source_user = 'moco-repl', source_password = 'secret-r', source_auto_position = 1, get_source_public_key = 1", "start replica")
	}
	testenv.Eventually(t, "the replica has everything", func() error {
		want, found := queryOne(t, outside, "select @@gtid_executed"), queryOne(t, replica, "select @@gtid_executed")
		return testenv.ErrorIf(found != want, "expected %s, found %s", want, found)
	})
	back := func(isCopy bool) (mocov1beta2.BackupStatus, error) {
		return e.runBackupOf(t.Context(), t, isCopy, primary.Address, replica.Address)
	}
	status, err := back(true)
	testenv.ExpectNoError(t, err)
	if status.SourceIndex != 1 || len(status.Warnings) > 0 {
		t.Errorf("expected the replica without a warning, found %+v", status)
	}
	execStatements(t, replica, "stop replica sql_thread")
	status, err = back(true)
	testenv.ExpectNoError(t, err)
	if status.SourceIndex != 0 || len(status.Warnings) != 1 || !strings.Contains(status.Warnings[0], "instance 1 does not replicate") {
		t.Errorf("expected the primary with a warning, found %+v", status)
	}
	_, err = back(false)
	expectError(t, err, "instance 0 cannot be compared with the primary, because none was found")
}

func TestEmptyServerIsDumped(t *testing.T) {
	e := newTestEnv(t)
	source := e.installation.StartServer(t)
	execStatements(t, source, "set global read_only = off", "create schema short", "drop schema short")
	status, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	target := e.installation.StartServer(t)
	testenv.ExpectNoError(t, e.runRestore(t, target.Address))
	if found := queryOne(t, target, "select @@gtid_executed"); found != status.GTIDSet || !strings.HasSuffix(found, ":1-2") {
		t.Errorf("expected the transactions %s, found %s", status.GTIDSet, found)
	}
}

const (
	maxBackupTries = 100
	backupPassword = `secret-b"\ `
	adminPassword  = "secret-a"
)

// users creates the accounts with which an instance is initialized. The grants of moco-backup are those in
// docs/backup.md.
const users = `create user 'moco-admin'@'%' identified by 'secret-a';
grant all on *.* to 'moco-admin'@'%' with grant option;
create user 'moco-backup'@'%' identified by 'secret-b"\\ ';
grant select, reload, show view, trigger, event, lock tables, replication client, replication slave on *.* to 'moco-backup'@'%';
grant backup_admin, service_connection_admin, show_routine on *.* to 'moco-backup'@'%';
create user 'moco-repl'@'%' identified by 'secret-r';
grant replication slave, replication client on *.* to 'moco-repl'@'%';
`

// schemaStatements fills a primary with all kinds of objects that a dump must contain.
func schemaStatements() []string {
	return []string{
		"create role reader", "create user 'moco-shop'@'%' identified by 'shop-secret'", "create user app@'%' identified by 'app-secret' default role reader",
		"create schema app", "create schema `odd ``name`", "create schema nothing",
		"create table app.t (id int auto_increment primary key, v varchar(64), b blob, j json, at timestamp default current_timestamp)",
		"create table app.parent (id int primary key)",
		"create table app.child (id int primary key, parent int, foreign key (parent) references app.parent (id))",
		"create view app.w as select id, v from app.t", "create table `odd ``name`.`a b` (x int primary key, y text character set latin1)",
		"insert into app.parent values (1)", "insert into app.child values (1, 1)",
		"insert into app.t (v, b, j) values ('ü\n-- Current Database: `x`', x'00ff1a0d0a', '{\"a\": [1]}')",
		"insert into `odd ``name`.`a b` values (1, 'é')",
		"create procedure app.p() select 1", "create function app.f() returns int deterministic return 1",
		"create trigger app.tr before insert on app.child for each row set new.parent = 1",
		"create event app.e on schedule every 1 day do select 1",
		"grant select on app.* to reader", "grant reader to app@'%'", "grant insert on app.t to app@'%'",
		// MySQL keeps grants on dropped objects.
		"create table app.gone (id int)", "grant select on app.gone to reader", "drop table app.gone",
		"create table app.kept (id int, gone int)", "grant update (gone) on app.kept to reader", "alter table app.kept drop column gone",
	}
}

// testEnv is a MySQL installation that starts servers, and a bucket.
type testEnv struct {
	installation *mysqld.Installation
	bucket       bucket.Config
	log          testenv.LogBuffer
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	e := &testEnv{installation: mysqld.NewInstallation(t, users+"alter user 'moco-backup'@'%' require ssl;\n")}
	t.Setenv(backup.AuthoritiesVariable, string(e.installation.Certificates[certificates.AuthorityFile]))
	e.installation.ClientsOnPath(t)
	e.bucket = bucket.Config{Name: testenv.S3Bucket, Endpoint: testenv.StartS3(t).URL, PathStyle: true}
	e.log.ShowOnFailure(t, "the programs")
	t.Cleanup(func() { e.log.ExpectWithout(t, "secret-") })
	return e
}

func (e *testEnv) startPrimary(t *testing.T) *mysqld.Server {
	t.Helper()
	s := e.installation.StartServer(t)
	execStatements(t, s, "set global super_read_only = off", "set global read_only = off")
	execStatements(t, s, schemaStatements()...)
	return s
}

// runBackup retries like a Job, because on a busy machine mysqldump may need longer than writers may be blocked.
func (e *testEnv) runBackup(ctx context.Context, t *testing.T, hosts ...string) (mocov1beta2.BackupStatus, error) {
	t.Helper()
	return e.runBackupOf(ctx, t, false, hosts...)
}

func (e *testEnv) runBackupOf(ctx context.Context, t *testing.T, isCopy bool, hosts ...string) (mocov1beta2.BackupStatus, error) {
	t.Helper()
	status, err := e.tryBackup(ctx, t, isCopy, hosts...)
	for tries := 1; err != nil && strings.Contains(err.Error(), "is tried again") && tries < maxBackupTries; tries++ {
		status, err = e.tryBackup(ctx, t, isCopy, hosts...)
	}
	return status, err
}

func (e *testEnv) tryBackup(ctx context.Context, t *testing.T, isCopy bool, hosts ...string) (mocov1beta2.BackupStatus, error) {
	t.Helper()
	result := filepath.Join(t.TempDir(), "result")
	err := runner.RunBackup(ctx, runner.BackupOptions{
		Cluster: "ns/test", Hosts: hosts, IsCopy: isCopy, Password: backupPassword, MaxLag: time.Minute, Bucket: e.bucket, Result: result,
		Clock: clock.RealClock{}, Log: e.log.StructuredLogger(),
	})
	var status mocov1beta2.BackupStatus
	if err == nil {
		readJSON(t, result, &status)
	}
	return status, err
}

func (e *testEnv) restoreOptions(host string) runner.RestoreOptions {
	return runner.RestoreOptions{
		Source: "ns/test", Point: time.Now().Add(time.Minute), Host: host, Password: adminPassword, Wait: time.Minute,
		Bucket: e.bucket, Clock: clock.RealClock{}, Log: e.log.StructuredLogger(),
	}
}

func (e *testEnv) runRestore(t *testing.T, host string) error {
	t.Helper()
	return runner.RunRestore(t.Context(), e.restoreOptions(host))
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, json.Unmarshal(text, into))
}

func connect(t *testing.T, s *mysqld.Server, user, password string) *sql.DB {
	t.Helper()
	c := driver.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = user, password, "tcp", net.JoinHostPort(s.Address, strconv.Itoa(mysqld.Port))
	c.InterpolateParams, c.Logger = true, &driver.NopLogger{}
	connector, err := driver.NewConnector(c)
	testenv.ExpectNoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// withAdmin calls f with a connection that is closed immediately afterwards, because a test runs more queries than a
// server has connections.
func withAdmin(t *testing.T, s *mysqld.Server, f func(*sql.DB)) {
	t.Helper()
	db := connect(t, s, "moco-admin", adminPassword)
	defer func() { _ = db.Close() }() // The queries have finished.
	f(db)
}

func execStatements(t *testing.T, s *mysqld.Server, statements ...string) {
	t.Helper()
	withAdmin(t, s, func(db *sql.DB) {
		for _, statement := range statements {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	})
}

// queryOne returns the first column of the first row.
func queryOne(t *testing.T, s *mysqld.Server, query string) string {
	t.Helper()
	all := queryList(t, s, query)
	if len(all) == 0 {
		t.Fatalf("%s: expected a row, found none", query)
	}
	return all[0]
}

// queryList returns the first column of all rows.
func queryList(t *testing.T, s *mysqld.Server, query string) []string {
	t.Helper()
	var all []string
	withAdmin(t, s, func(db *sql.DB) {
		rows, err := db.QueryContext(t.Context(), query)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var value sql.NullString
			testenv.ExpectNoError(t, rows.Scan(&value))
			all = append(all, value.String)
		}
		testenv.ExpectNoError(t, rows.Err())
	})
	return all
}

// readContents returns the checksums of all user tables, and the definitions of all other objects that a dump must
// contain.
func readContents(t *testing.T, s *mysqld.Server) map[string]string {
	t.Helper()
	all := map[string]string{}
	const mine = "not in ('information_schema', 'mysql', 'performance_schema', 'sys')"
	for _, table := range queryList(t, s, "select concat('`', replace(table_schema, '`', '``'), '`.`', replace(table_name, '`', '``'), '`') from information_schema.tables where table_type = 'BASE TABLE' and table_schema "+mine) {
		withAdmin(t, s, func(db *sql.DB) {
			var name, sum string
			testenv.ExpectNoError(t, db.QueryRowContext(t.Context(), "checksum table "+table).Scan(&name, &sum))
			all[table] = sum
		})
	}
	for what, query := range map[string]string{
		"schemas":  "select schema_name from information_schema.schemata where schema_name " + mine,
		"routines": "select concat(routine_schema, '.', routine_name, sha2(routine_definition, 256)) from information_schema.routines where routine_schema " + mine,
		"views":    "select concat(table_schema, '.', table_name) from information_schema.views where table_schema " + mine,
		"triggers": "select concat(trigger_schema, '.', trigger_name) from information_schema.triggers where trigger_schema " + mine,
		"events":   "select concat(event_schema, '.', event_name) from information_schema.events",
		"accounts": "select concat(user, '@', host, sha2(authentication_string, 256)) from mysql.user where user not in ('moco-admin', 'moco-backup', 'moco-repl', 'root') and user not like 'mysql.%'",
	} {
		for _, value := range queryList(t, s, query) {
			all[what+" "+value] = "is there"
		}
	}
	return all
}

// haltTimeout is far longer than the transfer of some megabytes takes.
const haltTimeout = time.Minute

// haltingProxy is a TCP proxy of a server's port for administrators. The first connection that has carried a number of
// bytes in one direction halts until the proxy is closed. The client is then in the middle of its work.
type haltingProxy struct {
	// Address is the proxy's own address.
	Address string

	listener net.Listener
	server   string
	halted   chan struct{}
	halt     sync.Once

	mu    sync.Mutex
	conns []net.Conn
}

// direction is the direction in which bytes are counted.
type direction bool

const (
	toClient direction = false
	toServer direction = true
)

func newHaltingProxy(t *testing.T, s *mysqld.Server, way direction, most int64) *haltingProxy {
	t.Helper()
	at := strings.LastIndex(s.Address, ".")
	l := &haltingProxy{Address: s.Address[:at] + ".200", server: net.JoinHostPort(s.Address, strconv.Itoa(mysqld.AdminPort)), halted: make(chan struct{})}
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", net.JoinHostPort(l.Address, strconv.Itoa(mysqld.AdminPort)))
	testenv.ExpectNoError(t, err)
	l.listener = listener
	t.Cleanup(l.closeAll)
	go l.serve(t, way, most)
	return l
}

func (l *haltingProxy) serve(t *testing.T, way direction, most int64) {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		var dialer net.Dialer
		server, err := dialer.DialContext(t.Context(), "tcp", l.server)
		if err != nil {
			_ = client.Close() // The client sees that it is closed.
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, client, server)
		l.mu.Unlock()
		limited, free := server, client
		if way == toServer {
			limited, free = client, server
		}
		go func() {
			if n, _ := io.CopyN(free, limited, most); n == most {
				l.halt.Do(func() { close(l.halted) })
				return
			}
			_, _ = client.Close(), server.Close() // One side has closed its connection.
		}()
		go func() {
			_, _ = io.Copy(limited, free)
			_, _ = client.Close(), server.Close() // One side has closed its connection.
		}()
	}
}

// waitUntilHalted waits until a connection has halted.
func (l *haltingProxy) waitUntilHalted(t *testing.T) {
	t.Helper()
	timer := time.NewTimer(haltTimeout)
	defer timer.Stop()
	select {
	case <-l.halted:
	case <-timer.C:
		t.Fatalf("nothing large went through the proxy within %s", haltTimeout)
	}
}

// closeAll ends the proxy and all its connections.
func (l *haltingProxy) closeAll() {
	_ = l.listener.Close() // The listener is closed despite an error.
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close() // The connection is closed despite an error.
	}
}
