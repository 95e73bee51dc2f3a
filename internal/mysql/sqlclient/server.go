// SPDX-License-Identifier: Apache-2.0

// Package sqlclient speaks SQL with the servers of one cluster: it reads everything that a decision needs with one statement,
// and does what was decided. Every effect may be repeated.
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
	// dialTimeout bounds the making of a connection.
	dialTimeout = 5 * time.Second
	// AdminPort is where the servers keep a place for administrators, however many clients there are.
	AdminPort = 33062
	// Port is where clients and replicas connect.
	Port = 3306
	// maxConnections that one server gets: one is held and one is pinged by WatchConnection, one reads, one acts, one is for the
	// statement beside. None is shared, since a further one would have to log in, which nobody can while a GRANT waits.
	maxConnections = 5
	// pingInterval and pingTimeout are how soon a frozen server is noticed, and how long a slow one may take.
	pingInterval, pingTimeout = time.Second, 2 * time.Second
	// Numbers of MySQL's errors.
	errAccessDenied    = 1045
	errShutdown        = 1053
	errNoSuchThread    = 1094
	errUnknownVariable = 1193
	errServerRestart   = 3707
)

// ErrSilent is returned for a server that holds its connections and does not answer.
var ErrSilent = errors.New("the server does not answer")

// Account is a user of the database.
type Account struct{ Name, Password string }

// Server is one MySQL server with its persistent connections. It may be used by several goroutines.
type Server struct {
	db *sql.DB
	// variables are the names of what a look reads; nil before the first look.
	variables atomic.Pointer[[]string]
}

// OpenServer returns a server that is reached by host, a name or an address, on the admin port. It makes no connection yet.
// The account needs SERVICE_CONNECTION_ADMIN. Without trust, for a server that has no certificate of the cluster's, TLS is used
// if the server has any, and nobody vouches for it.
func OpenServer(host string, as Account, trust *tls.Config) (*Server, error) {
	config := driver.NewConfig()
	config.User, config.Passwd, config.Net = as.Name, as.Password, "tcp"
	config.Addr = net.JoinHostPort(host, strconv.Itoa(AdminPort))
	config.Timeout, config.InterpolateParams, config.MultiStatements = dialTimeout, true, true
	if config.TLS = trust; trust == nil {
		config.TLSConfig = "preferred"
	}
	config.Params = map[string]string{"wait_timeout": "31536000"} // Connections may be spares for long.
	config.Logger = &driver.NopLogger{}                           // What the driver would log comes as an error too.
	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("prepare the connection to %s: %w", host, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections)
	return &Server{db: db}, nil
}

// Close ends all connections, and with them statements that run on them.
func (s *Server) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close connections: %w", err)
	}
	return nil
}

// WatchConnection returns an error when the server has ended or does not answer any more, so that this is noticed at once,
// and nil when ctx ends. It holds a connection, with one statement a day, and sends packets that are no statements.
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

// watchStatement holds the connection that is watched.
const watchStatement = "do sleep(86400)"

// openSpares opens all connections that may be needed. A GRANT that waits for a replica keeps everybody from logging in, also the
// replicas, and only who is logged in can help.
func (s *Server) openSpares(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pingInterval)
	defer cancel()
	var spares []*sql.Conn
	for range maxConnections {
		if conn, err := s.db.Conn(ctx); err == nil {
			spares = append(spares, conn)
		}
	}
	for _, conn := range spares {
		_ = conn.Close() // It goes back to the pool.
	}
}

// pingUntilSilent returns an error when the server does not answer. A frozen server keeps its connections open.
func (s *Server) pingUntilSilent(ctx context.Context) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to ping: %w", err)
	}
	defer func() { _ = conn.Close() }() // It goes back to the pool, or is broken and known to be.
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

// statementMark begins every act, so that Read knows one that still runs, whoever sent it.
const statementMark = "/* torpor */ "

type statementExecer interface {
	ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error)
}

// execStatement runs one act. The statement is not part of the error: it may hold a password.
func (s *Server) execStatement(ctx context.Context, statement string, args ...any) error {
	return execMarked(ctx, s.db, statement, args...)
}

