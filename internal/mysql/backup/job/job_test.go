// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
	"github.com/torpor-dev/torpor/internal/mysql/backup/job"
	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/mysqld"
)

func TestBackupAndRestore(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)

	status, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	want := readContents(t, source)
	if found := queryOne(t, source, "select @@gtid_executed"); found != status.GTIDSet || status.GTIDSet == "" {
		t.Errorf("expected the transactions %q in the status, found %q", found, status.GTIDSet)
	}
	if status.DumpSize == 0 || status.SourceUUID != queryOne(t, source, "select @@server_uuid") || len(status.Warnings) > 0 || status.Elapsed.Duration <= 0 {
		t.Errorf("expected size, source and duration without warnings, found %+v", status)
	}

	target := e.installation.StartServer(t)
	testenv.ExpectNoError(t, e.runRestore(t, target.Address))
	if diff := cmp.Diff(want, readContents(t, target)); diff != "" {
		t.Errorf("contents (-source +restored):\n%s", diff)
	}
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

	t.Run("a second run has nothing to do", func(t *testing.T) {
		if err := e.runRestore(t, target.Address); err != nil {
			t.Error(err)
		}
	})
	t.Run("an instance with data is not touched", func(t *testing.T) {
		execStatements(t, target, "set global super_read_only = off", "create schema precious", "set global super_read_only = on")
		expectError(t, e.runRestore(t, target.Address), "to be empty")
		if queryOne(t, target, "select count(*) from information_schema.schemata where schema_name = 'precious'") != "1" {
			t.Error("the schema is gone")
		}
	})
	t.Run("an instance in service is not touched", func(t *testing.T) {
		expectError(t, e.runRestore(t, source.Address), "is in service")
	})
}

func TestBackupWhileOthersWrite(t *testing.T) {
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
		if rows.Load() < 200 {
			return errors.New("too few")
		}
		return nil
	})
	status, err := e.runBackup(t.Context(), t, source.Address)
	during := rows.Load()
	stop()
	writers.Wait()
	testenv.ExpectNoError(t, err)
	target := e.installation.StartServer(t)
	testenv.ExpectNoError(t, e.runRestore(t, target.Address))
	// Every row is one transaction, so the two must agree: the last number of the set tells how many rows there are.
	count := queryOne(t, target, "select count(*) from app.t")
	expected := queryOne(t, target, "select substring_index(@@gtid_executed, '-', -1) - "+nonRowTransactions(t, status.GTIDSet))
	if count != expected {
		t.Errorf("expected %s rows with the transactions %s, found %s", expected, status.GTIDSet, count)
	}
	t.Logf("%s rows in the dump, %d written when it had ended", count, during)
	// What came later can be replayed onto it: then both have equal rows.
	execStatements(t, target, "set global super_read_only = off",
		"change replication source to source_host = '"+source.Address+"', source_user = 'moco-repl', source_password = 'secret-r', source_auto_position = 1, get_source_public_key = 1",
		"start replica")
	testenv.Eventually(t, "the restored server follows its source", func() error {
		if a, b := queryOne(t, source, "select @@gtid_executed"), queryOne(t, target, "select @@gtid_executed"); a != b {
			return errors.New(b + " of " + a)
		}
		return nil
	})
	if diff := cmp.Diff(readContents(t, source), readContents(t, target)); diff != "" {
		t.Errorf("contents (-source +restored):\n%s", diff)
	}
}

// nonRowTransactions is how many transactions were not rows of app.t: those of data, less the one row in it.
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

// halfway is less than what a dump or a restore moves of a server that is filled, and more than it begins with.
const halfway = 2 << 20

// fillLargeTable makes a dump large enough to be interrupted in its middle.
func fillLargeTable(t *testing.T, s *mysqld.Server) {
	t.Helper()
	execStatements(t, s, "create table app.large (id int auto_increment primary key, b blob)", "insert into app.large (b) values (random_bytes(1000))")
	for range 12 { // 4 MB of a table that is neither the first nor the last.
		execStatements(t, s, "insert into app.large (b) select random_bytes(1000) from app.large")
	}
}

