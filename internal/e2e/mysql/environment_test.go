// SPDX-License-Identifier: Apache-2.0

package mysql

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
	"k8s.io/apimachinery/pkg/api/meta"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/mysqld"
	"github.com/torpor-dev/torpor/internal/testenv/mysqlpods"
)

const (
	size       = 3
	sqlTimeout = 20 * time.Second
)

// openSession makes a client of a server, with one session.
func openSession(t *testing.T, address, user, password string) *sql.DB {
	t.Helper()
	return openSessionAt(t, net.JoinHostPort(address, strconv.Itoa(mysqld.Port)), user, password)
}

func openSessionAt(t *testing.T, address, user, password string) *sql.DB {
	t.Helper()
	c := driver.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = user, password, "tcp", address
	c.Timeout, c.InterpolateParams, c.Logger = time.Second, true, &driver.NopLogger{}
	connector, err := driver.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	return db
}

// query reads one value of an instance past any link.
func query(t *testing.T, c *mysqlpods.PodCluster, i int, query string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sqlTimeout)
	defer cancel()
	db := openSession(t, c.Servers[i].Address, mysqlpods.RootUser, mysqlpods.RootPassword)
	defer func() { _ = db.Close() }() // The server may be gone before.
	var value sql.NullString
	err := db.QueryRowContext(ctx, query).Scan(&value)
	return value.String, err
}

// mustRun runs statements in an instance past any link.
func mustRun(t *testing.T, c *mysqlpods.PodCluster, i int, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sqlTimeout)
	defer cancel()
	db := openSession(t, c.Servers[i].Address, mysqlpods.RootUser, mysqlpods.RootPassword)
	defer func() { _ = db.Close() }() // The server may be gone before.
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// checkCondition returns how a condition differs from what is wanted, as in "True Healthy".
func checkCondition(ctx context.Context, c *mysqlpods.PodCluster, kind, want string) error {
	cluster, err := c.GetMySQLCluster(ctx)
	if err != nil {
		return err
	}
	return checkConditionOf(cluster, kind, want)
}

func checkConditionOf(cluster *mocov1beta2.MySQLCluster, kind, want string) error {
	found := meta.FindStatusCondition(cluster.Status.Conditions, kind)
	if found == nil {
		return errors.New("there is no such condition")
	}
	if is := string(found.Status) + " " + found.Reason; is != want {
		return fmt.Errorf("found %s: %s", is, found.Message)
	}
	return nil
}

func waitUntilHealthy(t *testing.T, c *mysqlpods.PodCluster) {
	t.Helper()
	testenv.Eventually(t, "the cluster is healthy", func() error { return checkCondition(t.Context(), c, mocov1beta2.HealthyCondition, "True Healthy") })
}

// startHealthyCluster starts a cluster with a table for rows.
func startHealthyCluster(t *testing.T, linked bool) (*mysqlpods.PodCluster, *testenv.Process) {
	t.Helper()
	env := testenv.Start(t)
	c := mysqlpods.StartCluster(t, env, size, linked)
	c.CreateMySQLCluster(t)
	p := startManager(t, c)
	waitUntilHealthy(t, c)
	mustRun(t, c, primaryIndex(t, c), "create database app", "create table app.rows_of (id bigint primary key, v varchar(40))")
	return c, p
}

// primaryIndex returns the index of the primary in the status.
func primaryIndex(t *testing.T, c *mysqlpods.PodCluster) int {
	t.Helper()
	cluster, err := c.GetMySQLCluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return cluster.Status.CurrentPrimaryIndex
}
