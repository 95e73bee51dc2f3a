// SPDX-License-Identifier: Apache-2.0

package mysqld

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/torpor-dev/torpor/internal/testenv"
)

// restartCode is how a server ends that wants to be started again, as after CLONE.
const restartCode = 16

// Server is one MySQL server. It ends with the test.
type Server struct {
	// Address is its loopback address, on which it serves Port and AdminPort.
	Address string

	bed *Bed
	dir string

	mu      sync.Mutex
	process *testenv.Process
	halted  bool // by the test
}

// Start starts one more server, which is read-only, has no transaction and replicates from nobody.
func (b *Bed) Start(t *testing.T) *Server {
	t.Helper()
	b.servers++
	s := &Server{bed: b, Address: b.network + "." + strconv.Itoa(b.servers), dir: filepath.Join(b.dir, strconv.Itoa(b.servers))}
	s.fill(t)
	write(t, filepath.Join(s.dir, "my.cnf"), b.config(s.data(), s.Address, b.servers))
	s.Start(t)
	return s
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) fill(t *testing.T) {
	t.Helper()
	if err := os.CopyFS(s.data(), os.DirFS(s.bed.template)); err != nil {
		t.Fatalf("copy the data directory: %v", err)
	}
}

// Empty kills the server and gives it the data directory that it was born with, as who deletes a Pod and its volume. It stays
// down.
func (s *Server) Empty(t *testing.T) {
	t.Helper()
	s.Kill9(t)
	if err := os.RemoveAll(s.data()); err != nil {
		t.Fatalf("remove the data directory: %v", err)
	}
	s.fill(t)
}

// Start starts the server again after Stop or Kill9, and returns when it accepts connections.
func (s *Server) Start(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	s.halted = false
	s.launch(t)
	s.mu.Unlock()
	s.WaitUp(t)
}

// WaitUp returns when the server accepts connections.
func (s *Server) WaitUp(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "mysqld on "+s.Address+" accepts connections", func() error {
		var dialer net.Dialer
		c, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(s.Address, strconv.Itoa(AdminPort)))
		if err != nil {
			return fmt.Errorf("dial: %w", err)
		}
		return c.Close()
	})
}

// Stop ends the server as a pod's deletion does.
func (s *Server) Stop(t *testing.T) {
	t.Helper()
	s.halt().Stop(t)
}

// Kill9 kills the server.
func (s *Server) Kill9(t *testing.T) {
	t.Helper()
	s.halt().Kill9(t)
}

// PID of the running server.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.PID()
}

func (s *Server) halt() *testenv.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halted = true
	return s.process
}

// launch is called with the lock held. It watches for the server's wish to be started again.
func (s *Server) launch(t *testing.T) {
	line := s.bed.command("--defaults-file=" + filepath.Join(s.dir, "my.cnf"))
	p := testenv.StartProcess(t, line[0], line[1:], []string{"MYSQLD_PARENT_PID=" + strconv.Itoa(os.Getpid())})
	s.process = p
	go func() {
		<-p.Done()
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.halted && t.Context().Err() == nil && p.ExitCode() == restartCode {
			s.launch(t)
		}
	}()
}

// Freeze makes the server silent without ending it; its connections stay open. Thaw lets it go on.
func (s *Server) Freeze(t *testing.T) { s.signal(t, syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw(t *testing.T) { s.signal(t, syscall.SIGCONT) }

func (s *Server) signal(t *testing.T, what syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(s.PID(), what); err != nil {
		t.Fatalf("send %s to mysqld on %s: %v", what, s.Address, err)
	}
}

// Client is the command line of the program mysql that logs in at the server.
func (s *Server) Client(user, password string) []string {
	line := s.bed.program("usr/bin/mysql")
	return append(line, "--no-defaults", "--host="+s.Address, "--port="+strconv.Itoa(Port), "--user="+user, "--password="+password,
		"--character-sets-dir="+s.bed.path("usr/share/mysql/charsets"))
}
