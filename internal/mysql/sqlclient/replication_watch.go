// SPDX-License-Identifier: Apache-2.0

package sqlclient

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// replicationWatchBegin distinguishes a watch from other statements.
const replicationWatchBegin = "select source_pos_wait("

// replicationWatchStatement waits for a position that no source reaches, and returns NULL as soon as the SQL thread
// stops. It opens no table, for which FLUSH TABLES of a backup would wait. It ends after an hour, since a server
// does not notice that its client has gone. A binary log file with another name would end the wait, but all
// instances have one configuration.
const replicationWatchStatement = replicationWatchBegin + "concat(substring_index(@@global.log_bin_basename, '/', -1), '.2147483647'), 4, 3600)"

// WatchReplication returns nil as soon as the server stops applying received transactions. When ctx ends, it
// returns the error of ctx, and the statement has ended in the server. Watches of other managers continue.
func (s *Server) WatchReplication(ctx context.Context) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to watch the replication: %w", err)
	}
	defer func() { _ = conn.Close() }() // The result of the watch is known by then.
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
			// Only this connection is ended, because the next watch of the server may have begun.
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
