// SPDX-License-Identifier: Apache-2.0

package sqlclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"
)

// SetReadOnly ends all writing. It waits for commits that are under way; when ctx ends first, the statement
// is killed in the server, so that it does not take effect after the caller has given up.
func (s *Server) SetReadOnly(ctx context.Context) error {
	if err := s.execOrKill(ctx, "set global super_read_only = on"); err != nil {
		return fmt.Errorf("make the server read-only: %w", err)
	}
	return nil
}

// SetWritable makes commits wait for so many replicas, none for 0, and lets clients write. One session does both, since a
// server that restarts in between has forgotten the former.
func (s *Server) SetWritable(ctx context.Context, like SemiSync, waitFor int) error {
	return s.execAll(ctx, "make the server writable", append(like.awaitReplicasStatements(waitFor), "set global read_only = off"))
}

// KillConnections ends the connections of all users but the given ones, whose clients then connect anew.
func (s *Server) KillConnections(ctx context.Context, keep []string) error {
	return s.killConnections(ctx, selectOtherConnections+`user not in ('event_scheduler', 'system user', 'unauthenticated user') and command not like 'Binlog Dump%'`, keep)
}

// EndCommitWaits lets commits go on that wait for replicas which the server has no more. KILL takes their clients away and does
// not end the wait. It is done only where no further commit can begin, since that one would not wait either; the server
// says super_read_only also while the statement that sets it still waits for these very commits.
func (s *Server) EndCommitWaits(ctx context.Context, like SemiSync) error {
	source, _ := like.variablePrefixes()
	if err := s.execStatement(ctx, "set global "+source+"_enabled = if(@@global.super_read_only, 0, @@global."+source+"_enabled)"); err != nil {
		return fmt.Errorf("end the wait for replicas: %w", err)
	}
	return nil
}

// CancelStatements ends the connections in which an act still runs, whoever sent it.
func (s *Server) CancelStatements(ctx context.Context) error {
	return s.killConnections(ctx, selectOtherConnections+"command = 'Query' and info like '"+statementMark+"%'", nil)
}

// selectOtherConnections begins a query for connections other than its own.
const selectOtherConnections = "select id, user from performance_schema.processlist where id <> connection_id() and "

// killConnections ends the connections that a query finds, but those of some users.
func (s *Server) killConnections(ctx context.Context, query string, keep []string) error {
	rows, err := s.db.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("list connections: %w", err)
	}
	defer func() { _ = rows.Close() }() // rows.Err has what went wrong.
	var ids []int64
	for rows.Next() {
		var id int64
		var user string
		if err := rows.Scan(&id, &user); err != nil {
			return fmt.Errorf("list connections: %w", err)
		}
		if !slices.Contains(keep, user) {
			ids = append(ids, id)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("list connections: %w", err)
	}
	for _, id := range ids {
		if err := s.execStatement(ctx, "kill ?", id); err != nil && errorNumber(err) != errNoSuchThread {
			return fmt.Errorf("end connection %d: %w", id, err)
		}
	}
	return nil
}

// StopReceiving ends the flow of transactions from the source, which then gets no acknowledgements of this replica.
func (s *Server) StopReceiving(ctx context.Context) error {
	if err := s.execStatement(ctx, "stop replica io_thread"); err != nil {
		return fmt.Errorf("stop receiving transactions: %w", err)
	}
	return nil
}

// StartReceiving starts a stopped receiving thread.
func (s *Server) StartReceiving(ctx context.Context) error {
	if err := s.execStatement(ctx, "start replica io_thread"); err != nil {
		return fmt.Errorf("start receiving transactions: %w", err)
	}
	return nil
}

// StartApplying starts a stopped SQL thread.
func (s *Server) StartApplying(ctx context.Context) error {
	if err := s.execStatement(ctx, "start replica sql_thread"); err != nil {
		return fmt.Errorf("start applying transactions: %w", err)
	}
	return nil
}

// BecomeSource forgets the former source and lets commits wait until so many replicas have received them; 0 lets them
// not wait. The server stays as writable as it is.
func (s *Server) BecomeSource(ctx context.Context, like SemiSync, waitFor int) error {
	_, replica := like.variablePrefixes()
	statements := []string{"stop replica", "reset replica all", "set global " + replica + "_enabled = off"}
	return s.execAll(ctx, "make the server a source", append(statements, like.awaitReplicasStatements(waitFor)...))
}

