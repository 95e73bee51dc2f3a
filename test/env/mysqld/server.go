// SPDX-License-Identifier: Apache-2.0

// Package mysqld runs real MySQL servers for tests. Each has its own loopback address, the same ports as in a Pod,
// and a supervisor, so that CLONE can restart it.
package mysqld

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/mysql/certificates"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// restartCode is the exit code of a server that requests a restart, as after CLONE.
const restartCode = 16

// Server is one MySQL server. It ends with the test.
type Server struct {
	// Address is the server's loopback address, on which it listens on Port and AdminPort.
	Address string

	installation *Installation
	dir          string

	mu      sync.Mutex
	process *testenv.Process
	halted  bool // stopped by the test
}

// maxServers is the number of servers that have certificates.
const maxServers = 9

// WriteCertificates creates a certificate for servers with these addresses, and writes it into a folder.
func WriteCertificates(t testing.TB, dir string, addresses ...string) map[string][]byte {
	t.Helper()
	files, _, err := certificates.RenewFiles(nil, addresses, clock.RealClock{}.Now())
	testenv.ExpectNoError(t, err)
	writeFiles(t, dir, files)
	return files
}

// RewriteCertificates replaces the servers' certificate with a certificate that was created at the given time. Servers
// use it after ALTER INSTANCE RELOAD TLS.
func (b *Installation) RewriteCertificates(t testing.TB, madeAt time.Time) {
	t.Helper()
	files := map[string][]byte{certificates.AuthorityFile: b.Certificates[certificates.AuthorityFile], certificates.AuthorityKey: b.Certificates[certificates.AuthorityKey]}
	files, _, err := certificates.RenewFiles(files, b.hosts, madeAt)
	testenv.ExpectNoError(t, err)
	writeFiles(t, b.dir, files)
}

func writeFiles(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	for name, text := range files {
		writeFile(t, filepath.Join(dir, name), string(text))
	}
}

// CertificateOptions returns the options with which a server uses the certificate in a folder.
func CertificateOptions(dir string) []string {
	return []string{
		"--ssl-ca=" + filepath.Join(dir, certificates.AuthorityFile), "--ssl-cert=" + filepath.Join(dir, certificates.CertificateFile),
		"--ssl-key=" + filepath.Join(dir, certificates.KeyFile),
	}
}

// StartServers starts several servers at the same time.
func (b *Installation) StartServers(t testing.TB, count int) []*Server {
	t.Helper()
	var all []*Server
	for range count {
		s := b.createServer(t)
		s.launch(t)
		all = append(all, s)
	}
	for _, s := range all {
		s.WaitUntilReady(t)
	}
	return all
}

// StartServer starts another server, which is read-only and has no transactions and no source.
func (b *Installation) StartServer(t testing.TB) *Server {
	t.Helper()
	return b.StartServers(t, 1)[0]
}

func (b *Installation) createServer(t testing.TB) *Server {
	t.Helper()
	b.servers++
	s := &Server{installation: b, Address: b.network + "." + strconv.Itoa(b.servers), dir: filepath.Join(b.dir, strconv.Itoa(b.servers))}
	s.mountVolume(t, b.VolumeMegabytes)
	s.copyTemplate(t)
	options := strings.ReplaceAll(strings.Join(CertificateOptions(b.dir), "\n"), "--", "")
	atStart := mysqlusers.BuildRenewalStatements()
	if b.TakesOverCopies {
		atStart = mysqlusers.BuildTakeOverStatements(ProductPasswords(), true)
	}
	writeFile(t, filepath.Join(s.dir, "start.sql"), strings.Join(atStart, ";\n")+";\n")
	options += "\ninit_file=" + filepath.Join(s.dir, "start.sql") + "\n" + strings.Join(b.Settings, "\n")
	writeFile(t, filepath.Join(s.dir, "my.cnf"), b.buildConfig(s.dataDir(), s.Address, b.servers)+options+"\n")
	return s
}

