// SPDX-License-Identifier: Apache-2.0

package sqlclient

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// SetReadOnly makes the server reject all writes. It waits for commits in progress. If ctx is cancelled first, the
// statement is killed in the server, so it does not take effect after the caller has given up.
func (s *Server) SetReadOnly(ctx context.Context) error {
	if err := s.execOrKill(ctx, "set global super_read_only = on"); err != nil {
		return fmt.Errorf("make the server read-only: %w", err)
	}
	return nil
}

// SetWritable makes commits wait for waitFor replicas, and allows clients to write. It makes both changes in one
// session: if the server restarts in between and loses the first change, the second one fails.
func (s *Server) SetWritable(ctx context.Context, like SemiSync, waitFor int) error {
	return s.execAll(ctx, "make the server writable", append(like.awaitReplicasStatements(waitFor), "set global read_only = off"))
}

// KillConnections kills the client connections of all users except the given ones. Their clients can reconnect.
func (s *Server) KillConnections(ctx context.Context, keep []string) error {
	return s.killConnections(ctx, selectClients, keep)
}

// selectClients selects connections that are neither internal to the server nor from replicas.
const selectClients = selectOtherConnections + `user not in ('event_scheduler', 'system user', 'unauthenticated user') and command not like 'Binlog Dump%'`

// EndCommitWaits makes commits stop waiting for replicas that the server no longer has. KILL disconnects the waiting
// clients but does not end the wait. The wait ends only if the server is super_read_only, because any later commit
// would not wait either. The server reports super_read_only even while the statement that sets it still waits for these
// commits.
func (s *Server) EndCommitWaits(ctx context.Context, like SemiSync) error {
	// A client whose commit stops waiting could assume that its transaction is safe, so it is disconnected first. This
	// includes administrators, although KillConnections spares them.
	if err := s.killConnections(ctx, selectClients+" and command <> 'Sleep' and not ("+isOwnStatement+")", nil); err != nil {
		return err
	}
	source, _ := like.variablePrefixes()
	if err := s.execStatement(ctx, "set global "+source+"_enabled = if(@@global.super_read_only, 0, @@global."+source+"_enabled)"); err != nil {
		return fmt.Errorf("end the wait for replicas: %w", err)
	}
	return nil
}

// CancelStatements kills the connections that still run a statement of a manager, recognized by statementMark.
func (s *Server) CancelStatements(ctx context.Context) error {
	return s.killConnections(ctx, selectOtherConnections+isPendingAct, nil)
}

// isPendingAct and isOwnStatement select the statements of managers by account and text. The text is not sufficient,
// because statements of other clients may contain it too.
const (
	isManagers     = "user = substring_index(current_user(), '@', 1)"
	isPendingAct   = isManagers + " and command = 'Query' and info like '" + statementMark + "%'"
	isOwnStatement = isManagers + " and (ifnull(info, '') like '" + statementMark + "%' or ifnull(info, '') = '" + watchStatement + "' or ifnull(info, '') like '" + replicationWatchBegin + "%')"
)

// selectOtherConnections is the beginning of a query for all connections except the one that runs it.
const selectOtherConnections = "select id, user from performance_schema.processlist where id <> connection_id() and "

// killsAtOnce is the maximum number of connections that are killed in one round trip.
const killsAtOnce = 500

// killConnections kills the connections that a query selects, except those of the users in keep.
func (s *Server) killConnections(ctx context.Context, query string, keep []string) error {
	left, err := s.listConnections(ctx, query, keep)
	for size := killsAtOnce; err == nil && len(left) > 0; {
		var statements strings.Builder
		ids := left[:min(len(left), size)]
		for _, id := range ids {
			fmt.Fprintf(&statements, "%skill %d;", statementMark, id)
		}
		_, failed := s.db.ExecContext(ctx, statements.String())
		if failed != nil && errorNumber(failed) != errNoSuchThread {
			return fmt.Errorf("end %d connections: %w", len(ids), failed)
		}
		// A KILL for a missing connection fails, and the server skips the KILL statements after it.
		if failed != nil && len(ids) > 1 {
			size = len(ids) / 2
			left, err = s.listAgain(ctx, query, left)
			continue
		}
		left, size = left[len(ids):], killsAtOnce
	}
	return err
}