func execMarked(ctx context.Context, in statementExecer, statement string, args ...any) error {
	_, err := in.ExecContext(ctx, statementMark+statement, args...)
	return err
}

// IsAccessDenied reports whether the server does not let the account in with its password, which may have changed.
func IsAccessDenied(err error) bool { return errorNumber(err) == errAccessDenied }

// IsUntrusted reports whether the server shows a certificate that is not the cluster's, whose authority may have changed.
func IsUntrusted(err error) bool {
	_, is := errors.AsType[*tls.CertificateVerificationError](err)
	return is
}

// IsConnectionRefused reports whether nothing listens where the server was expected.
func IsConnectionRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// errorNumber returns MySQL's number of an error, 0 for other errors.
func errorNumber(err error) uint16 {
	if m, ok := errors.AsType[*driver.MySQLError](err); ok {
		return m.Number
	}
	return 0
}

// DescribeError says what went wrong without the server's words, which may hold data.
func DescribeError(err error) string {
	switch n := errorNumber(err); {
	case n != 0:
		return fmt.Sprintf("MySQL answered with error %d", n)
	case IsConnectionRefused(err):
		return "the connection was refused"
	case IsUntrusted(err):
		return "the server's certificate is not the cluster's"
	case errors.Is(err, ErrNoReplica):
		return ErrNoReplica.Error()
	case errors.Is(err, ErrNotEmpty):
		return ErrNotEmpty.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.Is(err, context.Canceled):
		return "given up"
	default:
		return "the connection is broken"
	}
}

// ServerFacts is what one server said of itself at one moment. GTID sets are in MySQL's own notation.
type ServerFacts struct {
	UUID, Version    string
	Executed, Purged string
	// Owned is what is being committed: numbered, perhaps received by replicas, and not executed yet.
	Owned                   string
	ReadOnly, SuperReadOnly bool
	SemiSync                SemiSync
	// Weakened are the settings by which it may lose what it acknowledged, sorted.
	Weakened []string
	// CertificateFrom and CertificateUntil are the life of the certificate that it shows.
	CertificateFrom, CertificateUntil time.Time
	// Connected are the UUIDs of the replicas that it serves.
	Connected []string
	// Pending says that a statement of a manager, of whichever, still runs in the server, and PendingFor for how many whole
	// seconds.
	Pending    bool
	PendingFor time.Duration
	// Replication is nil when the server has no replication channel.
	Replication *ReplicationFacts
	// Clone is the state of the last CLONE that this server received: "Not Started", "In Progress", "Completed" or
	// "Failed"; empty when there was none.
	Clone string
}

// SemiSync is how commits wait for replicas.
type SemiSync struct {
	// UsesOldNames is true for a server that has the plugins of MySQL 8.0, whose variables say master and slave.
	UsesOldNames    bool
	Source, Replica bool
	// ReplicaActive says that the receiving thread acknowledges, which it knows since it connected.
	ReplicaActive bool
	// WaitFor is how many replicas must have received a transaction before its commit returns.
	WaitFor int
	// Timeout is how long a commit waits for them.
	Timeout time.Duration
	// Waiting is how many commits wait now.
	Waiting int
	// HasGivenUp says that commits wait for nobody although Source is set: a replica has kept one waiting for longer than Timeout, or too few
	// are there and a setting allows that.
	HasGivenUp bool
}

// ReplicationFacts is the state of the channel from the source.
type ReplicationFacts struct {
	SourceHost, SourceUser, SourceUUID string
	SourcePort                         int
	AutoPosition                       bool
	// PasswordHash is the SHA-256 of the password with which it logs in.
	PasswordHash string
	// IsVerified says that it replicates by TLS only, and only from a server with a certificate of its own authority.
	IsVerified bool
	Retrieved  string
	// IO and SQL are true while the thread runs; Connecting is true while IO tries to reach the source.
	IO, Connecting, SQL bool
	// IOErrno and SQLErrno are 0 when the thread has not failed. The texts may hold data and stay in the server.
	IOErrno, SQLErrno int
	// HeardAgo is how long ago the source sent something last; negative when it has not yet.
	HeardAgo time.Duration
	// Lag is how old the transaction is that is applied now; 0 when everything that was received is applied.
	Lag time.Duration
}
