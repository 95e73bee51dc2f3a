// SPDX-License-Identifier: Apache-2.0

package job

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/torpor-dev/torpor/internal/mysql/backup"
)

const (
	// adminPort takes connections of administrators even when max_connections is reached.
	adminPort = 33062
	// dialTimeout bounds the making of a connection, askTimeout a statement.
	dialTimeout = 5 * time.Second
	askTimeout  = time.Minute
	// codeDenied is MySQL's number for a wrong user or password.
	codeDenied = 1045
)

type mysqlServer struct {
	host string
	db   *sql.DB
}

func openServers(hosts []string, user, password string) ([]*mysqlServer, error) {
	if len(hosts) == 0 {
		return nil, errors.New("--host: expected an instance, found none")
	}
	var all []*mysqlServer
	for _, host := range hosts {
		c := driver.NewConfig()
		c.User, c.Passwd, c.Net, c.Addr = user, password, "tcp", net.JoinHostPort(host, strconv.Itoa(adminPort))
		c.Timeout, c.InterpolateParams, c.Logger = dialTimeout, true, &driver.NopLogger{}
		connector, err := driver.NewConnector(c)
		if err != nil {
			closeServers(all)
			return nil, fmt.Errorf("prepare the connection to %s: %w", host, err)
		}
		all = append(all, &mysqlServer{host: host, db: sql.OpenDB(connector)})
	}
	return all, nil
}

func closeServers(servers []*mysqlServer) {
	for _, s := range servers {
		_ = s.db.Close() // The program ends.
	}
}

type instanceFacts struct {
	backup.SourceCandidate

	uuid, executed string
}

const factsStatement = `select @@server_uuid, @@gtid_executed, not @@read_only,
 (select count(*) from performance_schema.replication_connection_status s
  join performance_schema.replication_applier_status a on a.channel_name = s.channel_name
  where s.channel_name = '' and s.service_state = 'ON' and a.service_state = 'ON'),
 (select ifnull(max(timestampdiff(second, applying_transaction_original_commit_timestamp, now(6))), 0)
  from performance_schema.replication_applier_status_by_worker where channel_name = '' and applying_transaction <> '')`

func (s *mysqlServer) queryFacts(ctx context.Context) instanceFacts {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var f instanceFacts
	var lag int64
	if err := s.db.QueryRowContext(ctx, factsStatement).Scan(&f.uuid, &f.executed, &f.Writable, &f.Replicating, &lag); err != nil {
		f.Problem = describeError(err)
		return f
	}
	f.Lag = time.Duration(lag) * time.Second
	return f
}

func (s *mysqlServer) hasExecuted(ctx context.Context, gtids string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var yes bool
	if err := s.db.QueryRowContext(ctx, "select gtid_subset(?, @@gtid_executed)", gtids).Scan(&yes); err != nil {
		return false, fmt.Errorf("compare GTID sets: %w", err)
	}
	return yes, nil
}

type serverInventory struct {
	Schemas  []string
	Accounts []mysqlAccount
	// unsafe are tables whose engine knows no transactions.
	unsafe []string
}

const (
	ownSchemas   = `('information_schema', 'mysql', 'ndbinfo', 'performance_schema', 'sys', '` + markerSchema + `')`
	schemasQuery = `select schema_name from information_schema.schemata where schema_name not in ` + ownSchemas + ` order by 1`
	unsafeQuery  = `select concat(table_schema, '.', table_name) from information_schema.tables
 where table_type = 'BASE TABLE' and engine <> 'InnoDB' and table_schema not in ` + ownSchemas + ` order by 1`
)

func (s *mysqlServer) readInventory(ctx context.Context) (serverInventory, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := s.db.Conn(ctx)
	if err != nil {
		return serverInventory{}, fmt.Errorf("connect to %s: %s", s.host, describeError(err))
	}
	defer func() { _ = c.Close() }() // Only to the pool.
	var i serverInventory
	if i.Schemas, err = queryColumn(ctx, c, schemasQuery); err != nil {
		return i, fmt.Errorf("list schemas: %w", err)
	}
	if i.unsafe, err = queryColumn(ctx, c, unsafeQuery); err != nil {
		return i, fmt.Errorf("list tables: %w", err)
	}
	i.Accounts, err = readAccounts(ctx, c)
	return i, err
}

func (i serverInventory) isEqual(other serverInventory) bool {
	return slices.Equal(i.Schemas, other.Schemas) && slices.EqualFunc(i.Accounts, other.Accounts, mysqlAccount.isEqual)
}

func (i serverInventory) unsafeTableWarnings() []string {
	if len(i.unsafe) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d tables know no transactions, so their rows may be of other moments: %s",
		len(i.unsafe), strings.Join(i.unsafe[:min(len(i.unsafe), 5)], ", "))}
}

// queryColumn returns the first column of a query.
func queryColumn(ctx context.Context, c *sql.Conn, query string, args ...any) ([]string, error) {
	rows, err := c.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	defer func() { _ = rows.Close() }() // What went wrong is returned by Err.
	var all []string
	for rows.Next() {
		var one string
		if err := rows.Scan(&one); err != nil {
			return nil, fmt.Errorf("read the answer: %w", err)
		}
		all = append(all, one)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return all, nil
}

// describeError returns what went wrong without the server's words, which may hold data.
func describeError(err error) string {
	switch n := errorNumber(err); {
	case n == codeDenied:
		return "does not let us in: MySQL knows neither the user nor the password"
	case n != 0:
		return fmt.Sprintf("answered with MySQL's error %d", n)
	default:
		return "does not answer"
	}
}

func errorNumber(err error) uint16 {
	if m, ok := errors.AsType[*driver.MySQLError](err); ok {
		return m.Number
	}
	return 0
}