// listAgain returns the connections in before that still exist.
func (s *Server) listAgain(ctx context.Context, query string, before []int64) ([]int64, error) {
	now, err := s.listConnections(ctx, query, nil)
	return slices.DeleteFunc(before, func(id int64) bool { return !slices.Contains(now, id) }), err
}

func (s *Server) listConnections(ctx context.Context, query string, keep []string) ([]int64, error) {
	rows, err := s.db.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("list connections: %w", err)
	}
	defer func() { _ = rows.Close() }() // rows.Err returns errors of the query.
	var ids []int64
	for rows.Next() {
		var id int64
		var user string
		if err := rows.Scan(&id, &user); err != nil {
			return nil, fmt.Errorf("list connections: %w", err)
		}
		if !slices.Contains(keep, user) {
			ids = append(ids, id)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list connections: %w", err)
	}
	return ids, nil
}

// StopReceiving stops the IO thread, so the source gets no more acknowledgements from this replica.
func (s *Server) StopReceiving(ctx context.Context) error {
	if err := s.execStatement(ctx, "stop replica io_thread"); err != nil {
		return fmt.Errorf("stop receiving transactions: %w", err)
	}
	return nil
}

// StartReceiving starts a stopped IO thread.
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

// BecomeSource removes the replication channel and makes commits wait until waitFor replicas have received them. If
// waitFor is 0, commits do not wait. It does not change whether clients can write.
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

// ReplicationSource describes a server to replicate or clone from.
type ReplicationSource struct {
	Host string
	Port int
	As   Account
	// IsAcknowledged enables semi-sync. It is true inside the cluster and false for an external source.
	IsAcknowledged bool
	// IsEncrypted is true if both servers have certificates, so accounts may require TLS. IsVerified is true if both
	// certificates are from the same Secret, so one CA signed them.
	IsEncrypted, IsVerified bool
}

// FollowSource makes the server a replica of a source. It changes the channel only if the source differs, because a
// change drops the relay log. An external source gets no acknowledgements. Its password is always set, because it may
// have changed.
func (s *Server) FollowSource(ctx context.Context, like SemiSync, from ReplicationSource) error {
	source, replica := like.variablePrefixes()
	flag := map[bool]string{true: " = on", false: " = off"}[from.IsAcknowledged]
	if err := s.execAll(ctx, "stop replicating", []string{"stop replica", "set global " + source + "_enabled = off", "set global " + replica + "_enabled" + flag}); err != nil {
		return err
	}
	follows, err := s.queryBool(ctx, `select count(*) = 1 from performance_schema.replication_connection_configuration
		where channel_name = '' and host = ? and port = ? and user = ? and auto_position = '1'`, from.Host, from.Port, from.As.Name)
	if err != nil {
		return fmt.Errorf("read the source: %w", err)
	}
	switch {
	case !follows:
		err = s.changeSource(ctx, from, `source_host = ?, source_port = ?, source_user = ?, source_password = ?,
			source_auto_position = 1, get_source_public_key = 1, source_connect_retry = 1, source_heartbeat_period = 0.5, source_retry_count = 1000000000`,
			from.Host, from.Port, from.As.Name, from.As.Password)
	case !from.IsAcknowledged:
		err = s.changeSource(ctx, from, "source_password = ?", from.As.Password)
	}
	if err != nil {
		return fmt.Errorf("replicate from %s: %w", from.Host, err)
	}
	return s.execAll(ctx, "start replicating", []string{"start replica"})
}

// RenewChannel sets the channel's password and whether the replica verifies the source. The relay log is kept, because
// the SQL thread keeps running.
func (s *Server) RenewChannel(ctx context.Context, from ReplicationSource) error {
	if err := s.StopReceiving(ctx); err != nil {
		return err
	}
	if err := s.changeSource(ctx, from, "source_password = ?", from.As.Password); err != nil {
		return errors.Join(fmt.Errorf("renew the channel from %s: %w", from.Host, err), s.StartReceiving(ctx))
	}
	return s.StartReceiving(ctx)
}