func (s SemiSync) awaitReplicasStatements(waitFor int) []string {
	source, replica := s.variablePrefixes()
	if waitFor == 0 {
		return []string{"set global " + source + "_enabled = off"}
	}
	count := source + "_wait_for_" + replica[len("rpl_semi_sync_"):] + "_count"
	return []string{
		"set global " + source + "_timeout = " + strconv.FormatInt((24*time.Hour).Milliseconds(), 10),
		"set global " + count + " = " + strconv.Itoa(waitFor),
		"set global " + source + "_enabled = on",
	}
}

// FollowSource makes the server a replica of the source at host. Semi-sync must be on for a replica inside the cluster, whose
// acknowledgements count, and off for one of a source outside. Only another source is changed: that drops the relay log.
func (s *Server) FollowSource(ctx context.Context, like SemiSync, host string, as Account, acknowledge bool) error {
	source, replica := like.variablePrefixes()
	flag := map[bool]string{true: " = on", false: " = off"}[acknowledge]
	if err := s.execAll(ctx, "stop replicating", []string{"stop replica", "set global " + source + "_enabled = off", "set global " + replica + "_enabled" + flag}); err != nil {
		return err
	}
	follows, err := s.queryBool(ctx, `select count(*) = 1 from performance_schema.replication_connection_configuration
		where channel_name = '' and host = ? and port = ? and user = ? and auto_position = '1'`, host, Port, as.Name)
	if err != nil {
		return fmt.Errorf("read the source: %w", err)
	}
	if !follows {
		err = s.execStatement(ctx, `change replication source to source_host = ?, source_port = ?, source_user = ?, source_password = ?,
			source_auto_position = 1, get_source_public_key = 1, source_connect_retry = 1, source_retry_count = 1000000000`,
			host, Port, as.Name, as.Password)
	}
	if err != nil {
		return fmt.Errorf("follow %s: %w", host, err)
	}
	return s.execAll(ctx, "start replicating", []string{"start replica"})
}

func (s *Server) queryBool(ctx context.Context, query string, args ...any) (bool, error) {
	var answer bool
	err := s.db.QueryRowContext(ctx, query, args...).Scan(&answer)
	return answer, err
}

// CloneFrom replaces the nothing that the server holds by the donor's data. The server restarts then, read-only; the
// connection is lost with it, which is no error.
func (s *Server) CloneFrom(ctx context.Context, host string, as Account) error {
	empty, err := s.queryBool(ctx, `select @@global.gtid_executed = '' and not exists (
		select 1 from performance_schema.replication_connection_status where received_transaction_set <> '')`)
	if err != nil {
		return fmt.Errorf("look whether the server is empty: %w", err)
	}
	if !empty {
		return errors.New("clone: expected an empty server, found transactions in it")
	}
	donor := net.JoinHostPort(host, strconv.Itoa(AdminPort))
	if err := s.execStatement(ctx, "set global clone_valid_donor_list = ?", donor); err != nil {
		return fmt.Errorf("allow the donor: %w", err)
	}
	// CLONE refuses a recipient that is read-only for administrators; for clients it stays so.
	if err := s.execStatement(ctx, "set global super_read_only = off"); err != nil {
		return fmt.Errorf("let administrators write: %w", err)
	}
	// It carries no mark: the server tells that it is being cloned in another way.
	_, err = s.db.ExecContext(ctx, "clone instance from ?@?:? identified by ?", as.Name, host, AdminPort, as.Password)
	if err == nil || errorNumber(err) == errServerRestart || errorNumber(err) == errShutdown {
		return nil
	}
	return errors.Join(fmt.Errorf("clone from %s: %w", host, err), s.SetReadOnly(ctx))
}

func (s *Server) execAll(ctx context.Context, what string, statements []string) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer func() { _ = conn.Close() }() // It goes back to the pool, or is broken and known to be.
	for _, statement := range statements {
		if err := execMarked(ctx, conn, statement); err != nil {
			return fmt.Errorf("%s: %s: %w", what, statement, err)
		}
	}
	return nil
}

// execOrKill runs a statement that may wait for long. A closed connection does not end it at the server; KILL does.
func (s *Server) execOrKill(ctx context.Context, statement string) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // It goes back to the pool, or is broken and known to be.
	var id int64
	if err := conn.QueryRowContext(ctx, "select connection_id()").Scan(&id); err != nil {
		return err
	}
	if err = execMarked(ctx, conn, statement); err == nil || ctx.Err() == nil {
		return err
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
	defer cancel()
	if killed := s.execStatement(late, "kill ?", id); killed != nil && errorNumber(killed) != errNoSuchThread {
		return errors.Join(err, fmt.Errorf("the statement may still run: %w", killed))
	}
	return err
}
