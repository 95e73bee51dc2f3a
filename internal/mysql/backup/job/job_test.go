// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/internal/testenv"
)

func TestBackupAndRestore(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)

	status, err := e.runBackup(t.Context(), t, source.Address)
	if err != nil {
		t.Fatal(err)
	}
	want := readContents(t, source)
	if found := queryOne(t, source, "select @@gtid_executed"); found != status.GTIDSet || status.GTIDSet == "" {
		t.Errorf("expected the transactions %q in the status, found %q", found, status.GTIDSet)
	}
	if status.DumpSize == 0 || status.SourceUUID != queryOne(t, source, "select @@server_uuid") || len(status.Warnings) > 0 || status.Elapsed.Duration <= 0 {
		t.Errorf("expected size, source and duration without warnings, found %+v", status)
	}

	target := e.installation.StartServer(t)
	if err := e.runRestore(t, target.Address); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	target := e.installation.StartServer(t)
	if err := e.runRestore(t, target.Address); err != nil {
		t.Fatal(err)
	}
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
