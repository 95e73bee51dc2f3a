// SPDX-License-Identifier: Apache-2.0

package mysqld

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

	installation *Installation
	dir          string

	mu      sync.Mutex
	process *testenv.Process
	halted  bool // by the test
}

// StartServer starts one more server, which is read-only, has no transaction and has no source.
func (b *Installation) StartServer(t testing.TB) *Server {
	t.Helper()
	b.servers++
	s := &Server{installation: b, Address: b.network + "." + strconv.Itoa(b.servers), dir: filepath.Join(b.dir, strconv.Itoa(b.servers))}
	s.copyTemplate(t)
	writeFile(t, filepath.Join(s.dir, "my.cnf"), b.buildConfig(s.dataDir(), s.Address, b.servers))
	s.StartAndWait(t)
	return s
}

func (s *Server) dataDir() string { return filepath.Join(s.dir, "data") }

func (s *Server) copyTemplate(t testing.TB) {
	t.Helper()
	if err := os.CopyFS(s.dataDir(), os.DirFS(s.installation.template)); err != nil {
		t.Fatalf("copy the data directory: %v", err)
	}
}

// WipeData kills the server and gives it the data directory that it began with, as if its Pod and volume were deleted. It stays
// down.
func (s *Server) WipeData(t testing.TB) {
	t.Helper()
	s.KillAtOnce(t)
	if err := os.RemoveAll(s.dataDir()); err != nil {
		t.Fatalf("remove the data directory: %v", err)
	}
	s.copyTemplate(t)
}

// StartAndWait starts the server again after Stop or Kill9, and returns when it accepts connections.
func (s *Server) StartAndWait(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	s.halted = false
	s.launchProcess(t)
	s.mu.Unlock()
	s.WaitUntilReady(t)
}

// WaitUntilReady returns when the server accepts connections.
func (s *Server) WaitUntilReady(t testing.TB) {
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
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.stopRestarting().Stop(t)
}

// KillAtOnce kills the server.
func (s *Server) KillAtOnce(t testing.TB) {
	t.Helper()
	s.stopRestarting().KillAtOnce(t)
}

// PID of the running server.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.PID()
}

func (s *Server) stopRestarting() *testenv.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halted = true
	return s.process
}

// launchProcess is called with the lock held. It watches for the server's wish to be started again.
func (s *Server) launchProcess(t testing.TB) {
	line := s.installation.serverCommand("--defaults-file=" + filepath.Join(s.dir, "my.cnf"))
	p := testenv.StartProcess(t, line[0], line[1:], []string{"MYSQLD_PARENT_PID=" + strconv.Itoa(os.Getpid())})
	s.process = p
	go func() {
		<-p.ExitChannel()
		s.mu.Lock()
		defer s.mu.Unlock()
		// CLONE ends the server with this code and relies on a supervisor, as the Pod's container is one.
		if !s.halted && t.Context().Err() == nil && p.ExitCode() == restartCode {
			s.launchProcess(t)
		}
	}()
}

// Freeze makes the server silent without ending it; its connections stay open. Thaw lets it go on.
func (s *Server) Freeze(t testing.TB) { s.sendSignal(t, syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw(t testing.TB) { s.sendSignal(t, syscall.SIGCONT) }

func (s *Server) sendSignal(t testing.TB, what syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(s.PID(), what); err != nil {
		t.Fatalf("send %s to mysqld on %s: %v", what, s.Address, err)
	}
}

// ClientCommand is the command line of the program mysql that logs in at the server.
func (s *Server) ClientCommand(user, password string) []string {
	line := s.installation.programCommand("usr/bin/mysql")
	return append(line, "--no-defaults", "--host="+s.Address, "--port="+strconv.Itoa(Port), "--user="+user, "--password="+password,
		"--character-sets-dir="+s.installation.joinPath("usr/share/mysql/charsets"))
}

// The passwords of the product's accounts in tests. A log that shows one of them is easily found.
const (
	AdminPassword       = "secret-a"
	ReplicationPassword = "secret-r"
	DonorPassword       = "secret-d"
)

// ProductUsers are the statements that make the accounts of the product which clustering uses.
const ProductUsers = `create user 'moco-admin'@'%' identified by '` + AdminPassword + `';
grant all on *.* to 'moco-admin'@'%' with grant option;
create user 'moco-repl'@'%' identified by '` + ReplicationPassword + `';
grant replication slave, replication client on *.* to 'moco-repl'@'%';
create user 'moco-clone-donor'@'%' identified by '` + DonorPassword + `';
grant backup_admin, service_connection_admin on *.* to 'moco-clone-donor'@'%';
`

// ClientsOnPath puts MySQL's own clients first on the PATH, for as long as the test runs.
func (b *Installation) ClientsOnPath(t testing.TB) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"mysql", "mysqldump"} {
		line := b.programCommand("usr/bin/" + name)
		text := "#!/bin/sh\nexec '" + strings.Join(line, "' '") + "' \"$@\"\n"
		testenv.ExpectNoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}
