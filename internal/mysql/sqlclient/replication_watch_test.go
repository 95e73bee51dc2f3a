// SPDX-License-Identifier: Apache-2.0

package sqlclient

import (
	"context"
	"errors"
	"testing"
	"time"

	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// TestReplicationWatch stops the SQL thread of a watched replica in two ways, and then cancels a watch. A watch does
// not block other statements.
func TestReplicationWatch(t *testing.T) {
	bed := mysqld.NewInstallation(t, mysqld.ProductUsers())
	machines := bed.StartServers(t, 2)
	source, replica := openServer(t, machines[0]), openServer(t, machines[1])
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	semiSync := readFacts(t, source).SemiSync
	failOnError(t, source.BecomeSource(ctx, semiSync, 0))
	failOnError(t, source.SetWritable(ctx, semiSync, 0))
	if err := replica.WatchReplication(ctx); err != nil {
		t.Fatalf("expected the watch over a server without a source to end at once, found %v", err)
	}
	failOnError(t, replica.FollowSource(ctx, semiSync, ReplicationSource{machines[0].Address, Port, replicationAccount(), true, true, true}))
	failOnError(t, source.execStatement(ctx, "create database app"))
	failOnError(t, source.execStatement(ctx, "create table app.t (id int primary key)"))
	countWatches := func() int {
		var n int
		failOnError(t, replica.db.QueryRowContext(ctx, "select count(*) from performance_schema.processlist where info like 'select source_pos_wait(%'").Scan(&n))
		return n
	}
	startWatch := func(ctx context.Context) <-chan error {
		testenv.Eventually(t, "the replica applies everything", func() error {
			want, found := readFacts(t, source), readFacts(t, replica)
			return testenv.ErrorIf(found.Executed != want.Executed || !found.Replication.SQL || !found.Replication.IO, "found %+v", found.Replication)
		})
		ended := make(chan error, 1)
		go func() { ended <- replica.WatchReplication(ctx) }()
		testenv.Eventually(t, "the server is watched", func() error { return testenv.ErrorIf(countWatches() != 1, "found %d", countWatches()) })
		return ended
	}

	ended := startWatch(ctx)
	failOnError(t, source.execStatement(ctx, "insert into app.t values (1)"))
	failOnError(t, replica.execStatement(ctx, "flush tables with read lock"))
	failOnError(t, replica.execStatement(ctx, "unlock tables"))
	failOnError(t, replica.StopReceiving(ctx))
	failOnError(t, replica.StartReceiving(ctx))
	if n := countWatches(); n != 1 {
		t.Fatalf("expected the watch to go on while rows come and the receiving thread restarts, found %d", n)
	}
	failOnError(t, replica.execStatement(ctx, "stop replica sql_thread"))
	failOnError(t, <-ended)
	failOnError(t, replica.StartApplying(ctx))

	ended = startWatch(ctx)
	failOnError(t, replica.execAll(ctx, "have a row of its own", []string{"set global super_read_only = off", "set sql_log_bin = 0", "insert into app.t values (2)", "set sql_log_bin = 1", "set global super_read_only = on"}))
	failOnError(t, source.execStatement(ctx, "insert into app.t values (2)"))
	failOnError(t, <-ended)
	failOnError(t, replica.execAll(ctx, "fix it", []string{"set global super_read_only = off", "set sql_log_bin = 0", "delete from app.t where id = 2", "set sql_log_bin = 1", "set global super_read_only = on"}))
	failOnError(t, replica.StartApplying(ctx))

	given, giveUp := context.WithCancel(ctx)
	ended = startWatch(given)
	other, giveOtherUp := context.WithCancel(ctx)
	otherEnded := make(chan error, 1)
	go func() { otherEnded <- replica.WatchReplication(other) }()
	testenv.Eventually(t, "two watches run", func() error { return testenv.ErrorIf(countWatches() != 2, "found %d", countWatches()) })
	giveOtherUp()
	if err := <-otherEnded; !errors.Is(err, context.Canceled) {
		t.Errorf("expected the other watch to be given up, found %v", err)
	}
	testenv.Eventually(t, "the server has ended one of the watches", func() error { return testenv.ErrorIf(countWatches() != 1, "found %d", countWatches()) })
	select {
	case err := <-ended:
		t.Errorf("expected the first watch to go on, found it ended: %v", err)
	default:
	}
	giveUp()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("expected the watch to be given up, found %v", err)
	}
	testenv.Eventually(t, "the server has ended the statement", func() error { return testenv.ErrorIf(countWatches() != 0, "found %d", countWatches()) })
}