// mountVolume gives the server its own file system, which requires root.
func (s *Server) mountVolume(t testing.TB, megabytes int) {
	t.Helper()
	if megabytes == 0 {
		return
	}
	if err := errors.Join(os.MkdirAll(s.dir, 0o750), syscall.Mount("tmpfs", s.dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes))); err != nil {
		t.Skipf("a small volume cannot be mounted: %v: run as root", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(s.dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
}

// FillVolume fills the server's volume completely, until FreeVolume.
func (s *Server) FillVolume(t testing.TB) {
	t.Helper()
	filler, err := os.Create(s.fillerPath())
	testenv.ExpectNoError(t, err)
	defer func() { _ = filler.Close() }() // The write fails when the volume is full.
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err := filler.Write(chunk); err != nil {
			chunk = chunk[:len(chunk)/2]
		}
	}
}

// FreeVolume reverts FillVolume.
func (s *Server) FreeVolume(t testing.TB) {
	t.Helper()
	testenv.ExpectNoError(t, os.Remove(s.fillerPath()))
}

func (s *Server) fillerPath() string { return filepath.Join(s.dir, "filler") }

// LogPath returns the path of the general log, if the server has the settings GeneralLogSettings.
func (s *Server) LogPath() string { return filepath.Join(s.dir, generalLog) }

const generalLog = "general.log"

// GeneralLogSettings returns the settings of a server that logs all statements.
func GeneralLogSettings() []string {
	return []string{"general_log=ON", "general_log_file=../" + generalLog}
}

func (s *Server) dataDir() string { return filepath.Join(s.dir, "data") }

func (s *Server) copyTemplate(t testing.TB) {
	t.Helper()
	copyTree := copySparse
	if s.installation.VolumeMegabytes > 0 { // On a full volume, a server cannot write into the holes of a sparse file.
		copyTree = func(to, from string) error { return os.CopyFS(to, os.DirFS(from)) }
	}
	if err := copyTree(s.dataDir(), s.installation.template); err != nil {
		t.Fatalf("copy the data directory: %v", err)
	}
}

// copySparse copies a folder with sparse files, because more than half of a data directory is zeros.
func copySparse(to, from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, below), 0o750)
		}
		return copySparseFile(filepath.Join(to, below), path)
	})
}

func copySparseFile(to, from string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // A file that was only read loses no data.
	file, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	const pageSize = 16 << 10 // A page of InnoDB.
	var page, zeros [pageSize]byte
	size := int64(0)
	for {
		n, err := io.ReadFull(source, page[:])
		if n > 0 && !bytes.Equal(page[:n], zeros[:n]) {
			if _, err := file.WriteAt(page[:n], size); err != nil {
				return err
			}
		}
		size += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return file.Truncate(size)
		}
		if err != nil {
			return err
		}
	}
}

// WipeData kills the server and restores its initial data directory, as if its Pod and volume were deleted. The
// server is not restarted.
func (s *Server) WipeData(t testing.TB) {
	t.Helper()
	s.KillAtOnce(t)
	if err := os.RemoveAll(s.dataDir()); err != nil {
		t.Fatalf("remove the data directory: %v", err)
	}
	s.copyTemplate(t)
}

// StartAndWait restarts the server after Stop or KillAtOnce, and returns when it accepts connections.
func (s *Server) StartAndWait(t testing.TB) {
	t.Helper()
	s.launch(t)
	s.WaitUntilReady(t)
}

func (s *Server) launch(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halted = false
	s.launchProcess(t)
}

// WaitUntilReady returns when the server accepts connections.
func (s *Server) WaitUntilReady(t testing.TB) {
	t.Helper()
	testenv.Eventually(t, "mysqld on "+s.Address+" accepts connections", func() error {
		return errors.Join(s.dialPort(t, AdminPort), s.dialPort(t, Port)) // The server opens its ports one after the other.
	})
}

func (s *Server) dialPort(t testing.TB, port int) error {
	t.Helper()
	var dialer net.Dialer
	c, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(s.Address, strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	return c.Close()
}

// Stop shuts the server down gracefully, as the deletion of its Pod would.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.stopRestarting().Stop(t)
}

// HasLoggedRow reports whether the binary logs contain a row that ends with a text, with its complete transaction.
// They contain the transaction even before the commit, because replicas must receive it first. Incomplete
// transactions are removed when a server recovers.
func (s *Server) HasLoggedRow(t testing.TB, text string) bool {
	t.Helper()
	// Sizes of the checksum of the row's event and of the commit event: 19 bytes of header, 8 bytes of number, and a
	// checksum.
	// https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_replication_binlog_event.html
	const checksum, commit = 4, 19 + 8 + 4
	logs, err := filepath.Glob(filepath.Join(s.dataDir(), "binlog.[0-9]*"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("expected binary logs in %s, found %d (%v)", s.dataDir(), len(logs), err)
	}
	return slices.ContainsFunc(logs, func(log string) bool {
		events, err := os.ReadFile(log)
		testenv.ExpectNoError(t, err)
		_, after, isFound := bytes.Cut(events, []byte(text))
		return isFound && len(after) >= checksum+commit
	})
}

// KillAtOnce kills the server.
func (s *Server) KillAtOnce(t testing.TB) {
	t.Helper()
	s.stopRestarting().KillAtOnce(t)
}

// PID returns the process ID of the running server.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.PID()
}

