// SPDX-License-Identifier: Apache-2.0

package job_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// users are those that an instance is initialised with. The rights of moco-backup are those in docs/backup.md.
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

// testEnv is an installation of MySQL, of which servers are started, and a bucket.
type testEnv struct {
	installation *mysqld.Installation
	bucket       bucket.Config
	log          testenv.LogBuffer
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	e := &testEnv{installation: mysqld.NewInstallation(t, users)}
	e.installation.ClientsOnPath(t)
	e.bucket = bucket.Config{Name: testenv.S3Bucket, Endpoint: testenv.StartS3(t).URL, PathStyle: true}
	e.log.ShowOnFailure(t, "the programs")
	t.Cleanup(func() { e.log.ExpectWithout(t, "secret-") })
	return e
}

func (e *testEnv) startPrimary(t *testing.T) *mysqld.Server {
	t.Helper()
	s := e.installation.StartServer(t)
	execStatements(t, s, "set global super_read_only = off", "set global read_only = off")
	execStatements(t, s, schemaStatements()...)
	return s
}

func (e *testEnv) runBackup(ctx context.Context, t *testing.T, hosts ...string) (mocov1beta2.BackupStatus, error) {
	t.Helper()
	result := filepath.Join(t.TempDir(), "result")
	err := job.RunBackup(ctx, job.BackupOptions{
		Cluster: "ns/test", Hosts: hosts, Password: backupPassword, MaxLag: time.Minute, Bucket: e.bucket, Result: result,
		Clock: clock.RealClock{}, Log: e.log.StructuredLogger(),
	})
	var status mocov1beta2.BackupStatus
	if err == nil {
		readJSON(t, result, &status)
	}
	return status, err
}

func (e *testEnv) restoreOptions(host string) job.RestoreOptions {
	return job.RestoreOptions{
		Source: "ns/test", Point: time.Now().Add(time.Minute), Host: host, Password: adminPassword, Wait: time.Minute,
		Bucket: e.bucket, Log: e.log.StructuredLogger(),
	}
}

func (e *testEnv) runRestore(t *testing.T, host string) error {
	t.Helper()
	return job.RunRestore(t.Context(), e.restoreOptions(host))
}

func readJSON(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	testenv.ExpectNoError(t, err)
	testenv.ExpectNoError(t, json.Unmarshal(text, into))
}

func connect(t *testing.T, s *mysqld.Server, user, password string) *sql.DB {
	t.Helper()
	c := driver.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = user, password, "tcp", net.JoinHostPort(s.Address, strconv.Itoa(mysqld.Port))
	c.InterpolateParams, c.Logger = true, &driver.NopLogger{}
	connector, err := driver.NewConnector(c)
	testenv.ExpectNoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// withAdmin runs f with a connection that is closed at once: a test asks more often than a server takes clients.
func withAdmin(t *testing.T, s *mysqld.Server, f func(*sql.DB)) {
	t.Helper()
	db := connect(t, s, "moco-admin", adminPassword)
	defer func() { _ = db.Close() }() // It was used already.
	f(db)
}

func execStatements(t *testing.T, s *mysqld.Server, statements ...string) {
	t.Helper()
	withAdmin(t, s, func(db *sql.DB) {
		for _, statement := range statements {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	})
}

// queryOne returns the first column of the first row.
func queryOne(t *testing.T, s *mysqld.Server, query string) string {
	t.Helper()
	all := queryList(t, s, query)
	if len(all) == 0 {
		t.Fatalf("%s: expected a row, found none", query)
	}
	return all[0]
}

// queryList returns the first column of all rows.
func queryList(t *testing.T, s *mysqld.Server, query string) []string {
	t.Helper()
	var all []string
	withAdmin(t, s, func(db *sql.DB) {
		rows, err := db.QueryContext(t.Context(), query)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var value sql.NullString
			testenv.ExpectNoError(t, rows.Scan(&value))
			all = append(all, value.String)
		}
		testenv.ExpectNoError(t, rows.Err())
	})
	return all
}

// readContents are all user tables with their checksums, and everything else that a dump keeps.
func readContents(t *testing.T, s *mysqld.Server) map[string]string {
	t.Helper()
	all := map[string]string{}
	const mine = "not in ('information_schema', 'mysql', 'performance_schema', 'sys')"
	for _, table := range queryList(t, s, "select concat('`', replace(table_schema, '`', '``'), '`.`', table_name, '`') from information_schema.tables where table_type = 'BASE TABLE' and table_schema "+mine) {
		withAdmin(t, s, func(db *sql.DB) {
			var name, sum string
			testenv.ExpectNoError(t, db.QueryRowContext(t.Context(), "checksum table "+table).Scan(&name, &sum))
			all[table] = sum
		})
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

// haltTimeout is far above what it takes to move some megabytes.
const haltTimeout = time.Minute

// haltingProxy is a TCP proxy of a server's port for administrators. The first connection that has carried so many bytes in
// one direction halts for as long as the proxy is there, so that its client is certainly in the middle of something.
type haltingProxy struct {
	// Address is the way to the server.
	Address string

	listener net.Listener
	server   string
	halted   chan struct{}
	halt     sync.Once

	mu    sync.Mutex
	conns []net.Conn
}

// direction is that in which bytes are counted.
type direction bool

const (
	toClient direction = false
	toServer direction = true
)

func newHaltingProxy(t *testing.T, s *mysqld.Server, way direction, most int64) *haltingProxy {
	t.Helper()
	at := strings.LastIndex(s.Address, ".")
	l := &haltingProxy{Address: s.Address[:at] + ".200", server: net.JoinHostPort(s.Address, strconv.Itoa(mysqld.AdminPort)), halted: make(chan struct{})}
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", net.JoinHostPort(l.Address, strconv.Itoa(mysqld.AdminPort)))
	testenv.ExpectNoError(t, err)
	l.listener = listener
	t.Cleanup(l.closeAll)
	go l.serve(t, way, most)
	return l
}

func (l *haltingProxy) serve(t *testing.T, way direction, most int64) {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		var dialer net.Dialer
		server, err := dialer.DialContext(t.Context(), "tcp", l.server)
		if err != nil {
			_ = client.Close() // The client sees that it is closed.
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, client, server)
		l.mu.Unlock()
		limited, free := server, client
		if way == toServer {
			limited, free = client, server
		}
		go func() {
			if n, _ := io.CopyN(free, limited, most); n == most {
				l.halt.Do(func() { close(l.halted) })
				return
			}
			_, _ = client.Close(), server.Close() // One side has ended.
		}()
		go func() {
			_, _ = io.Copy(limited, free)
			_, _ = client.Close(), server.Close() // One side has ended.
		}()
	}
}

// waitUntilHalted waits until a connection has halted.
func (l *haltingProxy) waitUntilHalted(t *testing.T) {
	t.Helper()
	timer := time.NewTimer(haltTimeout)
	defer timer.Stop()
	select {
	case <-l.halted:
	case <-timer.C:
		t.Fatalf("nothing large went through the proxy within %s", haltTimeout)
	}
}

// closeAll ends the proxy and all its connections.
func (l *haltingProxy) closeAll() {
	_ = l.listener.Close() // It is closed even if this fails.
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close() // It is closed even if this fails.
	}
}
