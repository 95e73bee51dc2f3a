// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/torpor-dev/torpor/internal/mysql/backup"
)

const (
	// schemaSection begins the part of a dump for one schema. No line with data begins with this text, because line
	// breaks in data are written as \n.
	schemaSection = "-- Current Database: `"
	// maxHead limits the size of the head before the first section: settings and the GTID set.
	maxHead = 16 << 20
	// maxComplaint limits how much of a client's standard error is kept.
	maxComplaint = 2048
	// lineBuffer is the size of the buffer for reading lines. Longer lines, which contain data, are read in pieces.
	lineBuffer = 1 << 20
)

// dumpProcess is a running mysqldump. Reading it yields the SQL, and at the end an error if the program failed.
type dumpProcess struct {
	io.Reader

	// gtids are the transactions in the dump.
	gtids   string
	readers *snapshotReaders

	cmd      *exec.Cmd
	cancel   context.CancelFunc
	errors   bytes.Buffer
	options  *optionFile
	reaped   bool
	reapedAs error
}

// snapshotReaders are the sessions with the same snapshot as mysqldump.
type snapshotReaders struct {
	counter *rowCounter
	// floats is nil if no table has FLOAT columns.
	floats *floatRows
}

func openSnapshotReaders(ctx context.Context, s *mysqlServer, what serverInventory) (*snapshotReaders, error) {
	session, err := openSnapshotSession(ctx, s)
	if err != nil {
		return nil, err
	}
	r := &snapshotReaders{counter: &rowCounter{snapshotSession: session}}
	if len(what.floats) == 0 {
		return r, nil
	}
	if r.floats, err = openFloatRows(ctx, s, what); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

// takeSnapshots takes the snapshots of the tables. The caller must hold the writers' lock.
func (r *snapshotReaders) takeSnapshots(ctx context.Context, tables []string) error {
	r.counter.tables = tables
	if err := r.counter.takeSnapshot(ctx); err != nil || r.floats == nil {
		return err
	}
	return r.floats.takeSnapshot(ctx)
}

func (r *snapshotReaders) dumpFlags() []string {
	if r.floats == nil {
		return nil
	}
	return []string{"--where=" + r.floats.mark}
}

// copyDump copies the output of mysqldump.
func (r *snapshotReaders) copyDump(ctx context.Context, to io.Writer, from io.Reader) error {
	if r.floats != nil {
		return r.floats.copyDump(ctx, to, from)
	}
	_, err := io.Copy(to, from)
	return err
}

// stop closes the sessions.
func (r *snapshotReaders) stop() error {
	err := r.counter.stop()
	if r.floats != nil {
		err = errors.Join(err, closeSession(r.floats.Conn))
	}
	return err
}

// startDump starts mysqldump and returns it with its GTID set as soon as its snapshot is taken.
func startDump(ctx context.Context, from *mysqlServer, password string, what serverInventory) (*dumpProcess, error) {
	readers, err := openSnapshotReaders(ctx, from, what)
	if err != nil {
		return nil, err
	}
	lock, err := lockWriters(ctx, from)
	if err != nil {
		return nil, errors.Join(err, readers.stop())
	}
	if err := readers.takeSnapshots(ctx, lock.tables); err != nil {
		return nil, errors.Join(err, readers.stop(), lock.unlock())
	}
	d, err := startMysqldump(ctx, from, password, append(readers.dumpFlags(), dumpFlags(what)...))
	if err != nil {
		return nil, errors.Join(err, readers.stop(), lock.unlock())
	}
	d.readers = readers
	if err := lock.release(ctx); err != nil {
		d.stop()
		return nil, err
	}
	// The GTIDs of the dump become gtid_purged of the restored instance; they are not written to its binary log.
	d.gtids = lock.gtids
	head := "SET @@SESSION.SQL_LOG_BIN = 0;\nSET @@GLOBAL.GTID_PURGED = /*!80000 '+'*/ '" + d.gtids + "';\n"
	d.Reader = io.MultiReader(strings.NewReader(head), d.Reader)
	return d, nil
}

// startMysqldump returns when mysqldump has reached the first section, before which it takes its snapshot. It fails
// after LockTimeout, because writers are blocked until it returns.
func startMysqldump(ctx context.Context, from *mysqlServer, password string, flags []string) (*dumpProcess, error) {
	options, err := writeOptionFile(from.host, BackupUser, password)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	d := &dumpProcess{cancel: cancel, options: options}
	d.cmd = clientCommand(ctx, "mysqldump", append([]string{options.defaultsFlag(), initFlag(readingSession)}, flags...))
	d.cmd.Stderr = &limitedBuffer{to: &d.errors, left: maxComplaint}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare mysqldump: %w", err), options.removeFolder())
	}
	if err := d.cmd.Start(); err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("start mysqldump: %w", err), options.removeFolder())
	}
	lines := bufio.NewReaderSize(out, lineBuffer)
	late := time.AfterFunc(LockTimeout, cancel)
	head, err := readHead(lines)
	if inTime := late.Stop(); err != nil || !inTime {
		cancel()
		ended := d.wait()
		if !inTime {
			return nil, fmt.Errorf("start mysqldump within %s: %w", LockTimeout, errBusyInstance)
		}
		return nil, errors.Join(fmt.Errorf("read the head of the dump: %w", err), ended)
	}
	d.Reader = io.MultiReader(bytes.NewReader(head), lines)
	return d, nil
}

