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

// connect makes a client of an instance. It has one connection, so that it is one session.
func (w *world) connect(t *testing.T, i int, user string) *sql.DB {
	t.Helper()
	c := driver.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = user, user, "tcp", fmt.Sprintf("%s:%d", w.servers[i].Address, mysqld.Port)
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

// run runs statements in one session of an instance.
func (w *world) run(t *testing.T, i int, user string, statements ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sqlTimeout)
	defer cancel()
	db := w.connect(t, i, user)
	defer func() { _ = db.Close() }()
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// acknowledged writes the second row of app.t until another instance than the first acknowledges it, and returns that
// instance and the row's value. A write without an answer may have been made: when the new primary gets its label, the
// sessions of clients that came before are ended, also those whose commits wait. So each attempt writes over the one before.
func (w *world) acknowledged(t *testing.T) (heir int, value string) {
	t.Helper()
	attempt := 0
	testenv.Eventually(t, "another instance acknowledges a write", func() error {
		var refused error
		for heir = 1; heir < size; heir++ {
			attempt++
			value = fmt.Sprint("after", attempt)
			err := w.run(t, heir, "app", "insert into app.t (id, v) values (2, '"+value+"') on duplicate key update v = values(v)")
			if err == nil {
				return nil
			}
			refused = errors.Join(refused, err)
		}
		return refused
	})
	return heir, value
}

func (w *world) must(t *testing.T, i int, user string, statements ...string) {
	t.Helper()
	if err := w.run(t, i, user, statements...); err != nil {
		t.Fatal(err)
	}
}

// ask reads one value of an instance.
func (w *world) ask(t *testing.T, i int, query string) string {
	t.Helper()
	value, err := w.tryAsk(t, i, query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func (w *world) tryAsk(t *testing.T, i int, query string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), sqlTimeout)
	defer cancel()
	db := w.connect(t, i, "root")
	defer func() { _ = db.Close() }()
	var value sql.NullString
	err := db.QueryRowContext(ctx, query).Scan(&value)
	return value.String, err
}

// everywhere waits until a query answers the same on all instances.
func (w *world) everywhere(t *testing.T, query, want string) {
	t.Helper()
	w.everywhereBut(t, -1, query, want)
}

func (w *world) everywhereBut(t *testing.T, but int, query, want string) {
	t.Helper()
	testenv.Eventually(t, query+" is "+want+" everywhere", func() error {
		for i := range w.servers {
			if i == but {
				continue
			}
			if found, err := w.tryAsk(t, i, query); err != nil || found != want {
				return fmt.Errorf("instance %d: found %q (%w)", i, found, err)
			}
		}
		return nil
	})
}