// startProgram runs torpor itself, which can be killed.
func startProgram(t *testing.T, e *testEnv, password string, args ...string) *testenv.Process {
	t.Helper()
	path := os.Getenv("TORPOR_BINARY")
	if path == "" {
		t.Skip("TORPOR_BINARY is not set: expected the path of torpor; build it with `make torpor`, run with `make test`")
	}
	if e.bucket.Folder != "" {
		args = append(args, "--folder="+e.bucket.Folder)
	} else {
		args = append(args, "--bucket="+e.bucket.Name, "--endpoint="+e.bucket.Endpoint, "--path-style")
	}
	return testenv.StartProcess(t, path, args, []string{"TORPOR_MYSQL_PASSWORD=" + password, "TMPDIR=" + t.TempDir()})
}

func TestKilledBackup(t *testing.T) {
	t.Run("into a bucket", func(t *testing.T) { testKilledBackup(t, newTestEnv(t), func() {}) })
	t.Run("into a folder", func(t *testing.T) {
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
				if size == 0 {
					return fmt.Errorf("found nothing in %q (%w)", found, err)
				}
				return nil
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
	if diff := cmp.Diff(readContents(t, source), readContents(t, target)); diff != "" {
		t.Errorf("contents (-source +restored):\n%s", diff)
	}
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
	// The table itself is locked for as long as it is loaded.
	if queryOne(t, target, "select variable_value >= 100 from performance_schema.global_status where variable_name = 'Innodb_rows_inserted'") != "1" {
		t.Error("expected a part of the rows to be loaded, found none")
	}
	p.KillAtOnce(t)
	l.closeAll()
	if queryOne(t, target, "select count(*) from information_schema.schemata where schema_name = 'torpor_restoring'") != "1" {
		t.Error("expected the mark of half a restore, found none")
	}
	testenv.Eventually(t, "the next run succeeds", func() error { return e.runRestore(t, target.Address) })
	if diff := cmp.Diff(readContents(t, source), readContents(t, target)); diff != "" {
		t.Errorf("contents (-source +restored):\n%s", diff)
	}
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
	if found, err := filepath.Glob(filepath.Join(scratch, "torpor-*", "*")); err != nil || len(found) != 1 {
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
	t.Run("no instance answers", func(t *testing.T) {
		_, err := e.runBackup(t.Context(), t, "127.77.250.1", "127.77.250.2")
		expectError(t, err, "instance 0 does not answer, instance 1 does not answer")
	})
	t.Run("a wrong password", func(t *testing.T) {
		execStatements(t, source, "create user if not exists someone@'%' identified by 'x'", "alter user 'moco-backup'@'%' identified by 'other'")
		_, err := e.runBackup(t.Context(), t, source.Address)
		expectError(t, err, "neither the user nor the password")
		execStatements(t, source, "alter user 'moco-backup'@'%' identified by "+`'secret-b"\\ '`)
	})
	t.Run("a restore point before the first backup", func(t *testing.T) {
		o := e.restoreOptions(e.installation.StartServer(t).Address)
		o.Point = o.Point.AddDate(-1, 0, 0)
		expectError(t, job.RunRestore(t.Context(), o), "found 1, the first of", "choose a later restore point")
	})
	t.Run("an account that is not in the backup", func(t *testing.T) {
		o := e.restoreOptions(e.installation.StartServer(t).Address)
		o.Users = []string{"nobody"}
		expectError(t, job.RunRestore(t.Context(), o), `expected account "nobody" in the backup`)
	})
	t.Run("one schema and one account", func(t *testing.T) {
		target := e.installation.StartServer(t)
		o := e.restoreOptions(target.Address)
		o.Schema, o.Users = "odd `name", []string{"'reader'@'%'"}
		testenv.ExpectNoError(t, job.RunRestore(t.Context(), o))
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
		expectError(t, job.RunRestore(t.Context(), o), `expected schema "nowhere" in the backup`)
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
	expectError(t, err, "expected one writable instance, found 0 and 1")
}

func TestNothingToDump(t *testing.T) {
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
