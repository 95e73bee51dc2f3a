// SPDX-License-Identifier: Apache-2.0

package job

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/mysql/backup/binlog"
	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// headerReaders is how many segments are read at the same time.
const headerReaders = 8

// planReplay finds out what follows the dump, and which transactions are there after it.
func (o RestoreOptions) planReplay(ctx context.Context, s *storedBackup, namespace, name string) error {
	dump, err := gtid.Parse(s.status.GTIDSet)
	if err != nil {
		return fmt.Errorf("%s: %w", s.keys.Record, err)
	}
	began := o.Clock.Now()
	keys, err := s.from.ListKeys(ctx, backup.SegmentPrefix(namespace, name))
	if err != nil {
		return err
	}
	var shipped backup.ShippedState
	if slices.Contains(keys, backup.ShippedKey(namespace, name)) {
		if err := readJSONObject(ctx, s.from, backup.ShippedKey(namespace, name), &shipped); err != nil {
			return err
		}
	}
	segments, err := readSegmentHeaders(ctx, s.from, backup.SegmentKeysBetween(keys, s.status.Time.Time, o.Point))
	if err != nil {
		return err
	}
	want := backup.ReplayRequest{Dump: dump, Time: s.status.Time.Time, Point: o.Point, WantsNewest: o.Point.After(began)}
	if s.replay, err = backup.PlanReplay(want, segments, shipped); err != nil {
		return err
	}
	return o.cutReplay(ctx, s, dump)
}

// cutReplay finds out which transactions of the last segments were committed before the point.
func (o RestoreOptions) cutReplay(ctx context.Context, s *storedBackup, dump gtid.Set) error {
	s.gtids = dump
	for i, segment := range s.replay.Segments {
		wanted := segment.GTIDs
		if segment.Last.After(o.Point) {
			wanted = gtid.Set{}
			err := o.eachTransaction(ctx, s.from, segment, io.Discard, func(head binlog.TransactionHead, _ string) bool {
				wanted = wanted.Union(head.GTID)
				return false
			})
			if err != nil {
				return err
			}
			s.replay.Segments = s.replay.Segments[:i+1] // Nothing after the first transaction that came later.
		}
		s.gtids = s.gtids.Union(wanted)
		if i+1 == len(s.replay.Segments) {
			break
		}
	}
	return nil
}

func readSegmentHeaders(ctx context.Context, from bucket.Store, keys []string) ([]backup.StoredSegment, error) {
	all, errs := make([]backup.StoredSegment, len(keys)), make([]error, len(keys))
	var readers sync.WaitGroup
	turns := make(chan struct{}, headerReaders)
	for i, key := range keys {
		turns <- struct{}{}
		readers.Go(func() {
			header, err := readSegmentHeader(ctx, from, key)
			all[i], errs[i] = backup.StoredSegment{Key: key, SegmentHeader: header}, err
			<-turns
		})
	}
	readers.Wait()
	return all, errors.Join(errs...)
}

// eachTransaction calls visit for the transactions of a segment until the restore point, with the statement if the transaction is a
// single one, and writes those for which it returns true as a binary log.
func (o RestoreOptions) eachTransaction(ctx context.Context, from bucket.Store, segment backup.StoredSegment, to io.Writer, visit func(binlog.TransactionHead, string) bool) error {
	object, err := from.GetObject(ctx, segment.Key)
	if err != nil {
		return err
	}
	defer func() { _ = object.Close() }() // It was only read.
	plain, err := zstd.NewReader(object, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("decompress %s: %w", segment.Key, err)
	}
	defer plain.Close()
	if err := (&transactionFilter{from: bufio.NewReaderSize(plain, lineBuffer), to: to, wanted: segment.GTIDs, until: o.Point, visit: visit}).run(); err != nil {
		return fmt.Errorf("read %s: %w", segment.Key, err)
	}
	return nil
}