// changeSource runs CHANGE REPLICATION SOURCE. With verification, the source's certificate must be signed by the CA in
// the replica's ssl_ca.
func (s *Server) changeSource(ctx context.Context, from ReplicationSource, options string, args ...any) error {
	var authorities sql.NullString
	verify := ", source_ssl_verify_server_cert = 0, source_ssl_ca = ''"
	switch {
	case from.IsVerified:
		if err := s.db.QueryRowContext(ctx, "select @@global.ssl_ca").Scan(&authorities); err != nil {
			return err
		}
		verify = ", source_ssl = 1, source_ssl_verify_server_cert = 1, source_ssl_ca = ?"
		args = append(args, authorities.String)
	case from.IsEncrypted:
		verify = ", source_ssl = 1" + verify
	}
	return s.execStatement(ctx, "change replication source to "+options+verify, args...)
}

// ReloadCertificate makes the server load the certificate in its files for new connections.
func (s *Server) ReloadCertificate(ctx context.Context) error {
	if err := s.execStatement(ctx, "alter instance reload tls"); err != nil {
		return fmt.Errorf("reload the certificate: %w", err)
	}
	return nil
}

func (s *Server) queryBool(ctx context.Context, query string, args ...any) (bool, error) {
	var answer bool
	err := s.db.QueryRowContext(ctx, query, args...).Scan(&answer)
	return answer, err
}

// DiscardTransactions makes the server forget every transaction that it has executed or received, and deletes its
// binary and relay logs. The rows stay. version is the server's version.
func (s *Server) DiscardTransactions(ctx context.Context, version string) error {
	return s.execAll(ctx, "discard all transactions", []string{"stop replica", "reset replica all", DiscardLogsStatement(version)})
}

// ErrNotEmpty is returned for a server that contains data that a clone would overwrite.
var ErrNotEmpty = errors.New("clone: expected an empty server, found transactions in it")

// CloneFrom replaces the data of an empty server with the donor's data. The server then restarts in read-only mode. The
// connection is lost during the restart, which is not an error. ServerFacts.Clone shows whether the clone has succeeded.
func (s *Server) CloneFrom(ctx context.Context, from ReplicationSource) error {
	empty, err := s.queryBool(ctx, `select @@global.gtid_executed = '' and not exists (
		select 1 from performance_schema.replication_connection_status where received_transaction_set <> '')`)
	if err != nil {
		return fmt.Errorf("check whether the server is empty: %w", err)
	}
	if !empty {
		return ErrNotEmpty
	}
	donor := net.JoinHostPort(from.Host, strconv.Itoa(from.Port))
	if err := s.execStatement(ctx, "set global clone_valid_donor_list = ?", donor); err != nil {
		return fmt.Errorf("set clone_valid_donor_list: %w", err)
	}
	if err := s.AllowClonePackets(ctx); err != nil {
		return err
	}
	// CLONE does not accept a recipient that is read-only for administrators. The recipient stays read-only for
	// clients.
	if err := s.execStatement(ctx, "set global super_read_only = off"); err != nil {
		return fmt.Errorf("turn super_read_only off: %w", err)
	}
	clone := "clone instance from ?@?:? identified by ?"
	if from.IsVerified {
		if err := s.execStatement(ctx, "set global clone_ssl_ca = @@global.ssl_ca"); err != nil {
			return fmt.Errorf("set clone_ssl_ca: %w", err)
		}
		clone += " require ssl"
	}
	// The statement does not begin with statementMark, because ServerFacts.Clone reports a running clone.
	_, err = s.db.ExecContext(ctx, clone, from.As.Name, from.Host, from.Port, from.As.Password)
	if err == nil || errorNumber(err) == errServerRestart || errorNumber(err) == errShutdown || errors.Is(err, mysql.ErrInvalidConn) {
		return nil
	}
	return errors.Join(fmt.Errorf("clone from %s: %w", from.Host, err), s.SetReadOnly(ctx))
}

// minClonePacket is the minimum value of max_allowed_packet for CLONE, in both servers.
// https://dev.mysql.com/doc/refman/8.4/en/clone-plugin-remote.html
const minClonePacket = 2 << 20

// AllowClonePackets raises max_allowed_packet to the minimum for CLONE, until the server restarts. A higher value is
// kept.
func (s *Server) AllowClonePackets(ctx context.Context) error {
	if err := s.execStatement(ctx, "set global max_allowed_packet = cast(greatest(@@global.max_allowed_packet, ?) as unsigned)", minClonePacket); err != nil {
		return fmt.Errorf("raise max_allowed_packet: %w", err)
	}
	return nil
}

