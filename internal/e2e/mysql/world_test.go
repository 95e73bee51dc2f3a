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

// open makes a client of a server, with one session.
func open(t *testing.T, address, user, password string) *sql.DB {
	t.Helper()
	return openAt(t, net.JoinHostPort(address, strconv.Itoa(mysqld.Port)), user, password)
}

func openAt(t *testing.T, address, user, password string) *sql.DB {
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

// ask reads one value of an instance past any link.
func ask(t *testing.T, c *mysqlpods.Cluster, i int, query string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sqlTimeout)
	defer cancel()
	db := open(t, c.Servers[i].Address, mysqlpods.RootUser, mysqlpods.RootPassword)
	defer func() { _ = db.Close() }() // The server may be gone before.
	var value sql.NullString
	err := db.QueryRowContext(ctx, query).Scan(&value)
	return value.String, err
}

// must runs statements in an instance past any link.
func must(t *testing.T, c *mysqlpods.Cluster, i int, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sqlTimeout)
	defer cancel()
	db := open(t, c.Servers[i].Address, mysqlpods.RootUser, mysqlpods.RootPassword)
	defer func() { _ = db.Close() }() // The server may be gone before.
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// is says how a condition differs from what is wanted, as in "True Healthy".
func is(ctx context.Context, c *mysqlpods.Cluster, kind, want string) error {
	cluster, err := c.GetMySQLCluster(ctx)
	if err != nil {
		return err
	}
	return conditionIs(cluster, kind, want)
}

func conditionIs(cluster *mocov1beta2.MySQLCluster, kind, want string) error {
	found := meta.FindStatusCondition(cluster.Status.Conditions, kind)
	if found == nil {
		return errors.New("there is no such condition")
	}
	if is := string(found.Status) + " " + found.Reason; is != want {
		return fmt.Errorf("found %s: %s", is, found.Message)
	}
	return nil
}

func becomesHealthy(t *testing.T, c *mysqlpods.Cluster) {
	t.Helper()
	testenv.Eventually(t, "the cluster is healthy", func() error { return is(t.Context(), c, mocov1beta2.HealthyCondition, "True Healthy") })
}

// healthy makes a cluster with a table for rows.
func healthy(t *testing.T, linked bool) (*mysqlpods.Cluster, *testenv.Process) {
	t.Helper()
	hub := testenv.StartAPIServer(t)
	hub.InstallCRDs(t)
	c := mysqlpods.StartCluster(t, hub, size, linked)
	c.CreateMySQLCluster(t)
	p := startManager(t, c)
	becomesHealthy(t, c)
	must(t, c, primary(t, c), "create database app", "create table app.rows_of (id bigint primary key, v varchar(40))")
	return c, p
}

// primary is the index in the status.
func primary(t *testing.T, c *mysqlpods.Cluster) int {
	t.Helper()
	cluster, err := c.GetMySQLCluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return cluster.Status.CurrentPrimaryIndex
}
