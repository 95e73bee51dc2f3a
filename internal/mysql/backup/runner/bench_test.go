// SPDX-License-Identifier: Apache-2.0

package runner_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// TestBenchBackup measures a backup and two restores of TORPOR_BENCH_GB gigabytes: the durations, the memory
// of the program and its clients, and the longest wait of a client that writes during the backup.
func TestBenchBackup(t *testing.T) {
	gigabytes, err := strconv.Atoi(os.Getenv("TORPOR_BENCH_GB"))
	if err != nil {
		t.Skip("a benchmark: make bench NAME=backup GB=20")
	}
	e := newTestEnv(t)
	e.installation.Settings = []string{"innodb_buffer_pool_size=2G", "innodb_redo_log_capacity=2G", "max_binlog_size=256M"}
	source := e.startPrimary(t)
	tables := fillShop(t, source, gigabytes)
	e.startShipping(t, source.Address)

	ctx, stop := context.WithCancel(t.Context())
	var longest time.Duration
	var writer sync.WaitGroup
	writer.Go(func() { longest = e.writeSteadily(ctx, t, source) })
	testenv.Eventually(t, "the backup succeeds", func() error {
		return e.measureProgram(t, "backup", backupPassword, "backup", "--cluster=ns/test", "--host="+source.Address)
	})
	stop()
	writer.Wait()
	t.Logf("longest wait of a client that writes: %s", longest.Round(time.Millisecond))
	ofBackup := time.Now()
	execStatements(t, source, "update shop."+tables[0]+" set state = 'sent' where id % 10 = 0", "insert into app.t (v) values ('last')")
	point := time.Now()
	execStatements(t, source, "insert into app.t (v) values ('after the point')")
	for _, row := range []struct {
		what string
		to   time.Time
		last string
	}{{"restore of the backup", ofBackup, "0"}, {"restore of a later point in time", point, "1"}} {
		target := e.installation.StartServer(t)
		testenv.Eventually(t, "the binary logs reach the point", func() error {
			return e.measureProgram(t, row.what, adminPassword, "restore", "--source=ns/test", "--restore-point="+row.to.UTC().Format(time.RFC3339Nano), "--host="+target.Address, "--wait=1m")
		})
		if found := queryOne(t, target, "select count(*) from app.t where v = 'last'"); found != row.last {
			t.Errorf("%s: expected %s rows of the last transaction before the point, found %s", row.what, row.last, found)
		}
		for _, table := range tables {
			const sums = "select concat(count(*), ' rows, sum ', sum(crc32(body))) from shop."
			testenv.ExpectEqual(t, row.what+": "+table, queryOne(t, source, sums+table), queryOne(t, target, sums+table))
		}
		target.Stop(t)
		target.WipeData(t)
	}
}

// fillShop creates eight tables with rows of about one kilobyte and two secondary indexes, without logging them.
func fillShop(t *testing.T, s *mysqld.Server, gigabytes int) (tables []string) {
	t.Helper()
	const inAll, rowsAtOnce, bytesOfRow = 8, 1 << 16, 1000
	body := strings.TrimSuffix(strings.Repeat("sha2(rand(), 256), ", 11), ", ")
	columns := "(customer, state, total, at, note, body)"
	values := "floor(rand() * 1000000), elt(1 + floor(rand() * 3), 'new', 'paid', 'sent'), rand() * 1000, now(3) - interval floor(rand() * 1e7) second, concat('note ', rand()), concat(" + body + ")"
	execStatements(t, s, "create schema shop")
	for i := range inAll {
		table := fmt.Sprintf("orders%d", i)
		tables = append(tables, table)
		statements := []string{
			"set sql_log_bin = 0", "create table shop." + table + " (id bigint auto_increment primary key, customer int not null, state enum('new', 'paid', 'sent'), " +
				"total decimal(10, 2), at datetime(3), note varchar(255), body text, key (customer), key (at))",
			"insert into shop." + table + " " + columns + " values (" + values + ")",
		}
		for rows := 1; rows < rowsAtOnce; rows *= 2 {
			statements = append(statements, "insert into shop."+table+" "+columns+" select "+values+" from shop."+table)
		}
		for rows := rowsAtOnce; rows < gigabytes*1e9/inAll/bytesOfRow; rows += rowsAtOnce {
			statements = append(statements, fmt.Sprintf("insert into shop.%s %s select %s from shop.%[1]s limit %[4]d", table, columns, values, rowsAtOnce))
		}
		execStatements(t, s, statements...)
	}
	t.Logf("bytes of data and indexes: %s", queryOne(t, s, "select sum(data_length + index_length) from information_schema.tables where table_schema = 'shop'"))
	return tables
}

// writeSteadily inserts rows one by one until ctx ends, and returns the longest duration of an insert.
func (e *testEnv) writeSteadily(ctx context.Context, t *testing.T, s *mysqld.Server) (longest time.Duration) {
	t.Helper()
	db := connect(t, s, "moco-admin", adminPassword)
	for ctx.Err() == nil {
		began := time.Now()
		if _, err := db.ExecContext(context.WithoutCancel(ctx), "insert into app.t (v) values (uuid())"); err != nil {
			t.Errorf("insert: %v", err)
			return longest
		}
		longest = max(longest, time.Since(began))
	}
	return longest
}

// measureProgram runs the torpor program, and logs its duration and the memory of its largest process.
func (e *testEnv) measureProgram(t *testing.T, what, password string, args ...string) error {
	t.Helper()
	began := time.Now()
	cmd := exec.CommandContext(t.Context(), testenv.TorporPath(t), append(args, e.bucketFlags()...)...)
	cmd.Env = append(os.Environ(), programEnv(t, password)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w after %s: %s", err, time.Since(began), out)
	}
	usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	t.Logf("%s: %s, CPU %s, largest process %d MiB", what, time.Since(began).Round(time.Second), (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Round(time.Second), usage.Maxrss>>10)
	return nil
}
