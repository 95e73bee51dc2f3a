// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/mysql/backup/binlogparser"
	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// headerReaders is the number of segments that are read concurrently.
const headerReaders = 8

// planReplay determines the binary logs that follow the dump, and the set of transactions after applying them.
func (o RestoreOptions) planReplay(ctx context.Context, s *storedBackup, namespace, name string) error {
	dump, err := gtid.Parse(s.status.GTIDSet)
	if err != nil {
		return fmt.Errorf("%s: %w", s.keys.Record, err)
	}
	if o.Schema != "" && o.Point.Equal(s.status.Time.Time) {
		// The time of a backup is the time of its snapshot, rounded up to a full second. Binary logs may contain
		// commits between the two times. This restore ignores them, and restores the dump alone.
		s.gtids, s.replay = dump, backup.ReplayPlan{Reached: s.status.Time.Time}
		return nil
	}
	if s.keys.Moco != nil && s.keys.Moco.Binlogs != "" {
		err = o.planMocoReplay(ctx, s, dump)
	} else {
		err = o.planSegmentReplay(ctx, s, dump, namespace, name)
	}
	if err != nil {
		return err
	}
	if err := o.cutReplay(ctx, s, dump); err != nil {
		return err
	}
	return o.planReplayOfSchema(ctx, s, dump)
}

// planSegmentReplay plans to apply the segments that Torpor has shipped.
func (o RestoreOptions) planSegmentReplay(ctx context.Context, s *storedBackup, dump gtid.Set, namespace, name string) error {
	began := o.Clock.Now()
	keys, err := bucket.ListKeys(ctx, s.from, backup.SegmentPrefix(namespace, name))
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
	s.replay, err = backup.PlanReplay(want, segments, shipped)
	return err
}

// planReplayOfSchema reads the binary logs for a restore of one schema before anything is written. It refuses binary
// logs that cannot be separated by schema, and collects the schemas that have to exist while they are applied.
func (o RestoreOptions) planReplayOfSchema(ctx context.Context, s *storedBackup, dump gtid.Set) error {
	if o.Schema == "" {
		return nil
	}
	if s.gtids.Equal(dump) {
		s.replay.Segments = nil // The dump contains their transactions up to the restore point.
		return nil
	}
	filter, logs := o.newSchemaFilter(), &logReader{from: s.from}
	defer logs.close()
	for _, segment := range s.replay.Segments {
		err := o.copyTransactions(ctx, logs, segment, transactionFilter{to: io.Discard, schema: filter, dumped: dump})
		if _, isInseparable := errors.AsType[*binlogparser.InseparableError](err); isInseparable {
			return &RefusedError{fmt.Errorf("expected binary logs that can be separated by schema for a restore of schema %q alone, found %w; "+
				"restore all schemas into a new MySQLCluster and copy the schema from there, or set spec.restore.restorePoint of a new "+
				"MySQLCluster to %s, which restores the backup alone", o.Schema, err, formatPoint(s.status.Time.Time))}
		}
		if err != nil {
			return err
		}
	}
	s.standIns = slices.Sorted(maps.Keys(filter.Defaults))
	if len(s.standIns) > maxStandInSchemas {
		return &RefusedError{fmt.Errorf("expected at most %d default schemas in the binary logs, found %d; restore all schemas into a new MySQLCluster", maxStandInSchemas, len(s.standIns))}
	}
	return nil
}

// maxStandInSchemas limits the number of empty schemas that a restore of one schema creates temporarily.
const maxStandInSchemas = 1000

// newSchemaFilter returns the filter for a restore of one schema, or nil if all schemas are restored.
func (o RestoreOptions) newSchemaFilter() *binlogparser.SchemaFilter {
	if o.Schema == "" {
		return nil
	}
	return &binlogparser.SchemaFilter{Schema: o.Schema, Keep: func(statement string) bool { return !o.isLeftOut(statement) }, Defaults: map[string]bool{}}
}

