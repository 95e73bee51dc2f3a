// SPDX-License-Identifier: Apache-2.0

package sqlclient

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/torpor-dev/torpor/internal/mysql/certificates"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

func adminAccount() Account       { return Account{"moco-admin", mysqld.AdminPassword} }
func replicationAccount() Account { return Account{"moco-repl", mysqld.ReplicationPassword} }
func donorAccount() Account       { return Account{"moco-clone-donor", mysqld.DonorPassword} }

func openServer(t *testing.T, s *mysqld.Server) *Server {
	t.Helper()
	server, err := OpenServer(s.Address, adminAccount(), nil)
	testenv.ExpectNoError(t, err)
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

func readFacts(t *testing.T, s *Server) ServerFacts {
	t.Helper()
	f, err := s.ReadFacts(t.Context())
	testenv.ExpectNoError(t, err)
	return f
}

func failOnError(t *testing.T, err error) {
	t.Helper()
	testenv.ExpectNoError(t, err)
}

// TestReplicationOfThreeServers takes three new servers through the life of a cluster.
func TestReplicationOfThreeServers(t *testing.T) {
	bed := mysqld.NewInstallation(t, mysqld.ProductUsers())
	machines := bed.StartServers(t, 3)
	var servers []*Server
	for _, m := range machines {
		servers = append(servers, openServer(t, m))
	}
	born := readFacts(t, servers[0])
	if born.Executed != "" || !born.SuperReadOnly || born.Replication != nil || born.SemiSync.Source {
		t.Fatalf("expected a new server without transactions, read-only, that follows no source; found %+v", born)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	failOnError(t, servers[0].BecomeSource(ctx, born.SemiSync, 1))
	failOnError(t, servers[0].SetWritable(ctx, born.SemiSync, 1))
	// No replica acknowledges yet, so the commits wait until replicas connect.
	wrote := make(chan error, 1)
	for i := 1; i < 3; i++ {
		failOnError(t, servers[i].CloneFrom(ctx, ReplicationSource{Host: machines[0].Address, Port: AdminPort, As: donorAccount(), IsVerified: true}))
		machines[i].WaitUntilReady(t)
		testenv.Eventually(t, "the clone is complete", func() error {
			f, err := servers[i].ReadFacts(ctx)
			if err != nil {
				return err
			}
			return testenv.ErrorIf(f.Clone != "Completed" || !f.SuperReadOnly, "found %+v", f)
		})
		failOnError(t, servers[i].FollowSource(ctx, born.SemiSync, ReplicationSource{machines[0].Address, Port, replicationAccount(), true, true, true}))
	}
	go func() { wrote <- servers[0].execStatement(ctx, "create database app") }()
	failOnError(t, <-wrote)
	want := readFacts(t, servers[0])
	for i := 1; i < 3; i++ {
		testenv.Eventually(t, "the replica has every transaction", func() error {
			f := readFacts(t, servers[i])
			if f.Executed != want.Executed || f.Replication == nil || !f.Replication.IO || !f.Replication.SQL || f.Replication.SourceHost != machines[0].Address {
				return fmt.Errorf("want %s, found %+v %+v", want.Executed, f, f.Replication)
			}
			return nil
		})
	}
	again := servers[1].CloneFrom(ctx, ReplicationSource{Host: machines[0].Address, Port: AdminPort, As: donorAccount(), IsVerified: true})
	testenv.ExpectEqual(t, "error of a clone into a server with data", "clone: expected an empty server, found transactions in it", DescribeError(again))
	lost := make(chan error, 1)
	go func() { lost <- servers[0].WatchConnection(ctx) }()
	failOnError(t, servers[0].KillConnections(ctx, []string{"moco-admin", "moco-repl"}))
	machines[0].KillAtOnce(t)
	if err := <-lost; err == nil {
		t.Fatal("expected the watch to report the end of the server")
	}
}

// TestPasswordsAreSentOnlyToTheRightInstance checks that no password is sent to a server outside the cluster, or to
// another instance of the cluster.
func TestPasswordsAreSentOnlyToTheRightInstance(t *testing.T) {
	bed := mysqld.NewInstallation(t, mysqld.ProductUsers())
	server := bed.StartServer(t)
	for name, row := range map[string]struct {
		authorities []byte
		host        string
		trusted     bool
	}{
		"a certificate of the cluster's CA for this instance: the password is sent": {bed.Certificates[certificates.AuthorityFile], server.Address, true},
		"a certificate of another CA: no password is sent":                          {mysqld.WriteCertificates(t, t.TempDir(), server.Address)[certificates.AuthorityFile], server.Address, false},
		"a certificate for another instance: no password is sent":                   {bed.Certificates[certificates.AuthorityFile], "moco-test-0.moco-test.db.svc", false},
	} {
		trust, err := certificates.BuildClientConfig(row.authorities, row.host)
		testenv.ExpectNoError(t, err)
		s, err := OpenServer(server.Address, adminAccount(), trust)
		testenv.ExpectNoError(t, err)
		_, err = s.ReadFacts(t.Context())
		if (err == nil) != row.trusted || IsUntrusted(err) == row.trusted {
			t.Errorf("%s: expected trust %t, found %v", name, row.trusted, err)
		}
		testenv.ExpectNoError(t, s.Close())
	}
}

// TestSetReadOnlyCancelsItsStatement checks that a statement does not take effect after its caller has given up.
func TestSetReadOnlyCancelsItsStatement(t *testing.T) {
	bed := mysqld.NewInstallation(t, mysqld.ProductUsers())
	s := openServer(t, bed.StartServer(t))
	ctx := t.Context()
	failOnError(t, s.SetWritable(ctx, readFacts(t, s).SemiSync, 0))
	failOnError(t, s.execStatement(ctx, "create database app"))
	failOnError(t, s.execStatement(ctx, "create table app.t (id int primary key)"))
	failOnError(t, s.BecomeSource(ctx, readFacts(t, s).SemiSync, 1))
	insert := make(chan error, 1)
	go func() { insert <- s.execStatement(ctx, "insert into app.t values (1)") }()
	testenv.Eventually(t, "the insert waits for a replica", func() error {
		f := readFacts(t, s)
		return testenv.ErrorIf(f.SemiSync.Waiting != 1, "%d wait", f.SemiSync.Waiting)
	})
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := s.SetReadOnly(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("expected the deadline, found %v", err)
	}
	failOnError(t, s.BecomeSource(ctx, readFacts(t, s).SemiSync, 0))
	failOnError(t, <-insert)
	if f := readFacts(t, s); f.ReadOnly {
		t.Fatalf("expected a writable server, found %+v", f)
	}
}

// TestSparesWaitForNoConnection opens the spare connections while a statement uses one. If the spares waited for this
// connection, the statement that kills it would wait for a spare.
func TestSparesWaitForNoConnection(t *testing.T) {
	s := openServer(t, mysqld.NewInstallation(t, mysqld.ProductUsers()).StartServer(t))
	busy, err := s.db.Conn(t.Context())
	failOnError(t, err)
	defer func() { _ = busy.Close() }() // The connection returns to the pool.
	s.openSpares(t.Context())
	if found := s.db.Stats(); found.OpenConnections != maxConnections || found.WaitCount > 0 {
		t.Errorf("expected %d open connections and no wait for one, found %d and %d", maxConnections, found.OpenConnections, found.WaitCount)
	}
}

// TestWaitingGrantDoesNotBlockTheManager covers a GRANT that waits for a replica and holds locks that block every
// login, while clients with existing sessions run many statements.
func TestWaitingGrantDoesNotBlockTheManager(t *testing.T) {
	bed := mysqld.NewInstallation(t, mysqld.ProductUsers())
	machine := bed.StartServer(t)
	client, s := openServer(t, machine), openServer(t, machine)
	ctx := t.Context()
	failOnError(t, s.SetWritable(ctx, readFacts(t, s).SemiSync, 1))
	s.openSpares(ctx)
	granted := make(chan error, 1)
	go func() {
		_, err := client.db.ExecContext(ctx, "create user 'late'@'%' identified by 'x'")
		granted <- err
	}()
	quickly := func(what string, do func(context.Context) error) {
		t.Helper()
		const bound = 20 * time.Second // Each action takes milliseconds, unless it waits for the GRANT.
		ctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		if err := do(ctx); err != nil {
			t.Fatalf("expected to %s while a GRANT waits: %v", what, err)
		}
	}
	quickly("observe the wait", func(ctx context.Context) error {
		for {
			f, err := s.ReadFacts(ctx)
			if err != nil || f.SemiSync.Waiting > 0 {
				return err
			}
		}
	})
	readOnly := make(chan error, 1)
	go func() { readOnly <- s.SetReadOnly(ctx) }()
	quickly("make the server read-only for clients", func(ctx context.Context) error {
		for {
			f, err := s.ReadFacts(ctx)
			if err != nil || f.SuperReadOnly {
				return err
			}
		}
	})
	quickly("end the clients' sessions", func(ctx context.Context) error { return s.KillConnections(ctx, []string{"moco-admin"}) })
	quickly("end the wait", func(ctx context.Context) error { return s.EndCommitWaits(ctx, readFacts(t, s).SemiSync) })
	failOnError(t, <-readOnly)
	if err := <-granted; err == nil {
		t.Error("expected no client to get an acknowledgement of the user")
	}
	readFacts(t, openServer(t, machine))
}

// TestCloneThatWasKilledHasFailed kills a server during CLONE. The server keeps reporting that CLONE is in progress.
func TestCloneThatWasKilledHasFailed(t *testing.T) {
	bed := mysqld.NewInstallation(t, mysqld.ProductUsers())
	machines := bed.StartServers(t, 2)
	donor, recipient := openServer(t, machines[0]), openServer(t, machines[1])
	ctx := t.Context()
	failOnError(t, donor.SetWritable(ctx, SemiSync{}, 0))
	for _, statement := range []string{"create database app", "create table app.t (v longblob)", "insert into app.t values (repeat('x', 8 << 20))", "insert into app.t select * from app.t", "insert into app.t select * from app.t"} {
		failOnError(t, donor.execStatement(ctx, statement))
	}
	failOnError(t, recipient.execStatement(ctx, "set global clone_max_data_bandwidth = 1"))
	from := ReplicationSource{Host: machines[0].Address, Port: AdminPort, As: donorAccount(), IsVerified: true}
	ended := make(chan error, 1)
	go func() { ended <- recipient.CloneFrom(ctx, from) }()
	testenv.Eventually(t, "files are copied", func() error {
		if len(ended) > 0 {
			t.Fatalf("expected a clone in progress, found its end: %v", <-ended)
		}
		copies, err := recipient.queryBool(ctx, "select count(*) = 1 from performance_schema.clone_progress where stage = 'FILE COPY' and state = 'In Progress'")
		return errors.Join(err, testenv.ErrorIf(!copies, "not yet"))
	})
	machines[1].KillAtOnce(t)
	failOnError(t, <-ended) // The loss of the connection does not show how the clone has ended.
	machines[1].StartAndWait(t)
	expectClone := func(want string) {
		t.Helper()
		testenv.Eventually(t, "the clone is "+want, func() error {
			f, err := recipient.ReadFacts(ctx)
			return errors.Join(err, testenv.ErrorIf(f.Clone != want, "found %q", f.Clone))
		})
	}
	expectClone("Failed")
	failOnError(t, recipient.CloneFrom(ctx, from))
	expectClone("Completed")
}

// TestManyClientsAreKilledInFewRoundTrips connects more clients than could be killed one by one over a slow network.
func TestManyClientsAreKilledInFewRoundTrips(t *testing.T) {
	bed := mysqld.NewInstallation(t, mysqld.ProductUsers())
	machine := bed.StartServer(t)
	direct := openServer(t, machine)
	const clients, most = 300, 20
	failOnError(t, direct.execStatement(t.Context(), "set global max_connections = 400"))
	config := driver.NewConfig()
	config.User, config.Passwd, config.Net, config.Logger = "moco-readonly", "secret-moco-readonly", "tcp", &driver.NopLogger{}
	config.Addr = net.JoinHostPort(machine.Address, strconv.Itoa(Port))
	connector, err := driver.NewConnector(config)
	failOnError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	for range clients {
		conn, err := db.Conn(t.Context())
		failOnError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
	}
	go func() { _, _ = db.ExecContext(t.Context(), statementMark+"do sleep(600)") }() // The statement ends with its connection.
	testenv.Eventually(t, "a client runs what looks like a manager's act", func() error {
		marked, err := direct.queryBool(t.Context(), "select count(*) = 1 from performance_schema.processlist where user = 'moco-readonly' and info like '"+statementMark+"%'")
		return errors.Join(err, testenv.ErrorIf(!marked, "not yet"))
	})
	if readFacts(t, direct).Pending {
		t.Error("expected that no client's statement is taken for a manager's")
	}
	counted := startCountingProxy(t, machine.Address)
	far, err := OpenServer(counted.address, adminAccount(), nil)
	failOnError(t, err)
	t.Cleanup(func() { _ = far.Close() })
	readFacts(t, far)
	counted.packets.Store(0)
	failOnError(t, far.KillConnections(t.Context(), []string{"moco-admin"}))
	if got := counted.packets.Load(); got > most {
		t.Errorf("expected at most %d round trips for %d clients, found %d", most, clients, got)
	}
	testenv.Eventually(t, "the clients are gone", func() error {
		left, err := direct.listConnections(t.Context(), selectClients, []string{"moco-admin"})
		return errors.Join(err, testenv.ErrorIf(len(left) > 0, "%d are left", len(left)))
	})
}

type countingProxy struct {
	address string
	// packets counts the packets that clients have sent.
	packets atomic.Int64
}

// startCountingProxy starts a proxy for a server's admin port.
func startCountingProxy(t *testing.T, server string) *countingProxy {
	t.Helper()
	p := &countingProxy{address: server[:strings.LastIndex(server, ".")] + ".200"}
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", net.JoinHostPort(p.address, strconv.Itoa(AdminPort)))
	failOnError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.carry(context.WithoutCancel(t.Context()), client, server) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close() // The test is over.
		running.Wait()
	})
	return p
}

