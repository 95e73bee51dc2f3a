// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
	"github.com/torpor-dev/torpor/internal/mysql/backup/runner"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// startShipping ships binary logs until the test ends or stop is called.
func (e *testEnv) startShipping(t *testing.T, hosts ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var shipping sync.WaitGroup
	spool := t.TempDir()
	shipping.Go(func() {
		err := runner.RunShipping(ctx, runner.ShipOptions{
			Cluster: "ns/test", Hosts: hosts, Password: backupPassword, Interval: 200 * time.Millisecond, Bucket: e.bucket, Spool: spool,
			Clock: clock.RealClock{}, Log: e.log.StructuredLogger(),
		})
		if err != nil {
			t.Errorf("expected shipping to go on until it is stopped, found %v", err)
		}
	})
	stop = func() {
		cancel()
		shipping.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// rowWriter inserts a row every 100 ms. Each row contains the time at which its insert began.
type rowWriter struct {
	t       *testing.T
	cancel  context.CancelFunc
	writing sync.WaitGroup
}

func startRowWriter(t *testing.T, s *mysqld.Server) *rowWriter {
	t.Helper()
	execStatements(t, s, "create table if not exists app.ticks (id int auto_increment primary key, at datetime(6))")
	ctx, cancel := context.WithCancel(t.Context())
	w := &rowWriter{t: t, cancel: cancel}
	db := connect(t, s, "moco-admin", adminPassword)
	w.writing.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			_, _ = db.ExecContext(t.Context(), "insert into app.ticks (at) values (utc_timestamp(6))") // Rows of failed inserts are not counted.
			<-tick.C
		}
	})
	t.Cleanup(w.stop)
	return w
}

func (w *rowWriter) stop() {
	w.cancel()
	w.writing.Wait()
}

// waitForRows waits until the table has the given number of rows.
func waitForRows(t *testing.T, s *mysqld.Server, count int) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%d rows", count), func() error {
		return testenv.ErrorIf(queryOne(t, s, fmt.Sprintf("select count(*) >= %d from app.ticks", count)) != "1", "too few")
	})
}

// momentBefore returns the last moment before the insert of a row began. At that time the previous row was committed,
// because a single session writes both.
func momentBefore(t *testing.T, s *mysqld.Server, id int) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05.000000", queryOne(t, s, fmt.Sprintf("select cast(at as char) from app.ticks where id = %d", id)))
	testenv.ExpectNoError(t, err)
	return at.Add(-time.Microsecond)
}

// restoreTo restores a new server to a point in time, as soon as the binary logs up to that point are shipped.
func (e *testEnv) restoreTo(t *testing.T, point time.Time) *mysqld.Server {
	t.Helper()
	target := e.installation.StartServer(t)
	o := e.restoreOptions(target.Address)
	o.Point = point
	testenv.Eventually(t, "the point can be reached", func() error { return runner.RunRestore(t.Context(), o) })
	return target
}

func expectRows(t *testing.T, source, target *mysqld.Server, last int) {
	t.Helper()
	const sum = "select concat(count(*), ' rows until ', max(id), ', sum ', sum(crc32(concat(id, at)))) from app.ticks where id <= %d"
	want := queryOne(t, source, fmt.Sprintf(sum, last))
	testenv.ExpectEqual(t, "rows", want, queryOne(t, target, fmt.Sprintf(sum, 1<<30)))
	t.Logf("restored %s", want)
}

// TestOneSchemaIsRestoredIfNothingFollowsTheBackup covers a binary log segment that begins before the backup and ends
// long after the restore point.
func TestOneSchemaIsRestoredIfNothingFollowsTheBackup(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	execStatements(t, source, "create database two", "create table two.t (id int primary key)", "insert into two.t values (1), (2), (3)")
	stopShipping := e.startShipping(t, source.Address)
	store, err := bucket.OpenStore(t.Context(), e.bucket)
	testenv.ExpectNoError(t, err)
	testenv.Eventually(t, "the binary logs are copied", func() error {
		keys, err := bucket.ListKeys(t.Context(), store, backup.SegmentPrefix("ns", "test"))
		return errors.Join(err, testenv.ErrorIf(len(keys) == 0, "not yet"))
	})
	execStatements(t, source, "insert into two.t values (4)")
	status, err := e.runBackup(t.Context(), t, source.Address)
	testenv.ExpectNoError(t, err)
	point := status.Time.Add(time.Second)
	testenv.Eventually(t, "the point is over", func() error { return testenv.ErrorIf(!time.Now().After(point.Add(time.Second)), "not yet") })
	execStatements(t, source, "insert into two.t values (9)")
	target := e.installation.StartServer(t)
	o := e.restoreOptions(target.Address)
	o.Schema, o.Point = "two", point
	testenv.Eventually(t, "the binary logs reach the point", func() error { return runner.RunRestore(t.Context(), o) })
	stopShipping()
	testenv.ExpectEqual(t, "rows", []string{"1", "2", "3", "4"}, queryList(t, target, "select id from two.t order by id"))
}

