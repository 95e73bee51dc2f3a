// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"k8s.io/utils/clock"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
	"github.com/torpor-dev/torpor/internal/mysql/backup/job"
	"github.com/torpor-dev/torpor/internal/testenv"
	"github.com/torpor-dev/torpor/internal/testenv/mysqld"
)

const (
	backupPassword = `secret-b"\ `
	adminPassword  = "secret-a"
)

// users are those that an instance is born with; the rights of moco-backup are what docs/backup.md asks for.
const users = `create user 'moco-admin'@'%' identified by 'secret-a';
grant all on *.* to 'moco-admin'@'%' with grant option;
create user 'moco-backup'@'%' identified by 'secret-b"\\ ';
grant select, reload, show view, trigger, event, lock tables, replication client on *.* to 'moco-backup'@'%';
grant backup_admin, service_connection_admin, show_routine on *.* to 'moco-backup'@'%';
create user 'moco-repl'@'%' identified by 'secret-r';
grant replication slave, replication client on *.* to 'moco-repl'@'%';
`

// schemaStatements is what a primary begins with: everything that a dump has to keep.
func schemaStatements() []string {
	return []string{
		"create role reader", "create user app@'%' identified by 'app-secret' default role reader",
		"create schema app", "create schema `odd ``name`", "create schema nothing",
		"create table app.t (id int auto_increment primary key, v varchar(64), b blob, j json, at timestamp default current_timestamp)",
		"create table app.parent (id int primary key)",
		"create table app.child (id int primary key, parent int, foreign key (parent) references app.parent (id))",
		"create view app.w as select id, v from app.t", "create table `odd ``name`.`a b` (x int primary key, y text character set latin1)",
		"insert into app.parent values (1)", "insert into app.child values (1, 1)",
		"insert into app.t (v, b, j) values ('ü\n-- Current Database: `x`', x'00ff1a0d0a', '{\"a\": [1]}')",
		"insert into `odd ``name`.`a b` values (1, 'é')",
		"create procedure app.p() select 1", "create function app.f() returns int deterministic return 1",
		"create trigger app.tr before insert on app.child for each row set new.parent = 1",
		"create event app.e on schedule every 1 day do select 1",
		"grant select on app.* to reader", "grant reader to app@'%'", "grant insert on app.t to app@'%'",
	}
}

// testEnv is a bed with servers and a bucket.
type testEnv struct {
	bed    *mysqld.Installation
	bucket bucket.Config
	log    *logged
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	w := &testEnv{bed: mysqld.NewInstallation(t, users), log: &logged{}}
	w.bed.ClientsOnPath(t)
	s := testenv.StartS3(t)
	w.bucket = bucket.Config{Name: testenv.S3Bucket, Endpoint: s.URL, PathStyle: true}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", w.log.String())
		}
		if bytes.Contains([]byte(w.log.String()), []byte("secret-")) {
			t.Error("the log shows a password")
		}
	})
	return w
}

// startPrimary starts a server that takes writes.
func (w *testEnv) startPrimary(t *testing.T) *mysqld.Server {
	t.Helper()
	s := w.bed.StartServer(t)
	execStatements(t, s, "set global super_read_only = off", "set global read_only = off")
	execStatements(t, s, schemaStatements()...)
	return s
}

func (w *testEnv) runBackup(ctx context.Context, t *testing.T, hosts ...string) (mocov1beta2.BackupStatus, error) {
	t.Helper()
	result := filepath.Join(t.TempDir(), "result")
	err := job.RunBackup(ctx, job.BackupOptions{
		Cluster: "ns/test", Hosts: hosts, Password: backupPassword, MaxLag: time.Minute, Bucket: w.bucket, Result: result,
		Clock: clock.RealClock{}, Log: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	var status mocov1beta2.BackupStatus
	if err == nil {
		readJSON(t, result, &status)
	}
	return status, err
}

func (w *testEnv) restoreOptions(host string) job.RestoreOptions {
	return job.RestoreOptions{
		Source: "ns/test", Point: time.Now().Add(time.Minute), Host: host, Password: adminPassword, Wait: time.Minute,
		Bucket: w.bucket, Log: slog.New(slog.NewTextHandler(w.log, nil)),
	}
}

func (w *testEnv) runRestore(t *testing.T, host string) error {
	t.Helper()
	return runRestore(t, w.restoreOptions(host))
}

func runRestore(t *testing.T, o job.RestoreOptions) error {
	t.Helper()
	return job.RunRestore(t.Context(), o)
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, s *mysqld.Server, user, password string) *sql.DB {
	t.Helper()
	c := driver.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = user, password, "tcp", net.JoinHostPort(s.Address, strconv.Itoa(mysqld.Port))
	c.InterpolateParams, c.Logger = true, &driver.NopLogger{}
	connector, err := driver.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execStatements(t *testing.T, s *mysqld.Server, statements ...string) {
	t.Helper()
	db := connect(t, s, "moco-admin", adminPassword)
	defer func() { _ = db.Close() }() // A test asks more often than a server takes clients.
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func queryOne(t *testing.T, s *mysqld.Server, query string) string {
	t.Helper()
	db := connect(t, s, "moco-admin", adminPassword)
	defer func() { _ = db.Close() }() // As above.
	var value sql.NullString
	if err := db.QueryRowContext(t.Context(), query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value.String
}

func queryList(t *testing.T, s *mysqld.Server, query string) []string {
	t.Helper()
	db := connect(t, s, "moco-admin", adminPassword)
	defer func() { _ = db.Close() }() // As above.
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer func() { _ = rows.Close() }()
	var all []string
	for rows.Next() {
		var value string
		if err := rows.Scan(&value); err != nil {
			t.Fatal(err)
		}
		all = append(all, value)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// readContents are all user tables with their checksums, and everything else that a dump keeps.
func readContents(t *testing.T, s *mysqld.Server) map[string]string {
	t.Helper()
	all := map[string]string{}
	const mine = "not in ('information_schema', 'mysql', 'performance_schema', 'sys')"
	db := connect(t, s, "moco-admin", adminPassword)
	defer func() { _ = db.Close() }() // As above.
	for _, table := range queryList(t, s, "select concat('`', replace(table_schema, '`', '``'), '`.`', table_name, '`') from information_schema.tables where table_type = 'BASE TABLE' and table_schema "+mine) {
		var name, sum string
		if err := db.QueryRowContext(t.Context(), "checksum table "+table).Scan(&name, &sum); err != nil {
			t.Fatal(err)
		}
		all[table] = sum
	}
	for what, query := range map[string]string{
		"schemas":  "select schema_name from information_schema.schemata where schema_name " + mine,
		"routines": "select concat(routine_schema, '.', routine_name, sha2(routine_definition, 256)) from information_schema.routines where routine_schema " + mine,
		"views":    "select concat(table_schema, '.', table_name) from information_schema.views where table_schema " + mine,
		"triggers": "select concat(trigger_schema, '.', trigger_name) from information_schema.triggers where trigger_schema " + mine,
		"events":   "select concat(event_schema, '.', event_name) from information_schema.events",
		"accounts": "select concat(user, '@', host, sha2(authentication_string, 256)) from mysql.user where user not like 'moco-%' and user not like 'mysql.%' and user <> 'root'",
	} {
		for _, value := range queryList(t, s, query) {
			all[what+" "+value] = "is there"
		}
	}
	return all
}

type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns everything written so far.
func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