// RunUnlogged runs statements, separated by semicolons, without writing them to the binary log. The server is read-only
// before and after. Errors do not contain the statements, because these may contain passwords.
func (s *Server) RunUnlogged(ctx context.Context, statements string) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("run statements: %w", err)
	}
	// The session is not returned to the pool, because its statements are not logged.
	defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }()
	for _, before := range []string{"set sql_log_bin = 0", "set global super_read_only = off"} {
		if err := execMarked(ctx, conn, before); err != nil {
			return fmt.Errorf("run statements: %s: %w", before, err)
		}
	}
	_, err = conn.ExecContext(ctx, statements)
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
	defer cancel()
	if err != nil {
		return errors.Join(fmt.Errorf("run statements: %w", err), s.SetReadOnly(late))
	}
	return s.SetReadOnly(late)
}

func (s *Server) execAll(ctx context.Context, what string, statements []string) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer func() { _ = conn.Close() }() // The connection returns to the pool, or was already found to be broken.
	for _, statement := range statements {
		if err := execMarked(ctx, conn, statement); err != nil {
			return fmt.Errorf("%s: %s: %w", what, statement, err)
		}
	}
	return nil
}

// execOrKill runs a statement that may wait for a long time. If ctx is cancelled, it kills the statement, because
// closing the connection does not end the statement in the server.
func (s *Server) execOrKill(ctx context.Context, statement string) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // The connection returns to the pool, or was already found to be broken.
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

// listVariables returns the names of the variables that buildReadStatement reads. They depend on the server's plugins.
func (s *Server) listVariables(ctx context.Context) ([]string, error) {
	if known := s.variables.Load(); known != nil {
		return *known, nil
	}
	const query = `select json_arrayagg(lower(variable_name)) from performance_schema.global_variables
  where variable_name like 'rpl\_semi\_sync\_%' or variable_name in ('sync_binlog', 'innodb_flush_log_at_trx_commit', 'replica_exec_mode')`
	var list string
	if err := s.db.QueryRowContext(ctx, query).Scan(&list); err != nil {
		return nil, fmt.Errorf("list the server's variables: %w", err)
	}
	var names []string
	if err := json.Unmarshal([]byte(list), &names); err != nil {
		return nil, fmt.Errorf("list the server's variables: %w", err)
	}
	s.variables.Store(&names)
	return names, nil
}

// buildReadStatement returns one statement that reads all of ServerFacts, to keep the load of an idle cluster minimal.
// MySQL evaluates the statement from left to right. The read-only state is therefore read before the executed
// transactions. The transactions being committed are read before the executed ones, too: a transaction that is
// committed in between is then in both sets instead of in neither.
//
// A server that was killed during CLONE keeps reporting that CLONE is in progress, with the error that interrupted it.
// A transaction that waits because of SOURCE_DELAY has not reached a worker, so its age is the part of the delay that
// has passed. Each variable is read by name, because the table of all variables cannot be read while a GRANT waits for
// a replica.
func buildReadStatement(variables []string) string {
	var pairs []string
	for _, name := range variables {
		pairs = append(pairs, "'"+name+"', concat(@@global."+name+")")
	}
	return `select @@global.server_uuid, @@global.version,
 (select max(time) from performance_schema.processlist where ` + isPendingAct + ` and id <> connection_id()),
 @@global.super_read_only, @@global.read_only,
 (select json_objectagg(lower(variable_name), variable_value) from performance_schema.global_status
  where variable_name like 'Rpl\_semi\_sync\_%\_wait\_sessions' or variable_name like 'Rpl\_semi\_sync\_%\_status' or variable_name in ('Ssl_server_not_before', 'Ssl_server_not_after')),
 json_object(` + strings.Join(pairs, ", ") + `),
 (select if(state = 'In Progress' and error_no <> 0, 'Failed', state) from performance_schema.clone_status order by id desc limit 1),
 (select json_arrayagg(convert(v.variable_value using utf8mb4)) from performance_schema.user_variables_by_thread v
  join performance_schema.threads t on t.thread_id = v.thread_id
  where t.processlist_command like 'Binlog Dump%' and v.variable_name = 'replica_uuid'),
 (select json_object('host', c.host, 'port', c.port, 'user', c.user, 'uuid', s.source_uuid, 'auto', c.auto_position,
   'verified', if(c.ssl_allowed = 'YES' and c.ssl_verify_server_certificate = 'YES' and c.ssl_ca_file = @@global.ssl_ca, 'YES', ''), 'io', s.service_state,
   'retrieved', s.received_transaction_set, 'ioerrno', s.last_error_number, 'sql', a.service_state,
   'password', (select sha2(m.user_password, 256) from mysql.slave_master_info m where m.channel_name = ''),
   'sqlerrno', greatest(
     (select ifnull(max(w.last_error_number), 0) from performance_schema.replication_applier_status_by_worker w where w.channel_name = ''),
     (select ifnull(max(o.last_error_number), 0) from performance_schema.replication_applier_status_by_coordinator o where o.channel_name = '')),
   'lag', greatest(
     (select ifnull(max(timestampdiff(microsecond, w.applying_transaction_original_commit_timestamp, now(6))), 0)
      from performance_schema.replication_applier_status_by_worker w where w.channel_name = '' and w.applying_transaction <> ''),
     (select ifnull(max(cast(d.desired_delay as signed) - cast(a.remaining_delay as signed)), 0) * 1000000
      from performance_schema.replication_applier_configuration d where d.channel_name = a.channel_name)),
   'heard', timestampdiff(microsecond, greatest(s.last_heartbeat_timestamp, s.last_queued_transaction_end_queue_timestamp,
     s.queueing_transaction_start_queue_timestamp), now(6)))
  from performance_schema.replication_connection_configuration c
  join performance_schema.replication_connection_status s on s.channel_name = c.channel_name
  join performance_schema.replication_applier_status a on a.channel_name = c.channel_name
  where c.channel_name = '' and c.host <> ''),
 @@global.gtid_owned, @@global.gtid_executed, @@global.gtid_purged`
}

