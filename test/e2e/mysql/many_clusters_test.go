// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
	"github.com/torpor-dev/torpor/test/env/mysqlpods"
)

const (
	clusters = 200
	// makers is the number of clusters that are created concurrently.
	makers = 8
	// idleRounds is the number of minutes in which the manager only polls.
	idleRounds = 2
	minute     = time.Minute
	// manyHang is the number of clusters that hang; it exceeds the number of the controller's workers.
	manyHang = 30
	// noticed is the time after which the manager has tried to query all clusters that hang.
	noticed = 15 * time.Second
	// probes is the number of clusters that are stopped and started while others hang.
	probes = 40
)

// benchManyClusters measures the real manager with clusters whose servers are simulated.
func (b *benchmark) benchManyClusters(t *testing.T) {
	binary := testenv.TorporPath(t)
	env := testenv.Start(t)
	s := &simulatedServers{hanging: map[int]chan struct{}{}}
	all := createClusters(t, env, s, clusters)
	from := time.Now()
	p := testenv.StartProcess(t, binary, []string{"manager", "--kubeconfig", env.KubeconfigPath(t), "--metrics-address", "0", "--probe-address", "0"}, nil)
	waitUntilAllHealthy(t, env, all)
	b.addRun("manager_200_clusters_all_healthy_seconds", time.Since(from).Seconds())
	waitUntilAll(t, env, all, mocov1beta2.ReconcileSuccessCondition, "True ReconcileSuccess") // Their objects are created only once.
	for range idleRounds {
		cpu, statements, began := testenv.ReadProcessorTime(t, p.PID()), s.statements.Load(), time.Now()
		sleep(t, minute)
		share := time.Since(began).Minutes()
		b.addRun("manager_200_clusters_cpu_ms_per_minute", float64((testenv.ReadProcessorTime(t, p.PID())-cpu).Milliseconds())/share)
		b.addRun("manager_200_clusters_rss_mib", residentMiB(t, p.PID()))
		b.addRun("manager_200_clusters_statements_per_second", float64(s.statements.Load()-statements)/share/60)
	}
	s.busySince.Store(new(time.Now()))
	b.addRun("status_writes_per_minute_200_busy", countStatusWrites(t, env))
	s.busySince.Store(nil)
	b.benchStops(t, all, "manager_200_stop_seconds")
	end := s.hangCluster(0)
	sleep(t, noticed)
	b.benchStops(t, all, "manager_200_one_hangs_seconds")
	end()
	var ends []func()
	for k := range manyHang {
		ends = append(ends, s.hangCluster(k))
	}
	sleep(t, noticed)
	b.benchStops(t, all, "manager_200_thirty_hang_seconds")
	for _, end := range ends {
		end()
	}
	waitUntilAllHealthy(t, env, all)
}

// TestSimulatedServersAreHealthy verifies the simulation of the benchmark with one cluster, in case the controller's
// query changes.
func TestSimulatedServersAreHealthy(t *testing.T) {
	binary := testenv.TorporPath(t)
	env := testenv.Start(t)
	s := &simulatedServers{hanging: map[int]chan struct{}{}}
	all := createClusters(t, env, s, 1)
	testenv.StartProcess(t, binary, []string{"manager", "--kubeconfig", env.KubeconfigPath(t), "--metrics-address", "0", "--probe-address", "0"}, nil)
	waitUntilAllHealthy(t, env, all)
}

// countStatusWrites counts the writes to the MySQLClusters in a minute after the servers have become busy.
func countStatusWrites(t *testing.T, env *testenv.Environment) float64 {
	t.Helper()
	versions, writes := map[string]string{}, 0
	for began := time.Now(); time.Since(began) < 2*minute; sleep(t, time.Second) {
		var list mocov1beta2.MySQLClusterList
		testenv.ExpectNoError(t, env.Client.List(t.Context(), &list))
		for i := range list.Items {
			c := &list.Items[i]
			if versions[c.Name] != c.ResourceVersion && time.Since(began) > minute {
				writes++
			}
			versions[c.Name] = c.ResourceVersion
		}
	}
	return float64(writes)
}

