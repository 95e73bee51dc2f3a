// SPDX-License-Identifier: Apache-2.0

// Package sqlclient queries and changes the servers of one cluster with SQL. It reads the state of a server with one
// statement. Every change may be repeated.
package sqlclient

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	driver "github.com/go-sql-driver/mysql"
)

const (
	// dialTimeout limits the time for establishing a connection.
	dialTimeout = 5 * time.Second
	// AdminPort is the port on which servers accept administrators regardless of the number of clients.
	AdminPort = 33062
	// Port is the port for clients and replicas.
	Port = 3306
	// maxConnections limits the connections to one server. WatchConnection uses one connection for its statement and
	// another one for pings; one is for reads, one for actions, and one for statements that run in parallel.
	// WatchConnection opens all of them in advance, because a login is impossible while a GRANT waits.
	maxConnections = 5
	// pingInterval is the interval between two pings. pingTimeout is the time that a slow server may take to respond.
	pingInterval, pingTimeout = time.Second, 2 * time.Second
	// MySQL error numbers.
	errAccessDenied    = 1045
	errShutdown        = 1053
	errNoSuchThread    = 1094
	errUnknownVariable = 1193
	errMustChange      = 1820
	errExpired         = 1862
	errServerRestart   = 3707
)

// ErrSilent is returned for a server that keeps its connections open but does not respond.
var ErrSilent = errors.New("the server keeps the connection open, but does not answer")

// Account is a MySQL user with its password.
type Account struct{ Name, Password string }

// Server is one MySQL server with its persistent connections. It is safe for concurrent use.
type Server struct {
	db *sql.DB
	// variables holds the names of the variables to read. It is nil before the first read.
	variables atomic.Pointer[[]string]
}

// OpenServer returns the server at the admin port of host, which is a name or an address. It does not connect yet. The
// account needs SERVICE_CONNECTION_ADMIN. trust is nil for a server without a certificate of the cluster. TLS is then
// used if the server supports it, but the certificate is not verified.
func OpenServer(host string, as Account, trust *tls.Config) (*Server, error) {
	config := driver.NewConfig()
	config.User, config.Passwd, config.Net = as.Name, as.Password, "tcp"
	config.Addr = net.JoinHostPort(host, strconv.Itoa(AdminPort))
	config.Timeout, config.InterpolateParams, config.MultiStatements = dialTimeout, true, true
	if config.TLS = trust; trust == nil {
		config.TLSConfig = "preferred"
	}
	config.Params = sessionSettings()
	config.Logger = &driver.NopLogger{} // The driver also returns the errors that it would log.
	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to %s: %w", host, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections)
	return &Server{db: db}, nil
}

// sessionSettings returns settings on which the manager's statements depend. They override settings that users choose
// for their clients.
func sessionSettings() map[string]string {
	return map[string]string{
		"wait_timeout": "31536000", // Spare connections may be idle for a long time.
		"autocommit":   "1", "transaction_read_only": "0", "max_execution_time": "0", "sql_select_limit": "18446744073709551615", "sql_safe_updates": "0",
		"sql_big_selects":      "1",    // Without it, max_join_size rejects joins.
		"max_sort_length":      "1024", // A lower value sorts names by their first bytes only.
		"group_concat_max_len": "1048576", "completion_type": "0", "time_zone": "'+00:00'",
		// With NO_BACKSLASH_ESCAPES, LIKE patterns would have no escape character. With ANSI_QUOTES, text in double
		// quotes would be an identifier.
		"sql_mode": "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
	}
}

// Close closes the idle connections, and each of the others when its statement ends.
func (s *Server) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close connections: %w", err)
	}
	return nil
}

// WatchConnection returns an error as soon as the server stops or no longer responds, and nil when ctx is cancelled. It
// keeps a connection open with one statement per day, and sends ping packets.
func (s *Server) WatchConnection(ctx context.Context) error {
	s.openSpares(ctx)
	watching, giveUp := context.WithCancelCause(ctx)
	var pings sync.WaitGroup
	pings.Go(func() { giveUp(s.pingUntilSilent(watching)) })
	defer pings.Wait()
	defer giveUp(nil)
	for watching.Err() == nil {
		if _, err := s.db.ExecContext(watching, watchStatement); err != nil && watching.Err() == nil {
			return fmt.Errorf("the connection is lost: %w", err)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(watching)
}

// watchStatement keeps the watched connection open.
const watchStatement = "do sleep(86400)"

// openSpares opens all connections that may be needed. A GRANT that waits for a replica blocks all logins, including
// those of replicas, so only existing sessions can resolve the wait. It waits for no connection that is in use: the
// statement there may end only after another statement, which needs one of the spares, has killed it.
func (s *Server) openSpares(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pingInterval)
	defer cancel()
	var spares []*sql.Conn
	for s.db.Stats().OpenConnections < maxConnections {
		conn, err := s.db.Conn(ctx)
		if err != nil {
			break
		}
		spares = append(spares, conn)
	}
	for _, conn := range spares {
		_ = conn.Close() // The connection returns to the pool.
	}
}

// pingUntilSilent returns an error when the server no longer responds. A frozen server keeps its connections open.
func (s *Server) pingUntilSilent(ctx context.Context) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open the connection for pings: %w", err)
	}
	defer func() { _ = conn.Close() }() // The connection returns to the pool, or was already found to be broken.
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		ping, cancel := context.WithTimeout(ctx, pingTimeout)
		err := conn.PingContext(ping)
		isLate := errors.Is(ping.Err(), context.DeadlineExceeded)
		cancel()
		if err != nil && isLate {
			return ErrSilent
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("ping: %w", err)
		}
	}
}