// certificateTime is the format in which the server returns the times of a certificate.
const certificateTime = "Jan _2 15:04:05 2006 MST"

// ownerSuffix matches the ID of the committing connection, which gtid_owned contains after each transaction number.
var ownerSuffix = regexp.MustCompile(`#\d+`)

// ReadFacts reads ServerFacts with one statement. The first call also reads the names of the server's variables.
func (s *Server) ReadFacts(ctx context.Context) (ServerFacts, error) {
	var f ServerFacts
	var variables, status, clone, connected, channel sql.NullString
	var pending sql.NullInt64
	names, err := s.listVariables(ctx)
	if err != nil {
		return ServerFacts{}, err
	}
	err = s.db.QueryRowContext(ctx, buildReadStatement(names)).Scan(&f.UUID, &f.Version, &pending, &f.SuperReadOnly, &f.ReadOnly,
		&status, &variables, &clone, &connected, &channel, &f.Owned, &f.Executed, &f.Purged)
	if err != nil {
		if errorNumber(err) == errUnknownVariable { // The server has restarted with different plugins.
			s.variables.Store(nil)
		}
		return ServerFacts{}, fmt.Errorf("read the server's state: %w", err)
	}
	f.Owned = ownerSuffix.ReplaceAllString(removeLineBreaks(f.Owned), "")
	f.Executed, f.Purged, f.Clone = removeLineBreaks(f.Executed), removeLineBreaks(f.Purged), clone.String
	f.Pending, f.PendingFor = pending.Valid, time.Duration(pending.Int64)*time.Second
	if connected.Valid {
		if err := json.Unmarshal([]byte(connected.String), &f.Connected); err != nil {
			return ServerFacts{}, fmt.Errorf("decode the connected replicas: %w", err)
		}
	}
	values, err := parseVariables(variables.String, status.String)
	if err != nil {
		return ServerFacts{}, err
	}
	f.SemiSync = parseSemiSync(values)
	f.CertificateFrom, _ = time.Parse(certificateTime, values["ssl_server_not_before"]) // The value is empty without a certificate.
	f.CertificateUntil, _ = time.Parse(certificateTime, values["ssl_server_not_after"])
	if source, _ := f.SemiSync.variablePrefixes(); f.SemiSync.HasGivenUp {
		f.Weakened = append(f.Weakened, source+"_status")
	}
	for name, want := range f.SemiSync.durableSettings() {
		if values[name] != want {
			f.Weakened = append(f.Weakened, name)
		}
	}
	slices.Sort(f.Weakened)
	if channel.Valid {
		f.Replication, err = parseReplication(channel.String)
	}
	return f, err
}