func (p *countingProxy) carry(ctx context.Context, client net.Conn, server string) {
	defer func() { _ = client.Close() }()
	var dialer net.Dialer
	far, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(server, strconv.Itoa(AdminPort)))
	if err != nil {
		return
	}
	defer func() { _ = far.Close() }()
	go func() {
		_, _ = io.Copy(client, far) // The copy ends when either side closes its connection.
		_ = client.Close()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		p.packets.Add(1)
		if _, failed := far.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// TestSessionsDependOnNoSetting covers a server with unusual settings that users may choose for their clients.
func TestSessionsDependOnNoSetting(t *testing.T) {
	bed := mysqld.NewInstallation(t, mysqld.ProductUsers())
	bed.Settings = []string{"autocommit=0", "sql_mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "max_execution_time=1", "max_join_size=1", "group_concat_max_len=4", "max_sort_length=4", "default_time_zone=-05:00", "completion_type=2"}
	machine := bed.StartServer(t)
	failOnError(t, openServer(t, machine).execAll(t.Context(), "change settings", []string{
		"set global transaction_read_only = on", "set global sql_select_limit = 1", "set global sql_safe_updates = on", "set global completion_type = 1",
	}))
	server := openServer(t, machine)
	var found string
	const settings = "select concat_ws(' ', @@autocommit, @@max_execution_time, @@transaction_read_only, @@sql_select_limit > 1, @@sql_big_selects, @@completion_type, @@time_zone, @@max_sort_length, @@sql_mode)"
	failOnError(t, server.db.QueryRowContext(t.Context(), settings).Scan(&found))
	testenv.ExpectEqual(t, "settings of a session", "1 0 0 1 1 NO_CHAIN +00:00 1024 STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION", found)
	if f := readFacts(t, server); len(f.Weakened) > 0 {
		t.Errorf("expected settings that lose no commit, found %v", f.Weakened)
	}
	failOnError(t, server.execAll(t.Context(), "expire accounts", []string{"set global super_read_only = off", "alter user 'moco-repl'@'%', 'moco-backup'@'%' password expire"}))
	accounts, err := server.ReadAccounts(t.Context(), []string{"moco-admin", "moco-repl", "moco-backup"})
	failOnError(t, err)
	testenv.ExpectEqual(t, "expired accounts", []string{"moco-backup", "moco-repl"}, accounts.Expired)
}

func TestAccountsThatExpire(t *testing.T) {
	bed := mysqld.NewInstallation(t, mysqld.ProductUsers()+"create user 'root'@'%' identified by 'root';\ngrant all on *.* to 'root'@'%';\n")
	machine := bed.StartServer(t)
	server := openServer(t, machine)
	accounts := []string{"moco-admin", "moco-repl", "moco-backup"}
	expectAccounts := func(mayExpire bool, expired ...string) {
		t.Helper()
		found, err := server.ReadAccounts(t.Context(), accounts)
		failOnError(t, err)
		if found.Version == "" || found.MayExpire != mayExpire || !slices.Equal(found.Expired, expired) {
			t.Errorf("expected accounts of a version that may expire %t and have expired %v, found %+v", mayExpire, expired, found)
		}
	}
	expectAccounts(false)
	// A different account is used, because a session that expires its own account may not run any further statement.
	root := openDB(t, machine, "root", "root")
	for _, statement := range []string{
		"set global super_read_only = off", "set global read_only = off", "alter user 'moco-repl'@'%' identified by 'newer' retain current password",
		"alter user 'moco-repl'@'%', 'moco-admin'@'%' password expire", "alter user 'moco-backup'@'%' password expire interval 90 day",
	} {
		_, err := root.ExecContext(t.Context(), statement)
		failOnError(t, err)
	}
	expectAccounts(true, "moco-admin", "moco-repl")
	newcomer, err := OpenServer(machine.Address, adminAccount(), nil)
	failOnError(t, err)
	defer func() { failOnError(t, newcomer.Close()) }()
	if _, err := newcomer.ReadFacts(t.Context()); !IsPasswordExpired(err) {
		t.Errorf("expected a login that is refused because the password has expired, found %v", err)
	}
	failOnError(t, server.ReviveAccounts(t.Context(), readFacts(t, server).SemiSync, accounts))
	expectAccounts(true)
	readFacts(t, newcomer)
	for _, password := range []string{mysqld.ReplicationPassword, "newer"} {
		if err := openDB(t, machine, "moco-repl", password).PingContext(t.Context()); err != nil {
			t.Errorf("expected a login with each password of a rotation, found %v", err)
		}
	}
}

func openDB(t *testing.T, machine *mysqld.Server, user, password string) *sql.DB {
	t.Helper()
	config := driver.NewConfig()
	config.User, config.Passwd, config.Net, config.Addr, config.TLSConfig = user, password, "tcp", net.JoinHostPort(machine.Address, strconv.Itoa(mysqld.Port)), "preferred"
	connector, err := driver.NewConnector(config)
	failOnError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { failOnError(t, db.Close()) })
	return db
}
