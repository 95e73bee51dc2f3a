// SPDX-License-Identifier: Apache-2.0

package mysqlpods

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

const sqlTimeout = 20 * time.Second

// OpenSession returns a client of a server with only one session.
func OpenSession(t testing.TB, address, user, password string) *sql.DB {
	t.Helper()
	return OpenSessionAt(t, net.JoinHostPort(address, strconv.Itoa(mysqld.Port)), user, password)
}

// OpenSessionAt returns a client of the server at an address with a port, with only one session.
func OpenSessionAt(t testing.TB, address, user, password string) *sql.DB {
	t.Helper()
	c := driver.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = user, password, "tcp", address
	c.Timeout, c.InterpolateParams, c.Logger = time.Second, true, &driver.NopLogger{}
	connector, err := driver.NewConnector(c)
	testenv.ExpectNoError(t, err)
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	return db
}

// Query reads one value from an instance, bypassing its link.
func (c *PodCluster) Query(t testing.TB, i int, query string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sqlTimeout)
	defer cancel()
	db := OpenSession(t, c.Servers[i].Address, RootUser, RootPassword)
	defer func() { _ = db.Close() }() // The server may have ended.
	var value sql.NullString
	err := db.QueryRowContext(ctx, query).Scan(&value)
	return value.String, err
}

// MustRun runs statements in an instance, bypassing its link.
func (c *PodCluster) MustRun(t testing.TB, i int, statements ...string) {
	t.Helper()
	testenv.ExpectNoError(t, c.Run(t, i, statements...))
}

// Run runs the statements as root in one session.
func (c *PodCluster) Run(t testing.TB, i int, statements ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sqlTimeout)
	defer cancel()
	db := OpenSession(t, c.Servers[i].Address, RootUser, RootPassword)
	defer func() { _ = db.Close() }() // The server may have ended.
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// WaitForCurrentAccounts waits until the product's accounts are current in the primary. They are older than the
// certificates, as in a cluster from before TLS, and are renewed once the cluster is healthy. An ALTER USER that is not
// acknowledged because of a network failure would block all logins; on real Pods, the liveness probe would restart the
// server.
func (c *PodCluster) WaitForCurrentAccounts(t testing.TB, primary int) {
	t.Helper()
	testenv.Eventually(t, "the accounts are current", func() error {
		version, err := c.Query(t, primary, "select user_attributes->>'$.metadata."+mysqlusers.VersionAttribute+"' from mysql.user where user = '"+mysqlusers.AdminUser+"'")
		return errors.Join(err, testenv.ErrorIf(version != mysqlusers.CurrentVersion(true), "they are of the version %q", version))
	})
}