func formatPoint(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// cutReplay sets s.gtids to the transactions of the dump and of the segments until the restore point. It removes the
// segments after the restore point.
func (o RestoreOptions) cutReplay(ctx context.Context, s *storedBackup, dump gtid.Set) error {
	s.gtids = dump
	logs := &logReader{from: s.from}
	defer logs.close()
	for i, segment := range s.replay.Segments {
		wanted := segment.GTIDs
		if segment.Last.After(o.Point) {
			wanted = gtid.Set{}
			err := o.copyTransactions(ctx, logs, segment, transactionFilter{to: io.Discard, visit: func(head binlogparser.TransactionHead, _ string) bool {
				wanted = wanted.Union(head.GTID)
				return false
			}})
			if err != nil {
				return err
			}
			s.replay.Segments = s.replay.Segments[:i+1] // Stop at the first transaction after the point.
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

// copyTransactions copies a segment's transactions up to the restore point as a binary log.
func (o RestoreOptions) copyTransactions(ctx context.Context, logs *logReader, segment backup.StoredSegment, f transactionFilter) error {
	plain, err := logs.open(ctx, segment)
	if err != nil {
		return err
	}
	f.from, f.wanted, f.until = bufio.NewReaderSize(plain, lineBuffer), segment.GTIDs, o.Point
	if err := f.run(); err != nil {
		return fmt.Errorf("read %s: %w", segment.Key, err)
	}
	return nil
}

// packedObject is an object that is decompressed while it is read.
type packedObject struct {
	stored io.Closer
	plain  *zstd.Decoder
}

func openPacked(ctx context.Context, from bucket.Store, key string) (packedObject, error) {
	object, err := from.GetObject(ctx, key)
	if err != nil {
		return packedObject{}, err
	}
	plain, err := zstd.NewReader(object, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return packedObject{}, errors.Join(fmt.Errorf("decompress %s: %w", key, err), object.Close())
	}
	return packedObject{object, plain}, nil
}

func (p packedObject) close() {
	if p.plain != nil {
		p.plain.Close()
		_ = p.stored.Close() // The object was only read.
	}
}

// maxStatement is the size in bytes of a statement's rows at which the statement is applied in several parts.
const maxStatement = 4 << 20

// transactionFilter copies the wanted transactions, and the other events that a valid binary log needs.
type transactionFilter struct {
	from io.Reader
	to   io.Writer
	// wanted is the set of transactions to copy, and until is the latest commit time to copy. The first transaction
	// outside of either limit ends the copy. The newest segment may be replaced with a longer one after a restore has
	// read its header.
	wanted gtid.Set
	until  time.Time
	// visit is called for each transaction and reports whether to copy it. The second argument is the transaction's
	// first statement, such as BEGIN. It is empty for a compressed transaction.
	visit func(binlogparser.TransactionHead, string) bool
	// schema, if set, copies only the part of a transaction that changes one schema. In this case visit is not called.
	schema *binlogparser.SchemaFilter
	// dumped is the set of transactions to skip: those of the dump, and those that have been applied.
	dumped gtid.Set
	// findsFailed ends the copy with a partlyFailedError before a transaction that failed in part on the source, except
	// for the transaction alone. If alone is set, the copy ends after this transaction.
	findsFailed bool
	alone       gtid.Set
	// codes are the numbers of the errors after which mysql continues, when it applies the transaction alone.
	codes []int
	// seeTable, if set, is called with the name of each table before its rows are copied. canSplit is called with the
	// table names of large statements.
	seeTable    func(schema, table string)
	canSplit    func(schema, table string) bool
	checksummed bool
}

func (f *transactionFilter) run() error {
	var magic [len(binlogparser.FileMagic)]byte
	if _, err := io.ReadFull(f.from, magic[:]); err != nil || string(magic[:]) != binlogparser.FileMagic {
		return fmt.Errorf("expected a binary log, found other data (%w)", err)
	}
	if _, err := f.to.Write(magic[:]); err != nil {
		return err
	}
	for {
		event, err := binlogparser.ReadEvent(f.from)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !event.BeginsTransaction() {
			if err := f.passOther(event); err != nil {
				return err
			}
			continue
		}
		if goesOn, err := f.passNext(event); err != nil || !goesOn {
			return err
		}
	}
}

// passNext copies the transaction that begins with an event, and reports whether the next one may be wanted, too.
func (f *transactionFilter) passNext(first binlogparser.BinlogEvent) (goesOn bool, err error) {
	head, err := first.ParseTransactionHead()
	if err != nil || head.Committed.After(f.until) || !f.wanted.Contains(head.GTID) {
		return false, err
	}
	rest, err := f.readRest(first, head)
	if err != nil {
		return false, err
	}
	return !f.alone.Contains(head.GTID), f.passTransaction(first, head, rest)
}

// partlyFailedError reports a transaction with statements that failed on the source after they had changed a table
// without transactions. The binary log contains such a statement with its error code, if binlog_format was not ROW.
type partlyFailedError struct {
	gtid  gtid.Set
	codes []int
}

func (f *partlyFailedError) Error() string {
	return fmt.Sprintf("transaction %s contains statements that failed on the source with the errors %v", f.gtid, f.codes)
}

// maxInspected is the size in bytes of a transaction up to which its statements are inspected before it is copied.
const maxInspected = 4 << 20

// readRest returns the events of a transaction after the first one. It returns a partlyFailedError if the transaction
// failed in part on the source.
func (f *transactionFilter) readRest(first binlogparser.BinlogEvent, head binlogparser.TransactionHead) (io.Reader, error) {
	rest := io.LimitReader(f.from, head.Size-int64(len(first.Raw)))
	if !f.findsFailed || head.Size > maxInspected || f.dumped.Contains(head.GTID) || f.alone.Contains(head.GTID) {
		return rest, nil
	}
	events, err := io.ReadAll(rest)
	if err != nil {
		return nil, err
	}
	codes, err := binlogparser.ListErrorCodes(bytes.NewReader(events), f.checksummed)
	if err == nil && len(codes) > 0 {
		err = &partlyFailedError{head.GTID, codes}
	}
	return bytes.NewReader(events), err
}

// passOther copies an event outside of transactions. The FormatEvent of a file reports whether its events have
// checksums.
func (f *transactionFilter) passOther(event binlogparser.BinlogEvent) error {
	if event.EventType() == binlogparser.FormatEvent {
		f.checksummed = event.HasChecksums()
	}
	_, err := f.to.Write(event.Raw)
	return err
}

func (f *transactionFilter) passTransaction(first binlogparser.BinlogEvent, head binlogparser.TransactionHead, rest io.Reader) error {
	if f.dumped.Contains(head.GTID) {
		_, err := io.Copy(io.Discard, rest)
		return err
	}
	split := &binlogparser.StatementSplitter{To: f.to, Checksummed: f.checksummed, Limit: maxStatement, SeeTable: f.seeTable, CanSplit: f.canSplit}
	if f.schema != nil {
		if err := f.schema.CopyTransaction(first, rest, split, f.checksummed); err != nil {
			return fmt.Errorf("transaction %s of %s: %w", head.GTID, formatPoint(head.Committed), err)
		}
		return nil
	}
	second, err := binlogparser.ReadEvent(rest)
	if err != nil {
		return err
	}
	text := ""
	if second.EventType() == binlogparser.QueryEvent {
		text = second.QueryText(f.checksummed)
	}
	if !f.visit(head, text) {
		_, err = io.Copy(io.Discard, rest)
		return err
	}
	if _, err := f.to.Write(first.Raw); err != nil {
		return err
	}
	return binlogparser.CopyTransaction(io.MultiReader(bytes.NewReader(second.Raw), rest), split, f.checksummed)
}

// accountStatement matches a statement about accounts. Such a statement is always a transaction of its own.
var accountStatement = regexp.MustCompile(`(?is)^\s*(?:/\*.*?\*/\s*)*((?:create|alter|drop|rename)\s+(?:user|role)|grant|revoke|set\s+(?:password|default\s+role))\b`)

// unrestoredAccount matches a name of listUnrestoredNames followed by its host. unrestoredName also matches a name
// without a host, which occurs if the server logs a statement as the client sent it.
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

// isLeftOut reports whether a statement is not replayed. This applies to statements about accounts that no backup
// includes. If only some accounts are restored, it applies to statements about any account.
func (o RestoreOptions) isLeftOut(statement string) bool {
	found := accountStatement.FindStringSubmatchIndex(statement)
	if found == nil || len(o.Users) > 0 {
		return found != nil
	}
	// In the binary log, CREATE USER and ALTER USER contain a host for every name. They may also contain comments that
	// include the name of an unrestored account.
	if words := strings.ToLower(statement[found[2]:found[3]]); strings.HasSuffix(words, "user") && (strings.HasPrefix(words, "create") || strings.HasPrefix(words, "alter")) {
		return unrestoredAccount.MatchString(statement[found[3]:])
	}
	return unrestoredName.MatchString(statement[found[3]:])
}

// replayWithStandIns creates the default schemas of the sessions in the binary logs, applies the binary logs, and drops
// these schemas. They are empty, so a name in one of them is not mistaken for a name in the restored schema.
func (o RestoreOptions) replayWithStandIns(ctx context.Context, t restoreTarget, from storedBackup) error {
	if err := t.changeSchemas(ctx, "create schema if not exists ", from.standIns); err != nil {
		return err
	}
	if err := o.replayBinlogs(ctx, t, from); err != nil {
		return err
	}
	return t.changeSchemas(ctx, "drop schema if exists ", from.standIns)
}

// replayBinlogs applies the transactions committed between the dump and the restore point.
func (o RestoreOptions) replayBinlogs(ctx context.Context, t restoreTarget, from storedBackup) error {
	dumped, err := gtid.Parse(from.status.GTIDSet)
	if err != nil {
		return fmt.Errorf("%s: %w", from.keys.Record, err)
	}
	filter := transactionFilter{schema: o.newSchemaFilter(), dumped: dumped, visit: func(_ binlogparser.TransactionHead, statement string) bool {
		return !o.isLeftOut(statement)
	}}
	logs := &logReader{from: from.from}
	defer logs.close()
	for _, segment := range from.replay.Segments {
		if err := o.replaySegment(ctx, t, logs, segment, filter); err != nil {
			return err
		}
	}
	there, err := t.readExecuted(ctx)
	if err != nil {
		return err
	}
	// Transactions that were omitted on purpose count as executed, so the instance has the same GTIDs as its source.
	if left := from.gtids.Subtract(there); !left.IsEmpty() {
		o.Log.Info("Left out transactions about accounts or schemas that are not restored", "gtids", left.String())
		if err := t.execStatement(ctx, "set global gtid_purged = concat('+', ?)", left.String()); err != nil {
			return fmt.Errorf("add transactions to gtid_purged: MySQL %s", describeError(err))
		}
	}
	executed, err := t.executedGTIDs(ctx)
	if err != nil {
		return err
	}
	if same, err := t.areEqualGTIDSets(ctx, executed, from.gtids.String()); err != nil || !same {
		return errors.Join(err, fmt.Errorf("expected the transactions %q after applying the binary logs, found %q", from.gtids, executed))
	}
	return nil
}

// replaySegment applies a segment. A transaction that failed in part on the source is applied alone, so that mysql may
// continue after the same errors.
func (o RestoreOptions) replaySegment(ctx context.Context, t restoreTarget, logs *logReader, segment backup.StoredSegment, filter transactionFilter) error {
	filter.findsFailed = true
	for {
		err := o.replayTransactions(ctx, t, logs, segment, filter)
		failed, isFailed := errors.AsType[*partlyFailedError](err)
		if !isFailed {
			return err
		}
		applied, err := t.readExecuted(ctx)
		if err != nil {
			return err
		}
		filter.dumped = filter.dumped.Union(applied)
		one := filter
		one.alone, one.codes = failed.gtid, failed.codes
		if err := o.replayTransactions(ctx, t, logs, segment, one); err != nil {
			return err
		}
		filter.dumped = filter.dumped.Union(failed.gtid)
	}
}

// replayTransactions pipes a segment through mysqlbinlog to mysql. The server skips transactions that it has already
// executed.
func (o RestoreOptions) replayTransactions(ctx context.Context, t restoreTarget, logs *logReader, segment backup.StoredSegment, filter transactionFilter) (err error) {
	options, err := writeOptionFile(t.host, RestoreUser, o.Password)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, options.removeFolder()) }()
	events, feed := io.Pipe()
	broken := &brokenComments{}
	filter.to, filter.seeTable = feed, broken.add
	filter.canSplit = func(schema, table string) bool { return t.hasTransactions(ctx, schema, table) }
	var readErr error
	var reading sync.WaitGroup
	reading.Go(func() {
		readErr = o.copyTransactions(ctx, logs, segment, filter)
		ending := readErr
		if _, isFailed := errors.AsType[*partlyFailedError](readErr); isFailed {
			ending = nil // All transactions before it are applied.
		}
		feed.CloseWithError(ending)
	})
	applyErr, decodeErr := eventStream{events, broken, segment.Key, filter.codes}.apply(ctx, options)
	if applyErr != nil {
		logs.interrupt()
	}
	_ = events.Close() // Closing the pipe stops the goroutine that writes to it.
	reading.Wait()
	return cmp.Or(applyErr, readErr, decodeErr)
}

// eventStream contains the events of an object in the bucket.
type eventStream struct {
	events io.Reader
	broken *brokenComments
	key    string
	// codes are the numbers of the errors after which mysql continues.
	codes []int
}

// apply pipes the events through mysqlbinlog to mysql, and returns the errors of mysql and of mysqlbinlog.
func (s eventStream) apply(ctx context.Context, options *optionFile) (applyErr, decodeErr error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	decode := clientCommand(ctx, "mysqlbinlog", []string{"--no-defaults", "-"})
	flags := loadFlags(options, replayingSession)
	if len(s.codes) > 0 {
		flags = append(flags, "--force")
	}
	apply := clientCommand(ctx, "mysql", flags)
	var decodeComplaints, applyComplaints bytes.Buffer
	decode.Stdin, decode.Stderr = s.events, &limitedBuffer{to: &decodeComplaints, left: maxComplaint}
	apply.Stderr = &limitedBuffer{to: &applyComplaints, left: maxComplaint}
	decoded, err := decode.StdoutPipe()
	if err != nil {
		return fmt.Errorf("prepare mysqlbinlog: %w", err), nil
	}
	statements, guard := io.Pipe()
	apply.Stdin = statements
	if err := decode.Start(); err != nil {
		return fmt.Errorf("start mysqlbinlog: %w", err), nil
	}
	var guarding sync.WaitGroup
	guarding.Go(func() { guard.CloseWithError(guardComments(guard, decoded, s.broken)) })
	if err := apply.Run(); err != nil || len(s.codes) > 0 {
		applyErr = s.describeErrors(err, applyComplaints.String())
	}
	if applyErr != nil {
		cancel()
	}
	_ = statements.Close() // The mysql client has exited.
	guarding.Wait()
	if err := decode.Wait(); err != nil {
		decodeErr = fmt.Errorf("mysqlbinlog: %w: %s", err, strings.TrimSpace(decodeComplaints.String()))
	}
	return applyErr, decodeErr
}

// errStatementFailed is the error of mysql after it has continued.
var errStatementFailed = errors.New("a statement failed")

// describeErrors returns the first error of mysql that is not expected. mysql exits with 0 or 1 after it has continued.
func (s eventStream) describeErrors(err error, complaint string) error {
	all := regexp.MustCompile(`(?m)^ERROR (\d+).*$`).FindAllStringSubmatch(complaint, -1)
	for _, found := range all {
		if number, _ := strconv.Atoi(found[1]); !slices.Contains(s.codes, number) {
			return describeClientError(cmp.Or(err, errStatementFailed), found[0], s.key)
		}
	}
	if len(all) == 0 && err != nil {
		return describeClientError(err, complaint, s.key)
	}
	return nil
}

// describeClientError returns only MySQL's error number and the line number, because most messages may contain data.
func describeClientError(err error, complaint, what string) error {
	found := regexp.MustCompile(`ERROR (\d+).*? at line (\d+)(?:: (.*))?`).FindStringSubmatch(complaint)
	if found == nil {
		return fmt.Errorf("mysql: %w", err)
	}
	sentence := ""
	// The messages with these numbers contain names but no data.
	if slices.Contains([]string{"1032", "1049", "1146", "1153", "1298", "1452", "1824", "3750", "6125"}, found[1]) {
		sentence = ": " + found[3]
	}
	return fmt.Errorf("mysql: %w: MySQL's error %s at line %s of %s%s", err, found[1], found[2], what, sentence)
}