// WaitForCrash waits until the server has crashed, at most for the given time. It returns the exit code, and the
// statement in MySQL's crash report. A server that crashes closes its sessions before it ends.
func (s *Server) WaitForCrash(most time.Duration) (report string, hasEnded bool) {
	s.mu.Lock()
	p := s.process
	s.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-timer.C:
		return "", false
	case <-p.ExitChannel():
	}
	_, statement, _ := strings.Cut(p.LastOutput(), "\nQuery (")
	statement, _, _ = strings.Cut(statement, "\nConnection ID")
	return fmt.Sprintf("exit code %d, statement (%s", p.ExitCode(), statement), true
}

func (s *Server) stopRestarting() *testenv.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halted = true
	return s.process
}

// launchProcess starts the server, and restarts it when the server requests this. The caller holds the lock.
func (s *Server) launchProcess(t testing.TB) {
	line, changes := s.installation.replaceHosts(s.installation.serverCommand("--defaults-file=" + filepath.Join(s.dir, "my.cnf")))
	p := testenv.StartProcess(t, line[0], line[1:], []string{"MYSQLD_PARENT_PID=" + strconv.Itoa(os.Getpid())}, changes...)
	s.process = p
	t.Cleanup(func() { p.KillAtOnce(t) }) // A graceful shutdown takes a second and only saves data that no test reads.
	go func() {
		<-p.ExitChannel()
		s.mu.Lock()
		defer s.mu.Unlock()
		// CLONE ends the server with this code and relies on a supervisor, such as the Pod's container.
		mayRestart := s.installation.RestartsCrashed || p.ExitCode() == restartCode
		if !s.halted && t.Context().Err() == nil && mayRestart {
			s.launchProcess(t)
		}
	}()
}

// Freeze suspends the server without ending it; its connections stay open. Thaw resumes it.
func (s *Server) Freeze(t testing.TB) { s.sendSignal(t, syscall.SIGSTOP) }

// Thaw resumes a frozen server.
func (s *Server) Thaw(t testing.TB) { s.sendSignal(t, syscall.SIGCONT) }

func (s *Server) sendSignal(t testing.TB, what syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(s.PID(), what); err != nil {
		t.Fatalf("send %s to mysqld on %s: %v", what, s.Address, err)
	}
}

// ClientCommand returns the command line of the mysql client that logs in to the server.
func (s *Server) ClientCommand(user, password string) []string {
	line := s.installation.programCommand("usr/bin/mysql")
	return append(line, "--no-defaults", "--host="+s.Address, "--port="+strconv.Itoa(Port), "--user="+user, "--password="+password,
		"--character-sets-dir="+s.installation.joinPath("usr/share/mysql/charsets"))
}

// The passwords of the product's accounts in tests. A leaked password is easy to find in a log.
const (
	AdminPassword       = "secret-a"
	ReplicationPassword = "secret-r"
	DonorPassword       = "secret-d"
)

// ProductPasswords returns the passwords of the product's accounts, by the keys of a cluster's Secret.
func ProductPasswords() map[string][]byte {
	passwords := map[string][]byte{}
	for _, a := range mysqlusers.ListAccounts() {
		passwords[a.PasswordKey] = []byte("secret-" + a.Name)
	}
	for user, password := range map[string]string{
		mysqlusers.AdminUser: AdminPassword, mysqlusers.ReplicationUser: ReplicationPassword, mysqlusers.DonorUser: DonorPassword,
	} {
		passwords[mysqlusers.PasswordKeyOf(user)] = []byte(password)
	}
	return passwords
}

// ProductUsers returns the statements that create the product's accounts.
func ProductUsers() string {
	return strings.Join(mysqlusers.BuildStatements(ProductPasswords(), false), ";\n") + ";\n"
}