func TestRestoreToAPointInTime(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	e.startShipping(t, source.Address)
	w := startRowWriter(t, source)
	waitForRows(t, source, 10)
	execStatements(t, source, "create user root")
	if _, err := e.runBackup(t.Context(), t, source.Address); err != nil {
		t.Fatal(err)
	}
	execStatements(t, source, "alter user root identified by 'secret-root' comment 'everybody'", "grant select on *.* to root", "drop user root")
	execStatements(t, source, "create user late@'%' identified by 'late-secret'", "alter user 'moco-admin'@'%' identified by 'secret-a'",
		"flush binary logs", "set gtid_next = 'automatic:label'", "insert into app.t (v) values ('tagged')")
	begun := len(queryList(t, source, "select id from app.ticks"))
	waitForRows(t, source, begun+40)
	w.stop()
	last := begun + 25
	point := momentBefore(t, source, last+1)
	target := e.restoreTo(t, point)
	expectRows(t, source, target, last)
	app := connect(t, target, "late", "late-secret")
	if err := app.PingContext(t.Context()); err != nil {
		t.Errorf("expected an account that was made after the dump, found %v", err)
	}
	if found := queryOne(t, target, "select count(*) from app.t where v = 'tagged'"); found != "1" {
		t.Errorf("expected the tagged transaction, found %s", found)
	}
	o := e.restoreOptions(target.Address)
	o.Point = point
	testenv.ExpectNoError(t, runner.RunRestore(t.Context(), o)) // A second run has nothing left to do.

	all := e.restoreTo(t, time.Now())
	if a, b := queryOne(t, source, "select @@gtid_executed"), queryOne(t, all, "select @@gtid_executed"); strings.ReplaceAll(a, "\n", "") != strings.ReplaceAll(b, "\n", "") {
		t.Errorf("expected the transactions %s, found %s", a, b)
	}
	testenv.ExpectEqual(t, "contents", readContents(t, source), readContents(t, all))
}

// TestShippingSurvives causes every failure that shipping must survive, one at a time, while rows are written.
func TestShippingSurvives(t *testing.T) {
	e := newTestEnv(t)
	target, err := url.Parse(e.bucket.Endpoint)
	testenv.ExpectNoError(t, err)
	var isDown atomic.Bool
	storage, spool := httputil.NewSingleHostReverseProxy(target), t.TempDir()
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isDown.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		storage.ServeHTTP(w, r)
	}))
	defer down.Close()
	e.bucket.Endpoint = down.URL
	primary, replica := e.startPrimary(t), e.installation.StartServer(t)
	follow := func(s, of *mysqld.Server) {
		execStatements(t, s, "change replication source to source_host = '"+of.Address+"', source_user = 'moco-repl', source_password = 'secret-r', source_auto_position = 1, get_source_public_key = 1", "start replica")
	}
	follow(replica, primary)
	w := startRowWriter(t, primary)
	waitForRows(t, primary, 2)
	testenv.Eventually(t, "the replica has what a backup needs", func() error {
		_, err := e.runBackup(t.Context(), t, primary.Address, replica.Address)
		return err
	})
	const backupAge = 20 // The time of a backup is up to one second after its snapshot, which corresponds to ten rows.
	waitForRows(t, primary, len(queryList(t, primary, "select id from app.ticks"))+backupAge)
	expectReached := func(what string, s *mysqld.Server) {
		t.Helper()
		id := len(queryList(t, s, "select id from app.ticks"))
		waitForRows(t, s, id+2)
		t.Log(what)
		expectRows(t, s, e.restoreTo(t, momentBefore(t, s, id+1)), id)
	}
	program := func() *testenv.Process {
		return startProgram(t, e, backupPassword, "ship-binlogs", "--cluster=ns/test", "--host="+primary.Address, "--host="+replica.Address, "--interval=1s", "--spool="+spool)
	}
	p := program()
	expectReached("begun at the backup", primary)
	p.KillAtOnce(t)
	waitForRows(t, primary, len(queryList(t, primary, "select id from app.ticks"))+5)
	program()
	expectReached("killed and started again", primary)

	isDown.Store(true)
	waitForRows(t, primary, len(queryList(t, primary, "select id from app.ticks"))+20)
	isDown.Store(false)
	expectReached("after an outage of the bucket", primary)

	w.stop()
	testenv.Eventually(t, "the replica has everything", func() error {
		a, b := queryOne(t, primary, "select @@gtid_executed"), queryOne(t, replica, "select @@gtid_executed")
		return testenv.ErrorIf(a != b, "%s of %s", b, a)
	})
	execStatements(t, primary, "set global super_read_only = on")
	execStatements(t, replica, "stop replica", "reset replica all", "set global super_read_only = off", "set global read_only = off")
	primary.KillAtOnce(t)
	startRowWriter(t, replica)
	expectReached("after a failover", replica)
}
