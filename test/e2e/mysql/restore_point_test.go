// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
	"github.com/torpor-dev/torpor/internal/mysql/backup/runner"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
	"github.com/torpor-dev/torpor/test/env/mysqlpods"
)

const (
	restoreRuns  = 5
	shipInterval = time.Second
)

// benchRestorePoint writes a row every 100 ms and restores to points between the rows. The error is the time between
// the last restored row and the last row committed before the point; an extra row counts, too.
func (b *benchmark) benchRestorePoint(t *testing.T) {
	servers := mysqld.NewInstallation(t, mysqld.ProductUsers())
	servers.ClientsOnPath(t)
	store := bucket.Config{Name: testenv.S3Bucket, Endpoint: testenv.StartS3(t).URL, PathStyle: true}
	log, source := slog.New(slog.DiscardHandler), servers.StartServer(t)
	password := string(mysqld.ProductPasswords()[mysqlusers.PasswordKeyOf(mysqlusers.BackupUser)])
	db := mysqlpods.OpenSession(t, source.Address, mysqlusers.AdminUser, mysqld.AdminPassword)
	for _, statement := range []string{
		"set global super_read_only = off", "set global read_only = off", "create schema app",
		"create table app.ticks (id int auto_increment primary key, at datetime(6))",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		testenv.ExpectNoError(t, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	working.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			_, _ = db.ExecContext(t.Context(), "insert into app.ticks (at) values (utc_timestamp(6))") // A missing row does not matter.
			<-tick.C
		}
	})
	ship := runner.ShipOptions{
		Cluster: "ns/test", Hosts: []string{source.Address}, Password: password, Interval: shipInterval, Bucket: store, Spool: t.TempDir(),
		Clock: clock.RealClock{}, Log: log,
	}
	working.Go(func() {
		if err := runner.RunShipping(ctx, ship); err != nil {
			t.Errorf("expected shipping to go on, found %v", err)
		}
	})
	testenv.ExpectNoError(t, runner.RunBackup(t.Context(), runner.BackupOptions{
		Cluster: "ns/test", Hosts: ship.Hosts, Password: password, Bucket: store, Clock: clock.RealClock{}, Log: log,
	}))
	worst := 0.0
	for range restoreRuns {
		var last int
		testenv.ExpectNoError(t, db.QueryRowContext(t.Context(), "select max(id) + 10 from app.ticks").Scan(&last))
		testenv.Eventually(t, "ten more rows", func() error {
			_, err := readTick(t, db, last+1)
			return err
		})
		next, err := readTick(t, db, last+1)
		testenv.ExpectNoError(t, err)
		target := servers.StartServer(t)
		restore := runner.RestoreOptions{
			Source: "ns/test", Point: next.Add(-time.Microsecond), Host: target.Address, Password: mysqld.AdminPassword, Wait: time.Minute,
			Bucket: store, Clock: clock.RealClock{}, Log: log,
		}
		testenv.Eventually(t, "the point can be reached", func() error { return runner.RunRestore(t.Context(), restore) })
		b.addRun("restore_point_available_seconds", time.Since(next).Seconds())
		restored := mysqlpods.OpenSession(t, target.Address, mysqlusers.AdminUser, mysqld.AdminPassword)
		var id int
		testenv.ExpectNoError(t, restored.QueryRowContext(t.Context(), "select max(id) from app.ticks").Scan(&id))
		found, err := readTick(t, restored, id)
		testenv.ExpectNoError(t, err)
		want, err := readTick(t, db, last)
		testenv.ExpectNoError(t, err)
		worst = max(worst, math.Abs(found.Sub(want).Seconds()))
		target.Stop(t)
	}
	b.addRun("restore_point_error_seconds", worst)
}

func readTick(t *testing.T, db *sql.DB, id int) (time.Time, error) {
	t.Helper()
	var text string
	if err := db.QueryRowContext(t.Context(), "select cast(at as char) from app.ticks where id = ?", id).Scan(&text); err != nil {
		return time.Time{}, fmt.Errorf("read row %d: %w", id, err)
	}
	return time.Parse("2006-01-02 15:04:05.000000", text)
}