// AccountFacts describes Torpor's accounts in a server.
type AccountFacts struct {
	// Version is the version of the list from which the accounts were created. It is empty if the accounts were created
	// without a version.
	Version string
	// MayExpire is true if the password of an account can expire by age. Expired lists the accounts whose passwords a
	// statement has expired.
	MayExpire bool
	Expired   []string
}

// selectAccounts selects Torpor's accounts by a comma-separated list of names.
const selectAccounts = " from mysql.user where host = '%' and find_in_set(user, ?)"

// ReadAccounts reads the facts about accounts. They are not part of ServerFacts, because the query is blocked while a
// GRANT waits.
func (s *Server) ReadAccounts(ctx context.Context, names []string) (AccountFacts, error) {
	var version, expired sql.NullString
	var f AccountFacts
	const query = `select max(user_attributes->>'$.metadata.torporAccounts'), ifnull(max(ifnull(password_lifetime, 1) <> 0), 0),
 group_concat(if(password_expired = 'Y', user, null) order by user)` + selectAccounts
	if err := s.db.QueryRowContext(ctx, query, strings.Join(names, ",")).Scan(&version, &f.MayExpire, &expired); err != nil {
		return AccountFacts{}, fmt.Errorf("read the accounts: %w", err)
	}
	f.Version = version.String
	if expired.String != "" {
		f.Expired = strings.Split(expired.String, ",")
	}
	return f, nil
}

// ReviveAccounts lets accounts with expired passwords log in again. The accounts keep their passwords, including
// retained ones.
func (s *Server) ReviveAccounts(ctx context.Context, like SemiSync, names []string) error {
	const query = `select json_arrayagg(concat('alter user ', quote(user), '@''%'' identified with ', plugin, ' as 0x', hex(authentication_string)))` +
		selectAccounts + " and password_expired = 'Y'"
	var list sql.NullString
	if err := s.db.QueryRowContext(ctx, query, strings.Join(names, ",")).Scan(&list); err != nil {
		return fmt.Errorf("read the expired accounts: %w", err)
	}
	if !list.Valid {
		return nil
	}
	var statements []string
	if err := json.Unmarshal([]byte(list.String), &statements); err != nil {
		return fmt.Errorf("decode the expired accounts: %w", err)
	}
	return s.ChangeAccounts(ctx, like, statements)
}

// ReadRotation returns the ID of the rotation that set the accounts' newer passwords, or "" if each account has one
// password. It can be blocked like ReadAccounts, so it is called only while a rotation is requested.
func (s *Server) ReadRotation(ctx context.Context) (string, error) {
	var rotation sql.NullString
	const query = "select max(user_attributes->>'$.metadata.torporRotation') from mysql.user where user = 'moco-admin'"
	if err := s.db.QueryRowContext(ctx, query).Scan(&rotation); err != nil {
		return "", fmt.Errorf("read the accounts' rotation: %w", err)
	}
	return rotation.String, nil
}

// removeLineBreaks removes the line breaks that MySQL writes between the UUIDs of a GTID set.
func removeLineBreaks(set string) string { return strings.ReplaceAll(set, "\n", "") }

func parseVariables(texts ...string) (map[string]string, error) {
	values := map[string]string{}
	for _, text := range texts {
		if text == "" {
			continue
		}
		if err := json.Unmarshal([]byte(text), &values); err != nil {
			return nil, fmt.Errorf("decode the server's variables: %w", err)
		}
	}
	return values, nil
}

func parseSemiSync(values map[string]string) SemiSync {
	_, isNew := values["rpl_semi_sync_source_enabled"]
	_, isOld := values["rpl_semi_sync_master_enabled"]
	s := SemiSync{UsesOldNames: isOld && !isNew}
	source, replica := s.variablePrefixes()
	s.Source, s.Replica = values[source+"_enabled"] == "1", values[replica+"_enabled"] == "1"
	s.WaitFor, _ = strconv.Atoi(values[source+"_wait_for_"+strings.TrimPrefix(replica, "rpl_semi_sync_")+"_count"])
	milliseconds, _ := strconv.Atoi(values[source+"_timeout"])
	s.Timeout = time.Duration(milliseconds) * time.Millisecond
	s.ReplicaActive = values[replica+"_status"] == "ON"
	s.Waiting, _ = strconv.Atoi(values[source+"_wait_sessions"])
	s.HasGivenUp = s.Source && values[source+"_status"] == "OFF"
	return s
}