func createClusters(t *testing.T, env *testenv.Environment, s *simulatedServers, count int) []*mysqlpods.PodCluster {
	t.Helper()
	namespace := env.CreateNamespace(t)
	testenv.ExpectNoError(t, env.Client.Create(t.Context(), mysqlpods.BuildServiceAccount(namespace)))
	all := make([]*mysqlpods.PodCluster, count)
	var work sync.WaitGroup
	failures := make([]error, makers)
	for m := range makers {
		for k := m; k < count; k += makers {
			name := types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("c%d", k)}
			s.startServers(t, k, fmt.Sprintf("moco-%s-0.moco-%s.%s.svc", name.Name, name.Name, namespace))
			all[k] = &mysqlpods.PodCluster{Env: env, Name: name}
		}
		work.Go(func() {
			for k := m; k < count && failures[m] == nil; k += makers {
				failures[m] = createCluster(t, env, all[k].Name, k)
			}
		})
	}
	work.Wait()
	testenv.ExpectNoError(t, errors.Join(failures...))
	return all
}

func createCluster(t *testing.T, env *testenv.Environment, name types.NamespacedName, k int) error {
	t.Helper()
	if err := env.Client.Create(t.Context(), mysqlpods.BuildPasswordSecret(name)); err != nil {
		return err
	}
	for i := range size {
		pod := mysqlpods.BuildPod(name, i)
		if err := env.Client.Create(t.Context(), pod); err != nil {
			return err
		}
		if err := mysqlpods.ReportPod(t.Context(), env.Client, pod, simulatedAddress(k, i), true); err != nil {
			return err
		}
	}
	return env.Client.Create(t.Context(), testenv.BuildMySQLCluster(t, name, size))
}

func waitUntilAllHealthy(t *testing.T, env *testenv.Environment, all []*mysqlpods.PodCluster) {
	t.Helper()
	waitUntilAll(t, env, all, mocov1beta2.HealthyCondition, "True Healthy")
}

func waitUntilAll(t *testing.T, env *testenv.Environment, all []*mysqlpods.PodCluster, kind, want string) {
	t.Helper()
	testenv.Eventually(t, kind+" is "+want+" for all clusters", func() error {
		var list mocov1beta2.MySQLClusterList
		if err := env.Client.List(t.Context(), &list); err != nil {
			return err
		}
		count, last := 0, ""
		for i := range list.Items {
			if err := checkConditionOf(&list.Items[i], kind, want); err != nil {
				last = err.Error()
				continue
			}
			count++
		}
		return testenv.ErrorIf(count < len(all), "found %d, and another: %s", count, last)
	})
}

// benchStops measures stops of clusters that do not hang, from the patch to the condition, one at a time.
func (b *benchmark) benchStops(t *testing.T, all []*mysqlpods.PodCluster, figure string) {
	t.Helper()
	for _, c := range all[len(all)-probes:] {
		from := annotateStop(t, c, "true")
		pollCondition(t, c, "False ClusteringInactive")
		b.addRun(figure, time.Since(from).Seconds())
		annotateStop(t, c, "")
		pollCondition(t, c, "True ClusteringActive")
	}
}

// pollCondition waits for ClusteringActive, with a poll interval that is much shorter than the measured times.
func pollCondition(t *testing.T, c *mysqlpods.PodCluster, want string) {
	t.Helper()
	for began := time.Now(); ; sleep(t, retryPace) {
		err := checkCondition(t.Context(), c, mocov1beta2.ClusteringActiveCondition, want)
		if err == nil {
			return
		}
		if time.Since(began) > minute {
			t.Fatalf("%s: not %s within a minute: %v", c.Name, want, err)
		}
	}
}

func residentMiB(t *testing.T, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	testenv.ExpectNoError(t, err)
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	testenv.ExpectNoError(t, err)
	return float64(kib) / 1024
}

// simulatedServers are servers that implement MySQL's protocol without a database. Each reports that it is a healthy
// member of its cluster, and answers OK to all other statements.
type simulatedServers struct {
	statements atomic.Int64
	// busySince is the time since which a transaction is committed every second; nil while there are no commits.
	busySince atomic.Pointer[time.Time]

	mu sync.Mutex
	// hanging contains the clusters whose servers accept connections but never answer. The channel is closed when
	// they answer again.
	hanging map[int]chan struct{}
}

// simulatedAddress returns the address of an instance; 250 clusters share a /16 network.
func simulatedAddress(cluster, i int) string {
	return fmt.Sprintf("127.%d.%d.%d", 100+cluster/250, 1+cluster%250, 1+i)
}