// ClientsOnPath puts MySQL's clients first on the PATH for the duration of the test.
func (b *Installation) ClientsOnPath(t testing.TB) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"mysql", "mysqldump", "mysqlbinlog", "mysql_tzinfo_to_sql"} {
		line := b.programCommand("usr/bin/" + name)
		text := "#!/bin/sh\nexec '" + strings.Join(line, "' '") + "' \"$@\"\n"
		testenv.ExpectNoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// The ports of every server.
const (
	Port      = 3306
	AdminPort = 33062
)

// Installation holds the common parts of a test's servers, which start with the same users and without transactions.
type Installation struct {
	// Certificates are the certificate files of every server, by the keys of a cluster's Secret.
	Certificates map[string][]byte

	tree     string // the folder of usr/sbin/mysqld
	dir      string
	template string // a data directory to copy
	network  string // the first three bytes of the servers' addresses, for example 127.30.4
	servers  int
	hosts    []string // the host names in the certificates
	// TakesOverCopies makes servers that are created later create the product's accounts at each start, as copies of
	// another server do.
	TakesOverCopies bool
	// Settings are additional lines of my.cnf for servers that are created later.
	Settings []string
	// VolumeMegabytes is the size of the volume of each server that is created later; 0 means no separate volume.
	VolumeMegabytes int
	// RestartsCrashed restarts servers that crash, as the kubelet does.
	RestartsCrashed bool
	// HostsFile is the file that servers read instead of /etc/hosts, which requires root; empty means /etc/hosts.
	HostsFile string
}

// NewInstallation initialises a data directory and runs the statements in it, outside the binary log. It skips the
// test if MySQL is not available. The servers' certificates are valid for their addresses and the hosts.
func NewInstallation(t testing.TB, statements string, hosts ...string) *Installation {
	t.Helper()
	network := reserveNetwork(t)
	b := &Installation{tree: os.Getenv("TORPOR_MYSQL"), dir: serversDir(t, network), network: network}
	b.skipWithoutServer(t)
	b.template = b.initializedDataDir(t, statements)
	for n := range maxServers { // Links in front of servers use addresses above 100, and proxies addresses of at least 200.
		hosts = append(hosts, network+"."+strconv.Itoa(n+1), network+"."+strconv.Itoa(n+101), network+"."+strconv.Itoa(n+200))
	}
	b.hosts, b.Certificates = hosts, WriteCertificates(t, b.dir, hosts...)
	return b
}

// skipWithoutServer skips the test if the tree has no mysqld.
func (b *Installation) skipWithoutServer(t testing.TB) {
	t.Helper()
	if _, err := os.Stat(b.joinPath("usr/sbin/mysqld")); err != nil {
		t.Skipf("no real MySQL: expected TORPOR_MYSQL to be a folder with usr/sbin/mysqld, found %q: run make mysql on Debian", b.tree)
	}
}

// initializedDataDir returns a data directory in which the statements have been run. It is kept next to the
// servers' programs for all tests with the same statements, because creating it takes longer than most of these
// tests.
func (b *Installation) initializedDataDir(t testing.TB, statements string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(statements + b.buildConfig("/data", "127.0.0.1", 1)))
	kept := b.joinPath(filepath.Join("templates", hex.EncodeToString(sum[:8])))
	if _, err := os.Stat(kept); err == nil {
		return kept
	}
	if err := os.MkdirAll(filepath.Dir(kept), 0o700); err != nil {
		t.Fatalf("make a folder for data directories: %v", err)
	}
	// Only this test uses the network, so an existing folder with this name is left over from a killed test.
	fresh := kept + "-" + b.network
	if err := errors.Join(os.RemoveAll(fresh), os.Mkdir(fresh, 0o700)); err != nil {
		t.Fatalf("make a data directory: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(fresh) }) // The folder fresh still exists only if another test has created kept first.
	users, config := filepath.Join(b.dir, "users.sql"), filepath.Join(b.dir, "template.cnf")
	writeFile(t, users, statements)
	writeFile(t, config, b.buildConfig(fresh, "127.0.0.1", 1))
	b.runServer(t, "--defaults-file="+config, "--initialize-insecure", "--disable-log-bin", "--super-read-only=OFF", "--init-file="+users)
	if err := os.Remove(filepath.Join(fresh, "auto.cnf")); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, kept); err == nil {
		return kept
	}
	if _, err := os.Stat(kept); err != nil {
		t.Fatalf("keep a data directory: %v", err)
	}
	return kept // Another test has created it in the meantime.
}

func (b *Installation) joinPath(below string) string { return filepath.Join(b.tree, below) }

// programCommand returns a program of the tree with the tree's own dynamic linker and libraries, which may be newer
// than the system's.
func (b *Installation) programCommand(name string) []string {
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	linker := map[string]string{"amd64": "usr/lib64/ld-linux-x86-64.so.2", "arm64": "usr/lib/ld-linux-aarch64.so.1"}[runtime.GOARCH]
	libraries := b.joinPath("usr/lib/"+triplet) + ":" + b.joinPath("usr/lib/mysql/private")
	return []string{b.joinPath(linker), "--library-path", libraries, b.joinPath(name)}
}

func (b *Installation) serverCommand(args ...string) []string {
	line := append(b.programCommand("usr/sbin/mysqld"), args...)
	if os.Geteuid() == 0 {
		line = append(line, "--user=root")
	}
	return line
}

// replaceHosts makes a command read HostsFile instead of /etc/hosts, in a mount namespace of its own.
func (b *Installation) replaceHosts(line []string) ([]string, []func(*exec.Cmd)) {
	if b.HostsFile == "" {
		return line, nil
	}
	const mount = `mount --bind "$0" /etc/hosts && exec "$@"`
	unshare := func(c *exec.Cmd) { c.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS }
	return append([]string{"/bin/sh", "-c", mount, b.HostsFile}, line...), []func(*exec.Cmd){unshare}
}

func (b *Installation) runServer(t testing.TB, args ...string) {
	t.Helper()
	line := b.serverCommand(args...)
	if out, err := exec.CommandContext(t.Context(), line[0], line[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("initialise MySQL's data directory: %v\n%s", err, out)
	}
}

const (
	// memory is an in-memory file system. A commit waits for several writes, which do not wait for a disk there.
	memory = "/dev/shm"
	// minMemory is the free space that the servers of all concurrent tests need.
	minMemory = 4 << 30
	dirPrefix = "mysqld-"
)

// serversDir returns an empty folder with a short name for the servers of a network: in memory if there is enough, and
// on disk otherwise and for benchmarks.
func serversDir(t testing.TB, network string) string {
	t.Helper()
	var found syscall.Statfs_t
	err := syscall.Statfs(memory, &found)
	if err != nil || float64(found.Bavail)*float64(found.Bsize) < minMemory || os.Getenv("TORPOR_BENCH") != "" {
		return shortDir(t, network)
	}
	removeLeftovers(t)
	dir := filepath.Join(memory, dirPrefix+network)
	testenv.ExpectNoError(t, errors.Join(removeServersDir(dir), os.Mkdir(dir, 0o700)))
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// removeServersDir removes a folder of a test that was killed, and unmounts the volumes in it.
func removeServersDir(dir string) error {
	volumes, err := filepath.Glob(filepath.Join(dir, "[0-9]"))
	for _, volume := range volumes {
		_ = syscall.Unmount(volume, syscall.MNT_DETACH) // Most servers have no separate volume.
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// removeLeftovers removes the folders of killed tests, which are the folders whose network is free.
func removeLeftovers(t testing.TB) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(memory, dirPrefix+"127.*"))
	testenv.ExpectNoError(t, err)
	for _, dir := range dirs {
		if held, err := holdNetwork(t, strings.TrimPrefix(filepath.Base(dir), dirPrefix)); err == nil {
			_ = removeServersDir(dir) // The folder may belong to another user.
			_ = held.Close()
		}
	}
}

// shortDir returns a link, because the path of a socket has at most 107 bytes. The link is named after the test's
// own network, so an existing link is left over from a killed test.
func shortDir(t testing.TB, network string) string {
	t.Helper()
	link := filepath.Join(os.TempDir(), dirPrefix+network)
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	testenv.ExpectNoError(t, os.Symlink(t.TempDir(), link))
	t.Cleanup(func() {
		if err := os.Remove(link); err != nil {
			t.Error(err)
		}
	})
	return link
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	testenv.ExpectNoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// reserveNetwork finds a loopback network that no other test uses, and reserves it by listening on its last
// address.
func reserveNetwork(t testing.TB) string {
	t.Helper()
	for second := range 40 {
		network := fmt.Sprintf("127.%d.%d", 20+second, os.Getpid()%250)
		held, err := holdNetwork(t, network)
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = held.Close() }) // The listener only reserves the network.
		return network
	}
	t.Fatal("expected a free loopback network between 127.20 and 127.59, found them all in use: end other tests")
	return ""
}

func holdNetwork(t testing.TB, network string) (net.Listener, error) {
	t.Helper()
	var config net.ListenConfig
	return config.Listen(t.Context(), "tcp", network+".254:3306")
}

// buildConfig returns a server's my.cnf: the settings that clustering needs, and small sizes, so that three servers
// can run next to a build.
func (b *Installation) buildConfig(data, address string, id int) string {
	dir := filepath.Dir(data)
	lines := []string{
		"[mysqld]",
		"basedir=" + b.joinPath("usr"), "lc_messages_dir=" + b.joinPath("usr/share/mysql"),
		"character_sets_dir=" + b.joinPath("usr/share/mysql/charsets"), "plugin_dir=" + b.joinPath("usr/lib/mysql/plugin"),
		"datadir=" + data, "tmpdir=" + dir, "socket=" + filepath.Join(dir, "s"), "pid_file=" + filepath.Join(dir, "pid"),
		"secure_file_priv=NULL",
		"bind_address=" + address, "admin_address=" + address, "report_host=" + address,
		fmt.Sprintf("port=%d", Port), fmt.Sprintf("admin_port=%d", AdminPort), "mysqlx=OFF", fmt.Sprintf("server_id=%d", 100+id),
		"gtid_mode=ON", "enforce_gtid_consistency=ON", "log_bin=binlog", "log_replica_updates=ON", "relay_log=relay",
		"relay_log_recovery=OFF", "skip_replica_start=ON", "read_only=ON", "super_read_only=ON", "skip_name_resolve=ON",
		"plugin_load_add=semisync_source.so", "plugin_load_add=semisync_replica.so", "plugin_load_add=mysql_clone.so",
		"innodb_buffer_pool_size=8M", "innodb_redo_log_capacity=8M", "innodb_log_buffer_size=1M", "innodb_read_io_threads=1",
		"innodb_write_io_threads=1", "innodb_use_native_aio=0", "innodb_purge_threads=1", "innodb_page_cleaners=1",
		"max_connections=60", "table_open_cache=100", "table_definition_cache=400", "thread_cache_size=4", "max_binlog_size=1M",
		"host_cache_size=0", "key_buffer_size=16K", "temptable_max_ram=2M", "tmp_table_size=2M", "binlog_cache_size=4K",
		"replica_parallel_workers=1",
	}
	return strings.Join(append(lines, smallPerformanceSchema()...), "\n") + "\n"
}

// smallPerformanceSchema returns settings that disable all tables of the performance schema except those of
// replication.
func smallPerformanceSchema() []string {
	var lines []string
	for name := range strings.FieldsSeq(`max_digest_length digests_size max_sql_text_length error_size accounts_size hosts_size
		session_connect_attrs_size max_mutex_classes max_rwlock_classes max_cond_classes max_file_classes max_statement_classes
		max_stage_classes max_socket_classes max_memory_classes max_table_handles max_table_instances max_index_stat
		max_table_lock_stat max_prepared_statements_instances max_program_instances max_metadata_locks`) {
		lines = append(lines, "performance_schema_"+name+"=0")
	}
	for _, kind := range []string{"statements", "stages", "waits", "transactions"} {
		for _, size := range []string{"size", "long_size"} {
			lines = append(lines, "performance_schema_events_"+kind+"_history_"+size+"=0")
		}
	}
	return lines
}

// ServerPrograms holds the commands for tests that start servers themselves.
type ServerPrograms struct {
	// Command starts mysqld from the tree; options follow it.
	Command []string
	// Client is the command of the mysql client from the tree.
	Client []string
	// Options name the folders of the tree. Other options may precede them.
	Options []string
	// Network is the first three bytes of the test's own loopback addresses, for example 127.30.4.
	Network string
	// Dir is an empty folder with a short name.
	Dir string
}

// FindServerPrograms finds the programs. It skips the test if there are none.
func FindServerPrograms(t testing.TB) ServerPrograms {
	t.Helper()
	b := &Installation{tree: os.Getenv("TORPOR_MYSQL")}
	b.skipWithoutServer(t)
	network := reserveNetwork(t)
	options := []string{
		"--basedir=" + b.joinPath("usr"), "--lc-messages-dir=" + b.joinPath("usr/share/mysql"),
		"--character-sets-dir=" + b.joinPath("usr/share/mysql/charsets"), "--plugin-dir=" + b.joinPath("usr/lib/mysql/plugin"),
	}
	line := b.serverCommand()
	if last := len(line) - 1; line[last] == "--user=root" { // mysqld requires its defaults file as the first option.
		options, line = append(options, line[last]), line[:last]
	}
	return ServerPrograms{Command: line, Client: b.programCommand("usr/bin/mysql"), Options: options, Network: network, Dir: shortDir(t, network)}
}
