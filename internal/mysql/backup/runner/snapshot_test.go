// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/backup/runner"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// longestBlock repeats the statements in separate sessions until stop is called, and returns the duration of the
// slowest one.
func longestBlock(t *testing.T, s *mysqld.Server, statements ...string) (stop func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	longest := make([]time.Duration, len(statements))
	var sessions sync.WaitGroup
	for i, statement := range statements {
		db := connect(t, s, "moco-admin", mysqld.AdminPassword)
		sessions.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				_, _ = db.ExecContext(t.Context(), statement) // A failed statement counts as not blocked.
				longest[i] = max(longest[i], time.Since(began))
			}
		})
	}
	return func() time.Duration {
		cancel()
		sessions.Wait()
		return max(longest[0], longest[len(longest)-1])
	}
}

// holdTransaction runs statements in a session that stays open. It returns when the last statement has begun in the
// server.
func holdTransaction(t *testing.T, s *mysqld.Server, statements ...string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	c, err := connect(t, s, "moco-admin", mysqld.AdminPassword).Conn(ctx)
	testenv.ExpectNoError(t, err)
	var session sync.WaitGroup
	session.Go(func() {
		for _, statement := range statements {
			_, _ = c.ExecContext(ctx, statement) // The statement is cancelled when the test ends.
		}
	})
	last := statements[len(statements)-1]
	testenv.Eventually(t, "the session has begun "+last, func() error {
		found := queryOne(t, s, "select count(*) from performance_schema.processlist where info = '"+last+"'")
		return testenv.ErrorIf(found == "0", "not yet")
	})
	return func() {
		cancel()
		session.Wait()
		_ = c.Close() // The session may have been cancelled.
	}
}

// TestBackupDoesNotDelayClients measures the delays of clients during a backup, while a query runs for longer than the
// backup.
func TestBackupDoesNotDelayClients(t *testing.T) {
	const query = 15 * time.Second
	e := newTestEnv(t)
	source := e.startPrimary(t)
	end := holdTransaction(t, source, "select sleep(15) from app.t")
	defer end()
	stop := longestBlock(t, source, "insert into app.t (v) values (1)", "select count(*) from app.t")
	began := time.Now()
	_, err := e.runBackup(t.Context(), t, source.Address)
	took, longest := time.Since(began), stop()
	t.Logf("the backup took %s, and the longest statement of a client %s", took, longest)
	testenv.ExpectNoError(t, err)
	if longest > query/2 {
		t.Errorf("expected clients to go on while a query of %s runs, found one held up for %s", query, longest)
	}
}

// TestBackupGivesUpOnABusyInstance keeps a transaction open in the instance, so no snapshot can be taken.
func TestBackupGivesUpOnABusyInstance(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	end := holdTransaction(t, source, "begin", "insert into app.t (v) values (1)", "select sleep(600)")
	defer end()
	stop := longestBlock(t, source, "insert into app.t (v) values (1)", "select count(*) from app.t")
	_, err := e.tryBackup(t.Context(), t, false, source.Address)
	longest := stop()
	t.Logf("the longest statement of a client took %s", longest)
	expectError(t, err, "instance 0", "transaction", "is tried again")
	if limit := 10 * runner.LockTimeout; longest > limit {
		t.Errorf("expected clients to be held up for less than %s, found %s", limit, longest)
	}
	end()
	if _, err := e.runBackup(t.Context(), t, source.Address); err != nil {
		t.Errorf("expected a backup after the transaction, found %v", err)
	}
}

// TestLockThatIsGivenUpEnds covers a lock that waits for several tables in sequence, for each less than
// lock_wait_timeout.
func TestLockThatIsGivenUpEnds(t *testing.T) {
	e := newTestEnv(t)
	source := e.startPrimary(t)
	hold := func(statement string) (end func()) {
		c, err := connect(t, source, "moco-admin", adminPassword).Conn(t.Context())
		testenv.ExpectNoError(t, err)
		for _, s := range []string{"begin", statement} {
			_, err := c.ExecContext(t.Context(), s)
			testenv.ExpectNoError(t, err)
		}
		return func() {
			_, err := c.ExecContext(t.Context(), "rollback")
			testenv.ExpectNoError(t, err)
		}
	}
	endFirst, endLast := hold("insert into app.child values (2, 1)"), hold("insert into app.t (v) values (1)")
	defer endLast()
	failed := make(chan error, 1)
	go func() {
		_, err := e.tryBackup(t.Context(), t, false, source.Address)
		failed <- err
	}()
	const locking = "select count(*) from performance_schema.processlist where info like 'lock tables%' and command <> 'Killed'"
	testenv.Eventually(t, "the lock waits for the first table", func() error {
		return testenv.ErrorIf(queryOne(t, source, locking+" and time >= 1") == "0", "not yet")
	})
	endFirst()
	expectError(t, <-failed, "is tried again")
	if queryOne(t, source, locking) != "0" {
		t.Error("expected the lock to end with the backup, found it waiting, while it keeps others from writing")
	}
}
