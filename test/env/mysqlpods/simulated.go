// SPDX-License-Identifier: Apache-2.0

package mysqlpods

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	testenv "github.com/torpor-dev/torpor/test/env"
	"github.com/torpor-dev/torpor/test/env/mysqld"
)

// SimulatedServers are servers that implement MySQL's protocol without a database. Each reports that it is a healthy
// member of its cluster, and answers OK to all other statements.
type SimulatedServers struct {
	// Statements counts the statements that the servers have received.
	Statements atomic.Int64
	// BusySince is the time since which a transaction is committed every second; nil while there are no commits.
	BusySince atomic.Pointer[time.Time]

	mu sync.Mutex
	// hanging contains the clusters whose servers accept connections but never answer. The channel is closed when
	// they answer again.
	hanging map[int]chan struct{}
}

// NewSimulatedServers returns the servers of no cluster.
func NewSimulatedServers() *SimulatedServers {
	return &SimulatedServers{hanging: map[int]chan struct{}{}}
}

// SimulatedAddress returns the address of an instance; 250 clusters share a /16 network.
func SimulatedAddress(cluster, i int) string {
	return fmt.Sprintf("127.%d.%d.%d", 100+cluster/250, 1+cluster%250, 1+i)
}

// StartServers starts the servers of a cluster, which is identified by its number. host is the host of its primary.
func (s *SimulatedServers) StartServers(t testing.TB, cluster int, host string) {
	t.Helper()
	for i := range simulatedInstances {
		var config net.ListenConfig
		listener, err := config.Listen(t.Context(), "tcp", fmt.Sprintf("%s:%d", SimulatedAddress(cluster, i), mysqld.AdminPort))
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

// simulatedInstances is the number of instances of a simulated cluster.
const simulatedInstances = 3

// CreateSimulatedCluster creates a MySQLCluster with its Secret and its Pods, whose servers are simulated. number is the
// number of the cluster.
func CreateSimulatedCluster(t testing.TB, hub *testenv.Environment, name types.NamespacedName, number int) error {
	t.Helper()
	if err := hub.Client.Create(t.Context(), BuildPasswordSecret(name)); err != nil {
		return fmt.Errorf("create the Secret: %w", err)
	}
	for i := range simulatedInstances {
		pod := BuildPod(name, i)
		if err := hub.Client.Create(t.Context(), pod); err != nil {
			return fmt.Errorf("create the Pod: %w", err)
		}
		if err := ReportPod(t.Context(), hub.Client, pod, SimulatedAddress(number, i), true); err != nil {
			return err
		}
	}
	if err := hub.Client.Create(t.Context(), testenv.BuildMySQLCluster(t, name, simulatedInstances)); err != nil {
		return fmt.Errorf("create the cluster: %w", err)
	}
	return nil
}

// HangCluster makes the servers of a cluster hang until end is called.
func (s *SimulatedServers) HangCluster(cluster int) (end func()) {
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

func (s *SimulatedServers) awaitEndOfHang(cluster int) {
	s.mu.Lock()
	hole := s.hanging[cluster]
	s.mu.Unlock()
	if hole != nil {
		<-hole
	}
}

// serveConnection serves one connection: the greeting, the login and the commands.
func (s *SimulatedServers) serveConnection(cluster int, conn net.Conn, row func() []any) {
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

func (s *SimulatedServers) answerCommand(w *packetConn, row func() []any) {
	const query = 3
	command := w.last
	if command[0] != query {
		w.writePacket(okPacket())
		return
	}
	s.Statements.Add(1)
	text := string(command[1:])
	switch {
	// As in a real server, these statements wait until the client closes the connection.
	case strings.Contains(text, "do sleep("), strings.Contains(text, "source_pos_wait("):
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
func (s *SimulatedServers) healthyRow(cluster, i int, host string) []any {
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
	if since := s.BusySince.Load(); since != nil {
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
