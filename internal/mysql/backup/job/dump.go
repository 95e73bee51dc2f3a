// SPDX-License-Identifier: Apache-2.0

package job

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
	// schemaSection begins the part of a dump that belongs to one schema. Data never begin a line with it, since line breaks
	// in data are written as \n.
	schemaSection = "-- Current Database: `"
	// maxHead bounds what comes before the first section: settings and the GTID set.
	maxHead = 16 << 20
	// maxComplaint is how much of a client's standard error is kept.
	maxComplaint = 2048
	// lineBuffer is for reading lines; those with data are longer and come in pieces.
	lineBuffer = 1 << 20
)

// dumpProcess is mysqldump while it runs. Reading it yields the SQL, and at the end an error if the program failed.
type dumpProcess struct {
	io.Reader

	// gtids are the transactions in the dump.
	gtids string

	cmd      *exec.Cmd
	cancel   context.CancelFunc
	errors   bytes.Buffer
	options  *optionFile
	reaped   bool
	reapedAs error
}

// startDump starts mysqldump and returns when its snapshot is taken, together with its GTID set.
func startDump(ctx context.Context, from *mysqlServer, password string, schemas []string) (*dumpProcess, error) {
	lock, err := lockWriters(ctx, from)
	if err != nil {
		return nil, err
	}
	d, err := startMysqldump(ctx, from, password, schemas)
	if err != nil {
		return nil, errors.Join(err, lock.unlock())
	}
	if err := lock.release(ctx); err != nil {
		d.stop()
		return nil, err
	}
	// The transactions of the dump are not written to the binary log of the instance that is filled: they become its gtid_purged.
	d.gtids = lock.gtids
	head := "SET @@SESSION.SQL_LOG_BIN = 0;\nSET @@GLOBAL.GTID_PURGED = /*!80000 '+'*/ '" + d.gtids + "';\n"
	d.Reader = io.MultiReader(strings.NewReader(head), d.Reader)
	return d, nil
}

// startMysqldump returns when the program has written the first section, for which it has a snapshot. The client that holds back
// writers does not wait for longer than LockTimeout.
func startMysqldump(ctx context.Context, from *mysqlServer, password string, schemas []string) (*dumpProcess, error) {
	options, err := writeOptionFile(from.host, BackupUser, password)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	d := &dumpProcess{cancel: cancel, options: options}
	d.cmd = clientCommand(ctx, "mysqldump", append([]string{options.defaultsFlag()}, dumpFlags(schemas)...))
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
			return nil, fmt.Errorf("expected mysqldump to begin within %s, found it slower: the instance %w", LockTimeout, errBusyInstance)
		}
		return nil, errors.Join(fmt.Errorf("read the head of the dump: %w", err), ended)
	}
	d.Reader = io.MultiReader(bytes.NewReader(head), lines)
	return d, nil
}

// dumpFlags leave out MySQL's own schemas: they belong to the server's version, and the accounts in them, of which some
// are this cluster's own, are kept beside the dump. Without any schema, one that every server has is named for its head.
func dumpFlags(schemas []string) []string {
	flags := []string{"--single-transaction", "--set-gtid-purged=OFF", "--hex-blob", "--no-tablespaces", "--default-character-set=utf8mb4"}
	if len(schemas) == 0 {
		return append(flags, "--no-create-db", "--no-create-info", "--no-data", "--skip-triggers", "--databases", "sys")
	}
	return append(append(flags, "--routines", "--events", "--triggers", "--databases"), schemas...)
}

// readHead reads up to the first section.
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
			return nil, fmt.Errorf("expected the section of a schema, found the end: %w", err)
		}
		if len(head) > maxHead {
			return nil, fmt.Errorf("expected the section of a schema within %d bytes, found none", maxHead)
		}
	}
}

// Read implements io.Reader. A dump ends with io.EOF only if mysqldump ended well.
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

// stop ends mysqldump if it still runs.
func (d *dumpProcess) stop() {
	d.cancel()
	_ = d.wait() // It was killed, so that its error says nothing.
}

// wait returns how mysqldump ended. Its words name objects, not data.
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

// compressedDump is a dump as it is stored. A goroutine compresses while the result is read.
type compressedDump struct {
	*io.PipeReader

	done chan struct{}
	end  context.CancelFunc
}

