// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
)

const (
	// stopTimeout is how long a process may take to end after SIGTERM. At a load of 20, a mysqld needs more than 20
	// s.
	stopTimeout = 2 * time.Minute
	// pipeTimeout limits the wait for grandchildren that keep the output open.
	pipeTimeout = 5 * time.Second
)

// Process is a program that ends with the test, even if the test is killed. Its output is shown if the test fails.
type Process struct {
	// Name is the name of the program's file.
	Name string

	cmd    *exec.Cmd
	output LogBuffer
	done   chan struct{}
}

// StartProcess starts a program. env, as "NAME=value", is added to the test's own environment. The changes are
// applied to the command last.
func StartProcess(t testing.TB, path string, args, env []string, changes ...func(*exec.Cmd)) *Process {
	t.Helper()
	// The test's context ends before its cleanups, which stop the process gracefully.
	ctx := context.WithoutCancel(t.Context())
	p := &Process{Name: filepath.Base(path), cmd: exec.CommandContext(ctx, path, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.SysProcAttr, p.cmd.WaitDelay = dieWithParent(), pipeTimeout
	for _, change := range changes {
		change(p.cmd)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", p.Name, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // LastOutput and ExitCode show how the process ended.
	}()
	t.Cleanup(func() {
		p.Stop(t)
		if t.Failed() {
			t.Logf("%s %s ended its output with:\n%s", p.Name, strings.Join(args, " "), p.output.LastLines(shownLines))
		}
	})
	return p
}

// KillAtOnce kills the process and returns when it is gone.
func (p *Process) KillAtOnce(t testing.TB) {
	t.Helper()
	p.sendSignal(t, syscall.SIGKILL)
	<-p.done
}

// Stop sends SIGTERM, and returns when the process is gone. It is not an error if the process has already ended.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	p.sendSignal(t, syscall.SIGTERM)
	deadline := time.NewTimer(stopTimeout)
	defer deadline.Stop()
	select {
	case <-p.done:
	case <-deadline.C:
		t.Errorf("%s did not end within %s after SIGTERM; it is killed", p.Name, stopTimeout)
		p.KillAtOnce(t)
	}
}

// ExitChannel returns a channel that is closed when the process has ended.
func (p *Process) ExitChannel() <-chan struct{} { return p.done }

// ExitCode waits until the process has ended, and returns its exit code, or -1 if it was killed.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// LastOutput returns what the process has written to stdout and stderr so far.
func (p *Process) LastOutput() string { return p.output.String() }

// WaitForLine waits for a line that starts with the prefix and returns the rest of it, without surrounding spaces.
func (p *Process) WaitForLine(t testing.TB, prefix string) string {
	t.Helper()
	var rest string
	Eventually(t, fmt.Sprintf("%s prints %q", p.Name, prefix), func() error {
		var isThere bool
		if rest, isThere = p.findLine(prefix); isThere {
			return nil
		}
		select {
		case <-p.done:
			t.Fatalf("%s ended with code %d before it printed %q", p.Name, p.ExitCode(), prefix)
		default:
		}
		return errors.New("not yet")
	})
	return rest
}

// findLine returns the rest of the first line that starts with a prefix.
func (p *Process) findLine(prefix string) (rest string, isThere bool) {
	for line := range strings.Lines(p.LastOutput()) {
		found, ok := strings.CutPrefix(line, prefix)
		// A line without a line break may be incomplete.
		if ok && strings.HasSuffix(line, "\n") {
			return strings.TrimSpace(found), true
		}
	}
	return "", false
}

func (p *Process) sendSignal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("send %s to %s: %v", s, p.Name, err)
	}
}

// Credentials of the S3 server.
const (
	s3AccessKey = "torpor-test"
	s3SecretKey = "torpor-test-secret-key"
)

// S3Bucket is the initial bucket of the S3 server.
const S3Bucket = "backups"

// S3Server is a real S3 server with one bucket, whose objects are in a folder.
type S3Server struct {
	*Process
	// URL is the address of the server, which expects the bucket's name in the path.
	URL string
	// Folder holds the objects of the bucket as files.
	Folder string
	// AccessKey and SecretKey are the credentials.
	AccessKey, SecretKey string
}

// StartS3 starts a real S3 server and passes its credentials to the test in the environment, as in a Pod. The
// program is versitygw, whose path is in the environment variable TORPOR_S3. If that is not set, the test is
// skipped.
func StartS3(t testing.TB) *S3Server {
	t.Helper()
	return StartS3At(t, "127.0.0.1")
}

