// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/mysqld"
)

const sqlTimeout = 20 * time.Second

// openSession makes a client of an instance. It has one connection, so that it is one session.
func (e *environment) openSession(t *testing.T, i int, user string) *sql.DB {
	t.Helper()
	c := driver.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = user, user, "tcp", fmt.Sprintf("%s:%d", e.servers[i].Address, mysqld.Port)
	c.Timeout, c.InterpolateParams, c.Logger = time.Second, true, &driver.NopLogger{}
	connector, err := driver.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() }) // The server may be gone before.
	return db
}

// runStatements runs statements in one session of an instance.
func (e *environment) runStatements(t *testing.T, i int, user string, statements ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sqlTimeout)
	defer cancel()
	db := e.openSession(t, i, user)
	defer func() { _ = db.Close() }()
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// waitForAcknowledgedWrite writes the second row of app.t until another instance than the first acknowledges it, and returns that
// instance and the row's value. A write without an answer may have been made: when the new primary gets its label, the
// sessions of clients that came before are ended, also those whose commits wait. So each attempt writes over the one before.
func (e *environment) waitForAcknowledgedWrite(t *testing.T) (heir int, value string) {
	t.Helper()
	attempt := 0
	testenv.Eventually(t, "another instance acknowledges a write", func() error {
		var refused error
		for heir = 1; heir < instances; heir++ {
			attempt++
			value = fmt.Sprint("after", attempt)
			err := e.runStatements(t, heir, "app", "insert into app.t (id, v) values (2, '"+value+"') on duplicate key update v = values(v)")
			if err == nil {
				return nil
			}
			refused = errors.Join(refused, err)
		}
		return refused
	})
	return heir, value
}

func (e *environment) mustRun(t *testing.T, i int, user string, statements ...string) {
	t.Helper()
	if err := e.runStatements(t, i, user, statements...); err != nil {
		t.Fatal(err)
	}
}

// query reads one value of an instance.
func (e *environment) query(t *testing.T, i int, query string) string {
	t.Helper()
	value, err := e.tryQuery(t, i, query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func (e *environment) tryQuery(t *testing.T, i int, query string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sqlTimeout)
	defer cancel()
	db := e.openSession(t, i, "root")
	defer func() { _ = db.Close() }()
	var value sql.NullString
	err := db.QueryRowContext(ctx, query).Scan(&value)
	return value.String, err
}

// waitForAnswer waits until a query answers the same on all instances.
func (e *environment) waitForAnswer(t *testing.T, query, want string) {
	t.Helper()
	e.waitForAnswerBut(t, -1, query, want)
}

func (e *environment) waitForAnswerBut(t *testing.T, but int, query, want string) {
	t.Helper()
	testenv.Eventually(t, query+" is "+want+" everywhere", func() error {
		for i := range e.servers {
			if i == but {
				continue
			}
			if found, err := e.tryQuery(t, i, query); err != nil || found != want {
				return fmt.Errorf("instance %d: found %q (%w)", i, found, err)
			}
		}
		return nil
	})
}