func (d *dumpProcess) startCompression() *compressedDump {
	r, w := io.Pipe()
	p := &compressedDump{PipeReader: r, done: make(chan struct{}), end: d.cancel}
	go func() {
		defer close(p.done)
		w.CloseWithError(compressStream(w, d))
	}()
	return p
}

func compressStream(to io.Writer, from io.Reader) error {
	packer, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return fmt.Errorf("prepare the compression: %w", err)
	}
	if _, err := io.Copy(packer, from); err != nil {
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

// loadDump feeds a dump to the client mysql. Its error has only MySQL's number and the line, because the words may hold data.
func loadDump(ctx context.Context, host, password string, packed io.Reader, schema string) (err error) {
	options, err := writeOptionFile(host, RestoreUser, password)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, options.removeFolder()) }()
	plain, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("decompress the dump: %w", err)
	}
	defer plain.Close()
	source := &readErrorRecorder{from: plain}
	var complaints bytes.Buffer
	cmd := clientCommand(ctx, "mysql", []string{options.defaultsFlag(), "--default-character-set=utf8mb4", "--max-allowed-packet=1G", "--batch"})
	cmd.Stdin, cmd.Stderr = source, &limitedBuffer{to: &complaints, left: maxComplaint}
	if schema != "" {
		cmd.Stdin = filterSchema(source, schema)
	}
	if err := cmd.Run(); err != nil {
		if source.err != nil {
			return fmt.Errorf("read the dump: %w", source.err)
		}
		return describeClientError(err, complaints.String(), "the dump")
	}
	return nil
}

// readErrorRecorder keeps the error with which a read ended: exec.Cmd returns that of the program instead.
type readErrorRecorder struct {
	from io.Reader
	err  error
}

// Read implements io.Reader.
func (c *readErrorRecorder) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		c.err = err
	}
	return n, err
}

// filterSchema leaves out the sections of all other schemas. What comes before the first, with the GTID set, stays.
func filterSchema(from io.Reader, schema string) io.Reader {
	r, w := io.Pipe()
	go func() { w.CloseWithError(copySections(w, bufio.NewReaderSize(from, lineBuffer), schema)) }()
	return r
}

func copySections(to io.Writer, from *bufio.Reader, schema string) error {
	// A line that is longer than the buffer comes in pieces, and only its first can begin a section.
	wanted, lineStart := true, true
	for {
		piece, err := from.ReadSlice('\n')
		if lineStart && bytes.HasPrefix(piece, []byte(schemaSection)) {
			name := strings.TrimSuffix(strings.TrimSpace(string(piece[len(schemaSection):])), "`")
			wanted = strings.ReplaceAll(name, "``", "`") == schema
		}
		lineStart = err == nil
		if wanted {
			if _, err := to.Write(piece); err != nil {
				return fmt.Errorf("pass on the dump: %w", err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read the dump: %w", err)
		}
	}
}

// clientWaitDelay is how long a client may take to end after its context.
const clientWaitDelay = 10 * time.Second

// clientCommand prepares one of MySQL's own programs, found on the PATH, in an environment without the password.
func clientCommand(ctx context.Context, name string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, backup.PasswordVariable+"=") })
	cmd.WaitDelay = clientWaitDelay
	return cmd
}

// optionFile holds the login of a client. Command lines can be read by every process, this file only by its owner.
type optionFile struct{ dir string }

func writeOptionFile(host, user, password string) (*optionFile, error) {
	dir, err := os.MkdirTemp("", "torpor-") // In a Pod that is memory.
	if err != nil {
		return nil, fmt.Errorf("make a folder for the client's options: %w", err)
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
		return nil, errors.Join(fmt.Errorf("write the client's options: %w", err), f.removeFolder())
	}
	return f, nil
}

func (f *optionFile) filePath() string { return filepath.Join(f.dir, "client.cnf") }

func (f *optionFile) authoritiesPath() string { return filepath.Join(f.dir, "ca.crt") }

// defaultsFlag must be the first of the client's flags. With it no other option file is read.
func (f *optionFile) defaultsFlag() string { return "--defaults-file=" + f.filePath() }

func (f *optionFile) removeFolder() error {
	if err := os.RemoveAll(f.dir); err != nil {
		return fmt.Errorf("remove the client's options: %w", err)
	}
	return nil
}