func (s *simulatedServers) startServers(t *testing.T, cluster int, host string) {
	t.Helper()
	for i := range size {
		var config net.ListenConfig
		listener, err := config.Listen(t.Context(), "tcp", fmt.Sprintf("%s:%d", simulatedAddress(cluster, i), mysqld.AdminPort))
		testenv.ExpectNoError(t, err)
		t.Cleanup(func() { _ = listener.Close() }) // The test has ended.
		row := func() []any { return s.healthyRow(cluster, i, host) }
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go s.serveConnection(cluster, conn, row)
			}
		}()
	}
}

// hangCluster makes the servers of a cluster hang until end is called.
func (s *simulatedServers) hangCluster(cluster int) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hole := make(chan struct{})
	s.hanging[cluster] = hole
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.hanging, cluster)
		close(hole)
	}
}

func (s *simulatedServers) awaitEndOfHang(cluster int) {
	s.mu.Lock()
	hole := s.hanging[cluster]
	s.mu.Unlock()
	if hole != nil {
		<-hole
	}
}

// serveConnection serves one connection: the greeting, the login and the commands.
func (s *simulatedServers) serveConnection(cluster int, conn net.Conn, row func() []any) {
	defer func() { _ = conn.Close() }() // The client has closed it.
	s.awaitEndOfHang(cluster)
	w := &packetConn{conn: conn, in: bufio.NewReader(conn)}
	w.writePacket(greetingPacket())
	for w.readPacket() != nil {
		if w.written == 1 { // This is the answer to the greeting; any password is accepted.
			w.writePacket(okPacket())
			continue
		}
		s.awaitEndOfHang(cluster)
		s.answerCommand(w, row)
	}
}

func (s *simulatedServers) answerCommand(w *packetConn, row func() []any) {
	const query = 3
	command := w.last
	if command[0] != query {
		w.writePacket(okPacket())
		return
	}
	s.statements.Add(1)
	text := string(command[1:])
	switch {
	case strings.Contains(text, "do sleep("): // As in a real server, sleep until the client closes the connection.
		_, _ = io.Copy(io.Discard, w.in)
	case strings.HasPrefix(text, "select @@global.server_uuid"):
		answer := row()
		w.writeTable(len(answer), answer)
	case strings.HasPrefix(text, "select json_arrayagg(lower(variable_name))"):
		w.writeTable(1, []any{`["rpl_semi_sync_source_enabled", "rpl_semi_sync_replica_enabled"]`})
	case strings.HasPrefix(text, "select max(user_attributes"):
		w.writeTable(1, []any{mysqlusers.CurrentVersion(false)})
	case strings.HasPrefix(text, "select id, user"):
		w.writeTable(2)
	case strings.HasPrefix(text, "select connection_id()"):
		w.writeTable(1, []any{"1"})
	default:
		w.writePacket(okPacket())
	}
}

// healthyRow returns the answer to the controller's query.
func (s *simulatedServers) healthyRow(cluster, i int, host string) []any {
	uuid := func(i int) string { return fmt.Sprintf("%08d-0000-0000-0000-%012d", cluster+1, i+1) }
	flag := map[bool]string{true: "ON", false: "OFF"}
	bit := map[bool]string{true: "1", false: "0"}
	isPrimary := i == 0
	variables := fmt.Sprintf(`{"rpl_semi_sync_source_enabled": "%s", "rpl_semi_sync_source_timeout": "86400000",
		"rpl_semi_sync_source_wait_for_replica_count": "1", "rpl_semi_sync_replica_enabled": "%s", "sync_binlog": "1", "replica_exec_mode": "STRICT",
		"innodb_flush_log_at_trx_commit": "1", "rpl_semi_sync_source_wait_no_replica": "1", "rpl_semi_sync_source_wait_point": "AFTER_SYNC"}`,
		bit[isPrimary], bit[!isPrimary])
	status := fmt.Sprintf(`{"rpl_semi_sync_source_wait_sessions": "0", "rpl_semi_sync_source_status": "%s", "rpl_semi_sync_replica_status": "%s"}`,
		flag[isPrimary], flag[!isPrimary])
	var connected, channel any
	if isPrimary {
		connected = fmt.Sprintf(`["%s", "%s"]`, uuid(1), uuid(2))
	} else {
		channel = fmt.Sprintf(`{"host": "%s", "port": %d, "uuid": "%s", "auto": "1", "io": "ON", "retrieved": "", "ioerrno": 0, "sql": "ON", "sqlerrno": 0, "lag": null, "heard": 1000}`, host, mysqld.Port, uuid(0))
	}
	last := 10
	if since := s.busySince.Load(); since != nil {
		last += int(time.Since(*since).Seconds())
	}
	return []any{
		uuid(i), "9.7.0", nil, bit[!isPrimary], bit[!isPrimary], status, variables, nil, connected, channel,
		"", fmt.Sprintf("%s:1-%d", uuid(0), last), "",
	}
}

