// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"io"
	"testing"

	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// openImpatientServer starts a server that closes idle sessions after one second. pause takes two seconds.
func openImpatientServer(t *testing.T) (s *mysqlServer, pause func()) {
	t.Helper()
	installation := mysqld.NewInstallation(t, "create user 'moco-admin'@'%' identified by '"+mysqld.AdminPassword+"'; grant all on *.* to 'moco-admin'@'%';\n")
	installation.ClientsOnPath(t)
	servers, err := openServers([]string{installation.StartServer(t).Address}, RestoreUser, mysqld.AdminPassword)
	testenv.ExpectNoError(t, err)
	t.Cleanup(func() { closeServers(servers) })
	other, err := servers[0].db.Conn(t.Context())
	testenv.ExpectNoError(t, err)
	for _, statement := range []string{
		"set global wait_timeout = 1", "set global interactive_timeout = 1", "set global super_read_only = off", "set global read_only = off", "create schema app",
		"create table app.t (f float)", "insert into app.t values (16777215)",
	} {
		_, err := other.ExecContext(t.Context(), statement)
		testenv.ExpectNoError(t, err)
	}
	return servers[0], func() {
		_, err := other.ExecContext(t.Context(), "do sleep(2)")
		testenv.ExpectNoError(t, err)
	}
}

// TestTheLockOfARestoreOutlastsALoad covers the session with the lock, which is idle during the load.
func TestTheLockOfARestoreOutlastsALoad(t *testing.T) {
	server, pause := openImpatientServer(t)
	c, err := server.db.Conn(t.Context())
	testenv.ExpectNoError(t, err)
	lock := restoreTarget{Conn: c, mysqlServer: server}
	testenv.ExpectNoError(t, lock.lockForRestore(t.Context()))
	pause()
	if executed, err := lock.executedGTIDs(t.Context()); err != nil {
		t.Errorf("expected the session with the lock to be there after the load, found %q, %v", executed, err)
	}
}

// TestSnapshotsOutlastIdleTime covers sessions that wait with their snapshot until they read the first table.
func TestSnapshotsOutlastIdleTime(t *testing.T) {
	server, pause := openImpatientServer(t)
	what, err := server.readInventory(t.Context())
	testenv.ExpectNoError(t, err)
	readers, err := openSnapshotReaders(t.Context(), server, what)
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, readers.takeSnapshots(t.Context(), []string{"`app`.`t`"}))
	pause()
	counts := <-readers.counter.start(t.Context(), nil)
	testenv.ExpectNoError(t, counts.err)
	testenv.ExpectEqual(t, "rows", map[string]int64{"`app`.`t`": 1}, counts.rows)
	testenv.ExpectNoError(t, readers.floats.releaseTables(t.Context()))
	testenv.ExpectNoError(t, readers.stop())
}

// slowReader pauses between two texts, as a slow bucket does.
type slowReader struct {
	texts []string
	pause func()
}

// Read implements io.Reader.
func (r *slowReader) Read(p []byte) (int, error) {
	if len(r.texts) == 0 {
		return 0, io.EOF
	}
	if len(r.texts) == 1 {
		r.pause()
	}
	n := copy(p, r.texts[0])
	r.texts = r.texts[1:]
	return n, nil
}

// TestLoadsOutlastIdleTime covers a client that waits for the next part of a dump. A client that connects again loses
// the settings of the dump.
func TestLoadsOutlastIdleTime(t *testing.T) {
	server, pause := openImpatientServer(t)
	source := &readErrorRecorder{from: &slowReader{
		[]string{"SET @before = 7;\nUSE `app`;\n", "CREATE TABLE `loaded` AS SELECT @before AS v;\n"}, pause,
	}}
	left, err := loadSQL(t.Context(), server.host, mysqld.AdminPassword, source, &dumpOutline{from: source})
	testenv.ExpectNoError(t, err)
	testenv.ExpectEqual(t, "parts that were left out", 0, len(left.texts))
	c, err := server.db.Conn(t.Context())
	testenv.ExpectNoError(t, err)
	found, err := queryColumn(t.Context(), c, "select v from app.loaded")
	testenv.ExpectNoError(t, err)
	testenv.ExpectEqual(t, "the variable", []string{"7"}, found)
}
