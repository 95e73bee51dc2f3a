// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/internal/mysql/backup/binlogparser"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

const (
	// streamPoll is the poll interval for a file whose next event is incomplete.
	streamPoll = 50 * time.Millisecond
	// firstServerID is above the server IDs of all instances, because two replicas with the same ID disconnect each
	// other.
	firstServerID = 1 << 31
	streamBuffer  = 64 << 10
)

// binlogStream is a running mysqlbinlog process that copies the binary logs of an instance into files, and the reader
// of these files.
type binlogStream struct {
	cmd      *exec.Cmd
	cancel   context.CancelFunc
	errors   bytes.Buffer
	options  *optionFile
	dir      string
	exited   chan struct{}
	exitedAs error

	file   *os.File
	reader *bufio.Reader
	// offset is the position of the next event to read.
	offset int64
	// peeked is the event at the offset, if it was already read.
	peeked *binlogparser.BinlogEvent
	// format is the most recent FormatEvent.
	format binlogparser.BinlogEvent
}

// startStream starts to copy every transaction that is not in without. The server finds the first binary log to send,
// and returns an error if it has purged one of these transactions.
func startStream(ctx context.Context, host, password, dir string, without gtid.Set) (*binlogStream, error) {
	options, err := writeOptionFile(host, BackupUser, password)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &binlogStream{cancel: cancel, options: options, dir: dir, exited: make(chan struct{})}
	s.cmd = clientCommand(ctx, "mysqlbinlog", []string{
		options.defaultsFlag(), "--raw", "--stop-never", "--read-from-remote-source=BINLOG-DUMP-GTIDS", "--exclude-gtids=" + without.String(),
		fmt.Sprintf("--connection-server-id=%d", randomServerID()), "--result-file=" + dir + string(filepath.Separator), "",
	})
	s.cmd.Stderr = &limitedBuffer{to: &s.errors, left: maxComplaint}
	if err := s.cmd.Start(); err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("start mysqlbinlog: %w", err), options.removeFolder())
	}
	go func() {
		defer close(s.exited)
		s.exitedAs = s.cmd.Wait()
	}()
	return s, nil
}

func randomServerID() uint32 {
	var bytes [4]byte
	_, _ = rand.Read(bytes[:]) // Read never fails.
	return firstServerID | binary.LittleEndian.Uint32(bytes[:])
}

// stop kills mysqlbinlog and removes its credentials.
func (s *binlogStream) stop() error {
	s.cancel()
	<-s.exited
	var err error
	if s.file != nil {
		err = s.file.Close()
	}
	return errors.Join(err, s.options.removeFolder())
}

// peekTransaction returns the head of the next transaction without consuming it. The second result is false if the
// transaction has not arrived yet.
func (s *binlogStream) peekTransaction() (binlogparser.TransactionHead, bool, error) {
	for {
		event, ok, err := s.peekEvent()
		if err != nil || !ok {
			return binlogparser.TransactionHead{}, false, err
		}
		if event.BeginsTransaction() {
			head, err := event.ParseTransactionHead()
			return head, err == nil, err
		}
		if event.EventType() == binlogparser.FormatEvent {
			s.format = event
		}
		s.takeEvent(event)
	}
}

func (s *binlogStream) takeEvent(event binlogparser.BinlogEvent) {
	s.offset, s.peeked = s.offset+int64(len(event.Raw)), nil
}

// copyTransaction consumes the next transaction, and waits until it is complete.
func (s *binlogStream) copyTransaction(ctx context.Context, to io.Writer, size int64) error {
	for size > 0 {
		event, ok, err := s.peekEvent()
		if err != nil {
			return err
		}
		if !ok {
			if err := s.wait(ctx); err != nil {
				return err
			}
			continue
		}
		if _, err := to.Write(event.Raw); err != nil {
			return fmt.Errorf("write a transaction: %w", err)
		}
		s.takeEvent(event)
		size -= int64(len(event.Raw))
	}
	if size < 0 {
		return errors.New("expected a transaction to end with an event, found a longer event; inspect the binary log with mysqlbinlog")
	}
	return nil
}

// wait waits for the next poll. It returns an error if mysqlbinlog has exited.
func (s *binlogStream) wait(ctx context.Context) error {
	timer := time.NewTimer(streamPoll)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.exited:
		// The messages of mysqlbinlog contain GTIDs, but no data.
		return fmt.Errorf("mysqlbinlog: %w: %s", cmp.Or(s.exitedAs, io.ErrUnexpectedEOF), strings.TrimSpace(s.errors.String()))
	}
}

// peekEvent reads the event at the offset. The second result is false if the event has not arrived yet.
func (s *binlogStream) peekEvent() (binlogparser.BinlogEvent, bool, error) {
	if s.peeked != nil {
		return *s.peeked, true, nil
	}
	if s.file == nil {
		if opened, err := s.openNext(""); err != nil || !opened {
			return binlogparser.BinlogEvent{}, false, err
		}
	}
	event, err := binlogparser.ReadEvent(s.reader)
	switch {
	case err == nil:
		s.peeked = &event
		return event, true, nil
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return event, false, fmt.Errorf("read the binary log: %w", err)
	}
	current := s.file.Name()
	if err := s.rewind(); err != nil {
		return event, false, err
	}
	opened, err := s.openNext(filepath.Base(current))
	if err != nil || !opened {
		return event, false, err
	}
	if err := os.Remove(current); err != nil {
		return event, false, fmt.Errorf("remove a binary log that was read: %w", err)
	}
	return s.peekEvent()
}

// openNext opens the file after one that was read to its end. It returns false if there is no next file or the previous
// one has more events.
func (s *binlogStream) openNext(after string) (bool, error) {
	name, err := s.findNext(after)
	if err != nil || name == "" {
		return false, err
	}
	if s.file != nil {
		// The file was complete when the next file was started, so its size is final.
		info, err := s.file.Stat()
		if err != nil || info.Size() > s.offset {
			return false, err
		}
	}
	file, err := os.Open(filepath.Join(s.dir, name))
	if err != nil {
		return false, fmt.Errorf("open a binary log: %w", err)
	}
	info, err := file.Stat()
	if err != nil || info.Size() < int64(len(binlogparser.FileMagic)) {
		return false, errors.Join(err, file.Close())
	}
	if s.file != nil {
		err = s.file.Close()
	}
	s.file, s.offset, s.reader = file, int64(len(binlogparser.FileMagic)), bufio.NewReaderSize(file, streamBuffer)
	return true, errors.Join(err, s.rewind())
}

// findNext returns the name of the file with the next number, or "" if there is no such file.
func (s *binlogStream) findNext(after string) (string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return "", fmt.Errorf("list binary logs: %w", err)
	}
	compare := func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }
	var names []string
	for _, e := range entries {
		if after == "" || compare(e.Name(), after) > 0 {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return "", nil
	}
	return slices.MinFunc(names, compare), nil
}

// rewind makes the next read start at the offset.
func (s *binlogStream) rewind() error {
	if _, err := s.file.Seek(s.offset, io.SeekStart); err != nil {
		return fmt.Errorf("read the binary log again: %w", err)
	}
	s.reader.Reset(s.file)
	return nil
}