type packetConn struct {
	conn    net.Conn
	in      *bufio.Reader
	number  byte
	last    []byte
	written int
}

func (p *packetConn) readPacket() []byte {
	var header [4]byte
	if _, err := io.ReadFull(p.in, header[:]); err != nil {
		return nil
	}
	body := make([]byte, int(header[0])|int(header[1])<<8|int(header[2])<<16)
	if _, err := io.ReadFull(p.in, body); err != nil || len(body) == 0 {
		return nil
	}
	p.number, p.last = header[3]+1, body
	return body
}

func (p *packetConn) writePacket(body []byte) {
	frame := append([]byte{byte(len(body)), byte(len(body) >> 8), byte(len(body) >> 16), p.number}, body...)
	p.number++
	p.written++
	_, _ = p.conn.Write(frame) // The next read fails if the client has disconnected.
}

// writeTable writes a result set of texts; nil means NULL.
func (p *packetConn) writeTable(columns int, rows ...[]any) {
	end := []byte{0xfe, 0, 0, 2, 0}
	p.writePacket([]byte{byte(columns)})
	for range columns {
		column := lengthEncoded("def")
		for range 5 { // Schema, table twice, name twice.
			column = append(column, lengthEncoded("")...)
		}
		p.writePacket(append(column, 0x0c, 45, 0, 0xff, 0xff, 0, 0, 0xfd, 0, 0, 0, 0, 0)) // A text in utf8mb4.
	}
	p.writePacket(end)
	for _, row := range rows {
		var body []byte
		for _, value := range row {
			if value == nil {
				body = append(body, 0xfb)
				continue
			}
			body = append(body, lengthEncoded(fmt.Sprint(value))...)
		}
		p.writePacket(body)
	}
	p.writePacket(end)
}

func lengthEncoded(s string) []byte {
	if len(s) < 0xfb {
		return append([]byte{byte(len(s))}, s...)
	}
	return append(binary.LittleEndian.AppendUint16([]byte{0xfc}, uint16(len(s))), s...)
}

func okPacket() []byte { return []byte{0, 0, 0, 2, 0, 0, 0} }

func greetingPacket() []byte {
	const capabilities = 0x1 | 0x200 | 0x2000 | 0x8000 | 0x80000 // Passwords, protocol 4.1, transactions, plugins.
	salt := "12345678901234567890"
	body := append([]byte{10}, "9.7.0-simulated\x00"...)
	body = append(body, 1, 0, 0, 0)
	body = append(body, salt[:8]...)
	body = append(body, 0, capabilities&0xff, capabilities>>8&0xff, 45, 2, 0, capabilities>>16, 0, byte(len(salt)+1))
	body = append(body, make([]byte, 10)...)
	body = append(body, salt[8:]...)
	return append(body, "\x00mysql_native_password\x00"...)
}

// TestSimulatedServer checks that the driver accepts the simulation as a server.
func TestSimulatedServer(t *testing.T) {
	s := &simulatedServers{hanging: map[int]chan struct{}{}}
	const cluster = 249
	s.startServers(t, cluster, "a-host")
	db := openSessionAt(t, fmt.Sprintf("%s:%d", simulatedAddress(cluster, 1), mysqld.AdminPort), mysqlpods.AppUser, "anything")
	defer func() { _ = db.Close() }() // The test has ended.
	if _, err := db.ExecContext(t.Context(), "set global something = on"); err != nil {
		t.Error(err)
	}
	var id int
	if err := db.QueryRowContext(t.Context(), "select connection_id()").Scan(&id); err != nil || id != 1 {
		t.Errorf("expected the connection 1, found %d (%v)", id, err)
	}
	if got := s.statements.Load(); got != 2 {
		t.Errorf("expected two statements, found %d", got)
	}
}