// durableSettings returns the required values of settings that can be changed in a running server. With other values,
// the server may lose acknowledged commits, or acknowledge commits that no replica has.
func (s SemiSync) durableSettings() map[string]string {
	source, replica := s.variablePrefixes()
	return map[string]string{
		"sync_binlog": "1", "innodb_flush_log_at_trx_commit": "1", "replica_exec_mode": "STRICT",
		source + "_wait_no_" + strings.TrimPrefix(replica, "rpl_semi_sync_"): "1", source + "_wait_point": "AFTER_SYNC",
	}
}

// RestoreDurability restores the settings on which acknowledgements depend.
func (s *Server) RestoreDurability(ctx context.Context, like SemiSync, weakened []string) error {
	var statements []string
	for name, value := range like.durableSettings() {
		statements = append(statements, "set global "+name+" = "+value)
	}
	// The source has stopped waiting for replicas, so no commit is waiting while semi-sync is turned off and on.
	if source, _ := like.variablePrefixes(); slices.Contains(weakened, source+"_status") {
		statements = append(statements, "set global "+source+"_enabled = off", "set global "+source+"_enabled = on")
	}
	return s.execAll(ctx, "restore durability", statements)
}

// ErrNoReplica is returned if a statement was not run, because too few replicas could acknowledge it.
var ErrNoReplica = errors.New("too few replicas are connected to acknowledge the statement")

// ChangeAccounts runs statements in one session. A statement runs only while enough replicas are connected, because a
// statement that waits for a replica holds locks that block every login. Errors do not contain the statements, because
// these may contain passwords.
func (s *Server) ChangeAccounts(ctx context.Context, like SemiSync, statements []string) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("change accounts: %w", err)
	}
	defer func() { _ = conn.Close() }() // The connection returns to the pool, or was already found to be broken.
	source, replica := like.variablePrefixes()
	hasReplicas := "select not @@global." + source + "_enabled or variable_value >= @@global." + source + "_wait_for_" + strings.TrimPrefix(replica, "rpl_semi_sync_") +
		"_count from performance_schema.global_status where variable_name = '" + source + "_clients'"
	for n, statement := range statements {
		var mayRun bool
		if err := conn.QueryRowContext(ctx, hasReplicas).Scan(&mayRun); err != nil {
			return fmt.Errorf("count the replicas before statement %d: %w", n+1, err)
		}
		if !mayRun {
			return fmt.Errorf("run statement %d: %w", n+1, ErrNoReplica)
		}
		if err := execMarked(ctx, conn, statement); err != nil {
			return fmt.Errorf("run statement %d: %w", n+1, err)
		}
	}
	return nil
}

func (s SemiSync) variablePrefixes() (source, replica string) {
	if s.UsesOldNames {
		return "rpl_semi_sync_master", "rpl_semi_sync_slave"
	}
	return "rpl_semi_sync_source", "rpl_semi_sync_replica"
}

func parseReplication(channel string) (*ReplicationFacts, error) {
	var raw struct {
		Host, User, UUID, Auto, IO, Retrieved, SQL string
		Port                                       int
		Verified, Password                         string
		IOErrno, SQLErrno                          int
		Lag, Heard                                 *int64
	}
	if err := json.Unmarshal([]byte(channel), &raw); err != nil {
		return nil, fmt.Errorf("decode the replication channel: %w", err)
	}
	r := &ReplicationFacts{
		SourceHost: raw.Host, SourcePort: raw.Port, SourceUser: raw.User, SourceUUID: raw.UUID, AutoPosition: raw.Auto == "1", IsVerified: raw.Verified == "YES", PasswordHash: raw.Password,
		Retrieved: removeLineBreaks(raw.Retrieved), IOErrno: raw.IOErrno, SQLErrno: raw.SQLErrno,
		HeardAgo: -1, IO: raw.IO == "ON", Connecting: raw.IO == "CONNECTING", SQL: raw.SQL == "ON",
	}
	if raw.Heard != nil {
		r.HeardAgo = max(time.Duration(*raw.Heard)*time.Microsecond, 0)
	}
	if raw.Lag != nil {
		r.Lag = time.Duration(*raw.Lag) * time.Microsecond
	}
	return r, nil
}