// transactionFilter passes transactions on, with what makes a binary log of them.
type transactionFilter struct {
	from io.Reader
	to   io.Writer
	// wanted are the transactions to pass on, and until is when the last of them was committed: the first other one ends it. The newest
	// segment is replaced by a longer one again and again, also after a restore has read its header.
	wanted      gtid.Set
	until       time.Time
	visit       func(binlog.TransactionHead, string) bool
	checksummed bool
}

func (f *transactionFilter) run() error {
	var magic [len(binlog.FileMagic)]byte
	if _, err := io.ReadFull(f.from, magic[:]); err != nil || string(magic[:]) != binlog.FileMagic {
		return fmt.Errorf("expected a binary log, found something else (%w)", err)
	}
	if _, err := f.to.Write(magic[:]); err != nil {
		return err
	}
	for {
		event, err := binlog.ReadEvent(f.from)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !event.BeginsTransaction() {
			f.checksummed = event.HasChecksums()
			if _, err := f.to.Write(event.Raw); err != nil {
				return err
			}
			continue
		}
		head, err := event.ParseTransactionHead()
		if err != nil {
			return err
		}
		if head.Committed.After(f.until) || !f.wanted.Contains(head.GTID) {
			return nil
		}
		if err := f.passTransaction(event, head); err != nil {
			return err
		}
	}
}

func (f *transactionFilter) passTransaction(first binlog.BinlogEvent, head binlog.TransactionHead) error {
	second, err := binlog.ReadEvent(f.from)
	if err != nil {
		return err
	}
	text := ""
	if second.EventType() == binlog.QueryEvent {
		text = second.QueryText(f.checksummed)
	}
	to := f.to
	if !f.visit(head, text) {
		to = io.Discard
	}
	if _, err := to.Write(slices.Concat(first.Raw, second.Raw)); err != nil {
		return err
	}
	_, err = io.CopyN(to, f.from, head.Size-int64(len(first.Raw)+len(second.Raw)))
	return err
}

// accountStatement begins a statement about accounts. Such a one is a transaction of its own.
var accountStatement = regexp.MustCompile(`(?is)^\s*(?:/\*.*?\*/\s*)*((?:create|alter|drop|rename)\s+(?:user|role)|grant|revoke|set\s+(?:password|default\s+role))\b`)

// unrestoredAccount finds a name of listUnrestoredNames with its host, unrestoredName also one that stands alone, as it may where the server
// writes a statement into the binary log as it came.
var (
	unrestoredAccount = regexp.MustCompile(unrestoredPattern() + `\s*@`)
	unrestoredName    = regexp.MustCompile(unrestoredPattern() + `(?:[\s@,;]|$)`)
)

func unrestoredPattern() string {
	var names []string
	for _, name := range listUnrestoredNames() {
		names = append(names, "'"+name+"'", "`"+name+"`", `"`+name+`"`, name)
	}
	return `[\s,](?:` + strings.Join(names, "|") + `)`
}

// isLeftOut says whether a statement is not repeated: one about accounts that no backup has, or about any if only some were to be restored.
func (o RestoreOptions) isLeftOut(statement string) bool {
	found := accountStatement.FindStringSubmatchIndex(statement)
	if found == nil || len(o.Users) > 0 {
		return found != nil
	}
	// CREATE USER and ALTER USER have every host in the binary log, and comments, which may be such a name.
	if words := strings.ToLower(statement[found[2]:found[3]]); strings.HasSuffix(words, "user") && (strings.HasPrefix(words, "create") || strings.HasPrefix(words, "alter")) {
		return unrestoredAccount.MatchString(statement[found[3]:])
	}
	return unrestoredName.MatchString(statement[found[3]:])
}

