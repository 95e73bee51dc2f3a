// SPDX-License-Identifier: Apache-2.0

package sqlclient

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// replicationWatchBegin is the beginning of replicationWatchStatement, which distinguishes it from other statements.
const replicationWatchBegin = "select source_pos_wait("

// replicationWatchStatement waits for a position that no source reaches, and returns NULL as soon as the SQL thread
// stops. It opens no table, so the FLUSH TABLES statement of a backup does not wait for it. It ends after an hour,
// because a server does not detect the disconnection of a waiting client. A binary log file with another name would end
// the wait, but all instances use the same name.
const replicationWatchStatement = replicationWatchBegin + "concat(substring_index(@@global.log_bin_basename, '/', -1), '.2147483647'), 4, 3600)"

// WatchReplication returns nil as soon as the server stops applying received transactions. If ctx is cancelled, it
// returns the error of ctx after killing the statement in the server. Watches of other managers continue.
func (s *Server) WatchReplication(ctx context.Context) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to watch the replication: %w", err)
	}
	defer func() { _ = conn.Close() }() // The result of the watch is already known.
	var id int64
	if err := conn.QueryRowContext(ctx, "select connection_id()").Scan(&id); err != nil {
		return fmt.Errorf("identify the connection that watches the replication: %w", err)
	}
	for {
		var reached sql.NullInt64
		err := conn.QueryRowContext(ctx, replicationWatchStatement).Scan(&reached)
		if ctx.Err() != nil {
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
			defer cancel()
			// Only this connection is killed, because the server's next watch may have begun.
			return errors.Join(ctx.Err(), s.killConnections(late, fmt.Sprintf("%sid = %d", selectOtherConnections, id), nil))
		}
		if err != nil {
			return fmt.Errorf("watch the replication: %w", err)
		}
		if !reached.Valid {
			return nil
		}
	}
}
