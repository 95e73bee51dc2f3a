// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// LockTimeout limits the wait for the locks of a snapshot, and then the time until mysqldump has taken its
	// snapshot. Both block writing clients.
	LockTimeout = 3 * time.Second
	// codeLockTimeout is MySQL's error number for a lock wait timeout.
	codeLockTimeout = 1205
)

// errBusyInstance means that the tables of an instance could not be locked in time, that its snapshot could not be
// taken in time, or that it changed during the snapshot.
var errBusyInstance = errors.New("expected a snapshot within " + LockTimeout.String() + ", found the instance too busy with a transaction, a DDL statement or other load on the machine of the instance")

const (
	tablesQuery = `select concat('` + "`" + `', replace(table_schema, '` + "`', '``" + `'), '` + "`.`" + `', replace(table_name, '` + "`', '``" + `'), '` + "`" + `')
 from information_schema.tables where table_type = 'BASE TABLE' and table_schema not in ` + ownSchemas
	gtidsQuery = `select replace(@@gtid_executed, '\n', '') from dual where @@gtid_mode = 'ON'`
)

// writersLock prevents commits, so a snapshot and its GTID set can be taken together. It waits for transactions that
// have written. It neither waits for readers nor blocks them. FLUSH TABLES WITH READ LOCK, which mysqldump uses, also
// waits for readers and blocks all clients while it waits.
type writersLock struct {
	session *sql.Conn
	// id is the connection ID of the session.
	id     int64
	gtids  string
	tables []string
}

func lockWriters(ctx context.Context, s *mysqlServer) (*writersLock, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := s.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: the instance %s", s.host, describeError(err))
	}
	l := &writersLock{session: c}
	if err := l.lockTables(ctx); err != nil {
		l.kill(ctx, s)
		return nil, errors.Join(err, l.unlock())
	}
	return l, nil
}

// kill terminates the session on the server. A server detects the disconnection of a client only at the end of a
// statement, and a waiting LOCK TABLES holds the locks that it already has.
func (l *writersLock) kill(ctx context.Context, s *mysqlServer) {
	if l.id == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
	defer cancel()
	_, _ = s.db.ExecContext(ctx, fmt.Sprintf("kill %d", l.id)) // The session may already have ended.
}

func (l *writersLock) lockTables(ctx context.Context) error {
	// The server closes the session and releases its locks if this program disappears.
	settings := fmt.Sprintf("set session lock_wait_timeout = %d, wait_timeout = %d", int(LockTimeout.Seconds()), int(askTimeout.Seconds()))
	if _, err := l.session.ExecContext(ctx, settings); err != nil {
		return fmt.Errorf("prepare the snapshot: the instance %s", describeError(err))
	}
	if err := l.session.QueryRowContext(ctx, "select connection_id()").Scan(&l.id); err != nil {
		return fmt.Errorf("prepare the snapshot: the instance %s", describeError(err))
	}
	tables, err := queryColumn(ctx, l.session, tablesQuery+" order by 1")
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	if err := l.openTables(ctx, tables); err != nil {
		return err
	}
	if len(tables) > 0 {
		// MySQL's setting limits the wait for each table. This timeout limits the wait for all tables.
		waiting, cancel := context.WithTimeout(ctx, LockTimeout)
		defer cancel()
		_, err := l.session.ExecContext(waiting, "lock tables "+strings.Join(tables, " read, ")+" read")
		switch {
		case errorNumber(err) == codeLockTimeout, waiting.Err() != nil:
			return errBusyInstance
		case err != nil:
			return fmt.Errorf("lock the tables for the snapshot: the instance %s", describeError(err))
		}
	}
	// Tables can be created in spite of the lock, so the list is read a second time.
	now, err := queryColumn(ctx, l.session, tablesQuery+" order by 1")
	if err != nil {
		return fmt.Errorf("list tables: %w", err)
	}
	if !slices.Equal(tables, now) {
		return errBusyInstance
	}
	l.tables = tables
	l.gtids, err = l.executedGTIDs(ctx)
	return err
}

// openedAtOnce is the number of tables that one statement opens.
const openedAtOnce = 100

// openTables makes the server open the tables before they are locked. LOCK TABLES would open them while writers wait,
// and few tables are open in an instance that was just started or in a replica without readers.
func (l *writersLock) openTables(ctx context.Context, tables []string) error {
	for some := range slices.Chunk(tables, openedAtOnce) {
		queries := make([]string, len(some))
		for i, table := range some {
			queries[i] = "select 1 from " + table + " where false"
		}
		_, err := l.session.ExecContext(ctx, strings.Join(queries, " union all "))
		if err != nil && errorNumber(err) == 0 { // If a table cannot be opened, LOCK TABLES reports the error.
			return fmt.Errorf("open the tables for the snapshot: the instance %s", describeError(err))
		}
	}
	return nil
}

func (l *writersLock) executedGTIDs(ctx context.Context) (string, error) {
	found, err := queryColumn(ctx, l.session, gtidsQuery)
	if err != nil {
		return "", fmt.Errorf("read the GTID set: %w", err)
	}
	if len(found) != 1 {
		return "", errors.New("expected gtid_mode to be ON, found it off; set it to ON, because backups need GTIDs")
	}
	return found[0], nil
}

// release releases the lock. It returns an error if a transaction was committed while the lock was held.
func (l *writersLock) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	now, err := l.executedGTIDs(ctx)
	if err = errors.Join(err, l.unlock()); err != nil {
		return err
	}
	if now != l.gtids {
		// A transaction was committed, for example one about accounts, which table locks do not block.
		return errBusyInstance
	}
	return nil
}

// unlock closes the session. MySQL then releases the session's locks, even if a statement of the session has failed.
func (l *writersLock) unlock() error { return closeSession(l.session) }

// closeSession closes a session instead of returning it to the pool.
func closeSession(c *sql.Conn) error {
	err := c.Raw(func(any) error { return driver.ErrBadConn })
	if err != nil && !errors.Is(err, driver.ErrBadConn) && !errors.Is(err, sql.ErrConnDone) {
		return fmt.Errorf("close the session: %w", err)
	}
	return nil
}