// statementMark is the beginning of statements that change a server, except CLONE and the statements passed to
// RunUnlogged. ReadFacts uses it to recognize the pending statements of any manager.
const statementMark = "/* torpor */ "

type statementExecer interface {
	ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error)
}

// execStatement runs one marked statement. Errors do not contain the statement, because it may contain a password.
func (s *Server) execStatement(ctx context.Context, statement string, args ...any) error {
	return execMarked(ctx, s.db, statement, args...)
}

func execMarked(ctx context.Context, in statementExecer, statement string, args ...any) error {
	_, err := in.ExecContext(ctx, statementMark+statement, args...)
	return err
}

// IsAccessDenied reports whether the server rejects the account's password. The password may have changed.
func IsAccessDenied(err error) bool { return errorNumber(err) == errAccessDenied }

// IsPasswordExpired reports whether the server refuses all statements because the account's password has expired.
func IsPasswordExpired(err error) bool {
	n := errorNumber(err)
	return n == errExpired || n == errMustChange
}

// IsUntrusted reports whether the server's certificate cannot be verified: it is signed by another CA, is valid for
// another host name, or has expired. The cluster's CA may have changed.
func IsUntrusted(err error) bool {
	_, is := errors.AsType[*tls.CertificateVerificationError](err)
	return is
}

// IsConnectionRefused reports whether the connection was refused, usually because no process listens at the server's
// address.
func IsConnectionRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// errorNumber returns the MySQL error number of an error, or 0 for other errors.
func errorNumber(err error) uint16 {
	if m, ok := errors.AsType[*driver.MySQLError](err); ok {
		return m.Number
	}
	return 0
}

// DescribeError returns a description of an error without the server's message, which may contain data.
func DescribeError(err error) string {
	switch n := errorNumber(err); {
	case n != 0:
		return fmt.Sprintf("MySQL answered with error %d", n)
	case IsConnectionRefused(err):
		return "the connection was refused"
	case IsUntrusted(err):
		return "the server's certificate cannot be verified with the cluster's CA"
	case errors.Is(err, ErrNoReplica):
		return ErrNoReplica.Error()
	case errors.Is(err, ErrNotEmpty):
		return ErrNotEmpty.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.Is(err, context.Canceled):
		return "the request was cancelled"
	default:
		return "the connection is broken"
	}
}

// ServerFacts describes the state of one server at one moment. GTID sets are in MySQL's notation.
type ServerFacts struct {
	UUID, Version    string
	Executed, Purged string
	// Owned is the set of transactions that are being committed. They have GTIDs and may have reached replicas, but are
	// not executed yet.
	Owned                   string
	ReadOnly, SuperReadOnly bool
	SemiSync                SemiSync
	// Weakened lists the settings whose values may make the server lose acknowledged commits. The list is sorted.
	Weakened []string
	// CertificateFrom and CertificateUntil are the validity period of the certificate that the server presents.
	CertificateFrom, CertificateUntil time.Time
	// Connected lists the UUIDs of the connected replicas.
	Connected []string
	// Pending is true if a statement by which a manager changes the server still runs. PendingFor is the statement's
	// duration so far, in whole seconds.
	Pending    bool
	PendingFor time.Duration
	// Replication is nil if the server has no replication channel.
	Replication *ReplicationFacts
	// Clone is the state of the last CLONE that this server received: "Not Started", "In Progress", "Completed" or
	// "Failed". It is empty if there was none.
	Clone string
}

// SemiSync describes the state of semi-synchronous replication.
type SemiSync struct {
	// UsesOldNames is true for a server with the plugins of MySQL 8.0, whose variables contain master and slave.
	UsesOldNames    bool
	Source, Replica bool
	// ReplicaActive is true if the IO thread sends acknowledgements, which is determined when it connects.
	ReplicaActive bool
	// WaitFor is the number of replicas that must have received a transaction before its commit returns.
	WaitFor int
	// Timeout limits how long a commit waits for replicas.
	Timeout time.Duration
	// Waiting is the number of commits that are waiting.
	Waiting int
	// HasGivenUp is true if commits do not wait although Source is set. Either a commit waited for longer than Timeout,
	// or too few replicas are connected and a setting allows commits without them.
	HasGivenUp bool
}

// ReplicationFacts describes the channel from the source.
type ReplicationFacts struct {
	SourceHost, SourceUser, SourceUUID string
	SourcePort                         int
	AutoPosition                       bool
	// PasswordHash is the SHA-256 of the channel's password, in hexadecimal.
	PasswordHash string
	// IsVerified is true if the replica uses TLS and verifies the source with its own CA.
	IsVerified bool
	Retrieved  string
	// IO and SQL are true while the thread runs. Connecting is true while the IO thread tries to reach the source.
	IO, Connecting, SQL bool
	// IOErrno and SQLErrno are 0 if the thread has not failed. The error texts are not read, because they may contain
	// data.
	IOErrno, SQLErrno int
	// HeardAgo is the time since the last packet from the source. It is negative before the first packet.
	HeardAgo time.Duration
	// Lag is the age of the transaction that is being applied. It is 0 if every received transaction is applied.
	Lag time.Duration
}