// StartS3At starts an S3 server that listens on the address ip, for clients that can reach the machine only there.
func StartS3At(t testing.TB, ip string) *S3Server {
	t.Helper()
	path := os.Getenv("TORPOR_S3")
	if path == "" {
		t.Skip("TORPOR_S3 is not set: expected the path of versitygw; build it with `make s3`, run with `make test`")
	}
	root := t.TempDir()
	s := &S3Server{Folder: filepath.Join(root, "data", S3Bucket), AccessKey: s3AccessKey, SecretKey: s3SecretKey}
	for _, dir := range []string{s.Folder, filepath.Join(root, "metadata")} {
		ExpectNoError(t, os.MkdirAll(dir, 0o750))
	}
	address := freeAddress(t, ip)
	s.URL = "http://" + address
	s.Process = StartProcess(t, path, []string{
		"--port", address, "--quiet", "posix", "--sidecar", filepath.Join(root, "metadata"), filepath.Join(root, "data"),
	}, []string{"ROOT_ACCESS_KEY=" + s.AccessKey, "ROOT_SECRET_KEY=" + s.SecretKey})
	Eventually(t, "the S3 server accepts connections", func() error {
		var dialer net.Dialer
		c, err := dialer.DialContext(t.Context(), "tcp", address)
		if err != nil {
			return fmt.Errorf("dial: %w", err)
		}
		return c.Close()
	})
	s.SetCredentials(t, s.AccessKey, s.SecretKey)
	return s
}

// SetCredentials puts credentials into the test's environment.
func (s *S3Server) SetCredentials(t testing.TB, access, secret string) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", access)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

// shownLines is how many lines of a log are shown if the test fails.
const shownLines = 40

// LogBuffer is a log that can be read while it is written. The zero value is an empty log.
type LogBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *LogBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns everything written so far.
func (l *LogBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// LastLines returns the last n lines written so far.
func (l *LogBuffer) LastLines(n int) string {
	lines := slices.Collect(strings.Lines(l.String()))
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// Logger returns a logger that writes into the buffer, up to a verbosity.
func (l *LogBuffer) Logger(verbosity int) logr.Logger {
	write := func(prefix, args string) { fmt.Fprintln(l, prefix, args) }
	return funcr.New(write, funcr.Options{Verbosity: verbosity, LogTimestamp: true})
}

// StructuredLogger returns a logger of the standard library that writes into the buffer, including debug
// messages.
func (l *LogBuffer) StructuredLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// ShowOnFailure shows the end of the log if the test fails.
func (l *LogBuffer) ShowOnFailure(t testing.TB, name string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s ended its output with:\n%s", name, l.LastLines(shownLines))
		}
	})
}

// ExpectWithout fails the test at its end if the log then contains a secret. The message does not repeat the secret.
func (l *LogBuffer) ExpectWithout(t testing.TB, secrets ...string) {
	t.Helper()
	t.Cleanup(func() {
		text := l.String()
		for i, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("expected no secret in the log, found number %d of those to look for", i)
			}
		}
	})
}

// SaveFigures logs the results of a benchmark, and writes them as JSON into the folder in TORPOR_BENCH_DIR, if set.
func SaveFigures(t testing.TB, name string, figures any) {
	t.Helper()
	text, err := json.MarshalIndent(figures, "", "  ")
	ExpectNoError(t, err)
	t.Logf("%s:\n%s", name, text)
	if dir := os.Getenv("TORPOR_BENCH_DIR"); dir != "" {
		ExpectNoError(t, os.MkdirAll(dir, 0o750))
		ExpectNoError(t, os.WriteFile(filepath.Join(dir, name), append(text, '\n'), 0o600))
	}
}

// MergeFigures is like SaveFigures, for several benchmarks that share a file. It keeps the results of the other
// benchmarks, and returns all results.
func MergeFigures[T any](t testing.TB, name string, figures map[string]T) map[string]T {
	t.Helper()
	all := map[string]T{}
	text, err := os.ReadFile(filepath.Join(os.Getenv("TORPOR_BENCH_DIR"), name))
	if err == nil {
		ExpectNoError(t, json.Unmarshal(text, &all))
	}
	maps.Copy(all, figures)
	SaveFigures(t, name, all)
	return all
}