// dumpFlags returns flags that exclude MySQL's own schemas, which depend on the server's version. The accounts in these
// schemas are stored next to the dump, because some are specific to this cluster. If there is no schema to dump, the
// flags select the schema sys without its contents, so mysqldump writes the head of the dump.
func dumpFlags(what serverInventory) []string {
	flags := []string{"--single-transaction", "--set-gtid-purged=OFF", "--hex-blob", "--no-tablespaces", "--default-character-set=utf8mb4"}
	if len(what.Schemas) == 0 {
		return append(flags, "--no-create-db", "--no-create-info", "--no-data", "--skip-triggers", "--databases", "sys")
	}
	flags = append(flags, ignoreFlags(what.broken)...)
	// After two dashes, mysqldump does not parse the name of a schema as an option.
	return append(append(flags, "--routines", "--events", "--triggers", "--databases", "--"), what.Schemas...)
}

// readHead reads the dump up to the first section.
func readHead(from *bufio.Reader) ([]byte, error) {
	var head []byte
	for {
		next, err := from.Peek(len(schemaSection))
		if err == nil && string(next) == schemaSection {
			return head, nil
		}
		line, err := from.ReadBytes('\n')
		head = append(head, line...)
		if err != nil {
			return nil, fmt.Errorf("expected the section of a schema, found the end of the dump: %w", err)
		}
		if len(head) > maxHead {
			return nil, fmt.Errorf("expected the section of a schema within %d bytes, found none", maxHead)
		}
	}
}

// Read implements io.Reader. A dump ends with io.EOF only if mysqldump succeeded.
func (d *dumpProcess) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if failure := d.wait(); failure != nil {
		return n, failure
	}
	return n, io.EOF
}

// stop kills mysqldump if it is still running, and closes the sessions with its snapshot.
func (d *dumpProcess) stop() {
	d.cancel()
	_ = d.wait()         // mysqldump was killed, so its error is expected.
	_ = d.readers.stop() // The server ends the sessions in any case.
}

// wait waits for mysqldump to exit and returns its error. The messages of mysqldump contain names of objects, but no
// data.
func (d *dumpProcess) wait() error {
	if d.reaped {
		return d.reapedAs
	}
	d.reaped = true
	err := d.cmd.Wait()
	if err != nil {
		err = fmt.Errorf("mysqldump: %w: %s", err, strings.TrimSpace(d.errors.String()))
	}
	d.reapedAs = errors.Join(err, d.options.removeFolder())
	d.cancel()
	return d.reapedAs
}

// compressedDump is a dump in its stored form. A goroutine compresses the dump while it is read.
type compressedDump struct {
	*io.PipeReader

	done chan struct{}
	end  context.CancelFunc
}

func (d *dumpProcess) startCompression(ctx context.Context) *compressedDump {
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	p := &compressedDump{PipeReader: r, done: make(chan struct{}), end: func() { cancel(); d.cancel() }}
	go func() {
		defer close(p.done)
		w.CloseWithError(d.compress(ctx, w))
	}()
	return p
}

func (d *dumpProcess) compress(ctx context.Context, to io.Writer) error {
	packer, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return fmt.Errorf("prepare the compression: %w", err)
	}
	if err := d.readers.copyDump(ctx, packer, d); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	return packer.Close()
}

// Close ends the dump and returns when its goroutine has ended.
func (p *compressedDump) Close() error {
	err := p.PipeReader.Close()
	p.end()
	<-p.done
	return err
}

// limitedBuffer keeps the first bytes that are written to it.
type limitedBuffer struct {
	to   *bytes.Buffer
	left int
}

// Write implements io.Writer.
func (l *limitedBuffer) Write(p []byte) (int, error) {
	n := min(len(p), l.left)
	l.to.Write(p[:n])
	l.left -= n
	return len(p), nil
}

// clientWaitDelay is how long a client may take to exit after its context ended.
const clientWaitDelay = 10 * time.Second

// clientCommand prepares one of MySQL's programs, found on the PATH, in an environment without the password.
func clientCommand(ctx context.Context, name string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, backup.PasswordVariable+"=") })
	cmd.WaitDelay = clientWaitDelay
	return cmd
}

// optionFile is the option file with the credentials of a client. Every process can read command lines, but only the
// owner can read this file.
type optionFile struct{ dir string }

func writeOptionFile(host, user, password string) (*optionFile, error) {
	dir, err := os.MkdirTemp("", "torpor-") // In a Pod this folder is in memory.
	if err != nil {
		return nil, fmt.Errorf("create a folder for the client's option file: %w", err)
	}
	f := &optionFile{dir}
	var text strings.Builder
	text.WriteString("[client]\nget-server-public-key\n")
	for _, option := range [][2]string{
		{"host", host}, {"port", strconv.Itoa(adminPort)}, {"user", user}, {"password", password}, {"protocol", "tcp"},
	} {
		fmt.Fprintf(&text, "%s=\"%s\"\n", option[0], strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(option[1]))
	}
	authorities := os.Getenv(backup.AuthoritiesVariable)
	if authorities != "" {
		fmt.Fprintf(&text, "ssl-mode=VERIFY_IDENTITY\nssl-ca=\"%s\"\n", f.authoritiesPath())
	}
	err = errors.Join(os.WriteFile(f.filePath(), []byte(text.String()), 0o600), os.WriteFile(f.authoritiesPath(), []byte(authorities), 0o600))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write the client's option file: %w", err), f.removeFolder())
	}
	return f, nil
}

func (f *optionFile) filePath() string { return filepath.Join(f.dir, "client.cnf") }

func (f *optionFile) authoritiesPath() string { return filepath.Join(f.dir, "ca.crt") }

// defaultsFlag must be the client's first flag. With it the client reads no other option file.
func (f *optionFile) defaultsFlag() string { return "--defaults-file=" + f.filePath() }

func (f *optionFile) removeFolder() error {
	if err := os.RemoveAll(f.dir); err != nil {
		return fmt.Errorf("remove the client's option file: %w", err)
	}
	return nil
}