// replayBinlogs applies what was committed between the dump and the restore point.
func (o RestoreOptions) replayBinlogs(ctx context.Context, t restoreTarget, from storedBackup) error {
	for _, segment := range from.replay.Segments {
		if err := o.replaySegment(ctx, t, from.from, segment); err != nil {
			return err
		}
	}
	executed, err := t.executedGTIDs(ctx)
	if err != nil {
		return err
	}
	there, err := gtid.Parse(executed)
	if err != nil {
		return fmt.Errorf("read the GTID set: %w", err)
	}
	// What was left out on purpose counts as executed, so that the instance has what its source had.
	if left := from.gtids.Subtract(there); !left.IsEmpty() {
		if o.Schema == "" {
			o.Log.Info("Left out, because they are about accounts of the cluster's own or about those that were not wanted", "gtids", left.String())
		}
		if err := t.execStatement(ctx, "set global gtid_purged = concat('+', ?)", left.String()); err != nil {
			return fmt.Errorf("count transactions as executed: MySQL %s", describeError(err))
		}
	}
	executed, err = t.executedGTIDs(ctx)
	if err != nil {
		return err
	}
	if same, err := t.areEqualGTIDSets(ctx, executed, from.gtids.String()); err != nil || !same {
		return errors.Join(err, fmt.Errorf("expected the transactions %q after the binary logs, found %q", from.gtids, executed))
	}
	return nil
}

// replaySegment feeds a segment to mysqlbinlog, and what that makes of it to mysql. The server skips what it has executed.
func (o RestoreOptions) replaySegment(ctx context.Context, t restoreTarget, from bucket.Store, segment backup.StoredSegment) (err error) {
	options, err := writeOptionFile(t.host, RestoreUser, o.Password)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, options.removeFolder()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, feed := io.Pipe()
	var readErr error
	var reading sync.WaitGroup
	reading.Go(func() {
		readErr = o.eachTransaction(ctx, from, segment, feed, func(_ binlog.TransactionHead, statement string) bool { return !o.isLeftOut(statement) })
		feed.CloseWithError(readErr)
	})
	defer func() {
		_ = events.Close() // It lets the reader end.
		reading.Wait()
	}()
	decodeFlags := []string{"--no-defaults"}
	if o.Schema != "" {
		decodeFlags = append(decodeFlags, "--database="+o.Schema)
	}
	decode := clientCommand(ctx, "mysqlbinlog", append(decodeFlags, "-"))
	apply := clientCommand(ctx, "mysql", []string{options.defaultsFlag(), "--default-character-set=utf8mb4", "--max-allowed-packet=1G", "--batch", "--binary-mode"})
	var decodeComplaints, applyComplaints bytes.Buffer
	decode.Stdin, decode.Stderr = events, &limitedBuffer{to: &decodeComplaints, left: maxComplaint}
	apply.Stderr = &limitedBuffer{to: &applyComplaints, left: maxComplaint}
	if apply.Stdin, err = decode.StdoutPipe(); err != nil {
		return fmt.Errorf("prepare mysqlbinlog: %w", err)
	}
	if err := decode.Start(); err != nil {
		return fmt.Errorf("start mysqlbinlog: %w", err)
	}
	applyErr := apply.Run()
	if applyErr != nil {
		cancel()
	}
	decodeErr := decode.Wait()
	_ = events.Close() // mysqlbinlog has ended.
	reading.Wait()
	switch {
	case applyErr != nil:
		return describeClientError(applyErr, applyComplaints.String(), segment.Key)
	case readErr != nil:
		return readErr
	case decodeErr != nil:
		return fmt.Errorf("mysqlbinlog: %w: %s", decodeErr, strings.TrimSpace(decodeComplaints.String()))
	}
	return nil
}

// describeClientError has only MySQL's number and the line, because the words may hold data.
func describeClientError(err error, complaint, what string) error {
	found := regexp.MustCompile(`ERROR (\d+).*? at line (\d+)`).FindStringSubmatch(complaint)
	if found == nil {
		return fmt.Errorf("mysql: %w", err)
	}
	return fmt.Errorf("mysql: %w: MySQL's error %s at line %s of %s", err, found[1], found[2], what)
}
