// SPDX-License-Identifier: Apache-2.0

package sqlclient

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// replicationWatchBegin tells a watch from other statements.
const replicationWatchBegin = "select source_pos_wait("

// replicationWatchStatement waits for a position that no source reaches, and ends at once when the SQL thread does, with NULL. It opens
// no table, which FLUSH TABLES of a backup would wait for. After an hour it ends by itself, since a server does not notice that its
// client has gone meanwhile. A file of another name would end the wait; all instances have one configuration.
const replicationWatchStatement = replicationWatchBegin + "concat(substring_index(@@global.log_bin_basename, '/', -1), '.2147483647'), 4, 3600)"

// WatchReplication returns nil as soon as the server does not apply any more what it receives. When ctx ends it returns its error, and
// the statement is over in the server. The watches of others go on.
func (s *Server) WatchReplication(ctx context.Context) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to watch the replication: %w", err)
	}
	defer func() { _ = conn.Close() }() // What the watch came to is known by then.
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
			// Only its own: the next watch over the server may have begun.
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
