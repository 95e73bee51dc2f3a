// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/utils/clock"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/mysql/backup/binlogparser"
	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

const (
	// positionInterval is how often the ShippedState is written. For an idle cluster, only this state shows that no
	// transaction is missing.
	positionInterval = 30 * time.Second
	// deliveryLimit is how long an instance may lack a transaction that the primary has executed.
	deliveryLimit = 30 * time.Second
	// lateMemory is the time after missing deliveryLimit during which an instance is used only if no other instance has
	// the missing transactions.
	lateMemory = 10 * time.Minute
	// uploadLimit limits the duration of one upload.
	uploadLimit = 10 * time.Minute
	// maxFailing is how long sessions may fail before the program exits. The container is then restarted, with the
	// current passwords and CA certificates.
	maxFailing = 2 * time.Minute
	// maxShipRetry is the longest wait after an error.
	maxShipRetry = 15 * time.Second
	// streamFolder and segmentFile are patterns for the names of temporary folders and files with transactions that are
	// not uploaded yet.
	streamFolder = "torpor-binlog-*"
	segmentFile  = "torpor-segment-*"
)

// ShipOptions define the cluster whose binary logs are shipped, and the destination.
type ShipOptions struct {
	// Cluster has the form namespace/name. It becomes part of the objects' keys.
	Cluster string
	// Hosts holds the host names of the instances, by index.
	Hosts []string
	// Password is the password of BackupUser.
	Password string
	// Interval is how often new transactions are stored.
	Interval time.Duration
	// Bucket is the destination of the binary logs.
	Bucket bucket.Config
	// Spool is a folder for transactions that are not uploaded yet.
	Spool string
	// Address is the address at which the status is served. If it is empty, the status is not served.
	Address string
	// Clock supplies the current time.
	Clock clock.PassiveClock
	// Log receives one line per change.
	Log *slog.Logger
}

// shipper copies binary logs into the bucket. All state that must survive a restart is stored in the bucket.
type shipper struct {
	ShipOptions
	storedCluster

	status *shippingStatus
	// state is the state in the bucket. It is nil until it has been read.
	state *backup.ShippedState
	// positionAt is the time at which the state was last written.
	positionAt time.Time
	// lateAt holds the times at which instances missed deliveryLimit, by server_uuid.
	lateAt map[string]time.Time
}

// RunShipping ships binary logs until its context is cancelled, or sessions have failed for maxFailing. It may be
// killed at any point, because it continues from the state in the bucket.
func RunShipping(ctx context.Context, o ShipOptions) error {
	c, err := openCluster(ctx, o.Cluster, o.Bucket, o.Hosts, o.Password)
	if err != nil {
		return err
	}
	defer closeServers(c.servers)
	s := &shipper{ShipOptions: o, storedCluster: c, status: &shippingStatus{clock: o.Clock}, lateAt: map[string]time.Time{}}
	stop, err := s.status.serve(ctx, o.Address)
	if err != nil {
		return err
	}
	defer stop()
	if err := s.clearSpool(); err != nil {
		return err
	}
	retry, workedAt := time.Second, s.Clock.Now()
	for {
		began := s.Clock.Now()
		err := s.runSession(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if s.Clock.Since(began) > maxShipRetry {
			retry, workedAt = time.Second, s.Clock.Now()
		}
		if s.Clock.Since(workedAt) > maxFailing {
			return fmt.Errorf("binary logs could not be shipped for %s: %w", maxFailing, err)
		}
		s.status.setProblem(err)
		s.Log.Warn("Restarting shipping", "because", err.Error(), "after", retry.String())
		if !waitFor(ctx, retry) {
			return nil
		}
		retry = min(2*retry, maxShipRetry)
	}
}

// clearSpool removes the files of a shipper that was killed.
func (s *shipper) clearSpool() error {
	if s.Spool == "" {
		return nil // The files are then in the system's temporary folder, which other processes use too.
	}
	for _, pattern := range []string{streamFolder, segmentFile} {
		left, err := filepath.Glob(filepath.Join(s.Spool, pattern))
		if err != nil {
			return fmt.Errorf("find leftover binary logs: %w", err)
		}
		for _, name := range left {
			if err := os.RemoveAll(name); err != nil {
				return fmt.Errorf("remove leftover binary logs: %w", err)
			}
		}
	}
	return nil
}

// waitFor waits for a duration. It returns false if the context is cancelled first.
func waitFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// shipSession reads the binary logs of one instance.
type shipSession struct {
	*shipper

	stream  *binlogStream
	segment *openSegment
	// primary is the server_uuid of the primary at the start of the session. source is the server_uuid of the instance
	// that is read.
	primary, source string
	// have is the set of transactions that were read, and of all transactions before them.
	have gtid.Set
	// completeAt is the last time at which all transactions executed by the primary had been read.
	completeAt time.Time
	dir        string
}

// runSession ships binary logs until the primary changes or an error occurs.
func (s *shipper) runSession(ctx context.Context) (err error) {
	if s.state == nil {
		if s.state, err = s.findState(ctx); err != nil {
			return err
		}
	}
	session, err := s.openSession(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.close()) }()
	// Writing the state tests the bucket before any transaction is read.
	if err := s.writeState(ctx); err != nil {
		return err
	}
	for {
		if err := session.shipNews(ctx); err != nil {
			return err
		}
		if !waitFor(ctx, s.Interval) {
			return nil
		}
	}
}

// findState reads the state in the bucket. The newest segment may be more recent than the ShippedState, which is
// written less often.
func (s *shipper) findState(ctx context.Context) (*backup.ShippedState, error) {
	keys, err := bucket.ListKeys(ctx, s.store, backup.SegmentPrefix(s.namespace, s.name))
	if err != nil {
		return nil, err
	}
	state := &backup.ShippedState{}
	if slices.Contains(keys, backup.ShippedKey(s.namespace, s.name)) {
		if err := readJSONObject(ctx, s.store, backup.ShippedKey(s.namespace, s.name), state); err != nil {
			return nil, err
		}
	}
	segments := backup.SegmentKeysBetween(keys, time.Time{}, s.Clock.Now())
	if len(segments) == 0 {
		return state, nil
	}
	newest, err := readSegmentHeader(ctx, s.store, segments[len(segments)-1])
	if err != nil {
		return nil, err
	}
	if there := newest.Previous.Union(newest.GTIDs); there.Contains(state.GTIDs) {
		state.GTIDs = there
		if newest.Until.After(state.Until) {
			state.Until = newest.Until
		}
	}
	return state, nil
}

func readSegmentHeader(ctx context.Context, from bucket.Store, key string) (binlogparser.SegmentHeader, error) {
	object, err := from.GetObject(ctx, key)
	if err != nil {
		return binlogparser.SegmentHeader{}, err
	}
	defer func() { _ = object.Close() }() // The object was only read.
	header, err := binlogparser.ReadSegmentHeader(object)
	if err != nil {
		return header, fmt.Errorf("%s: %w", key, err)
	}
	return header, nil
}

// openSession starts to read from an instance: a working replica if it has all missing transactions, otherwise the
// primary, or else a replica that was late.
func (s *shipper) openSession(ctx context.Context) (*shipSession, error) {
	all := s.queryBinlogFacts(ctx)
	primary, err := findPrimary(all)
	if err != nil {
		return nil, err
	}
	candidates := orderCandidates(all, func(f binlogFacts) bool { return s.Clock.Since(s.lateAt[f.uuid]) < lateMemory })
	start, chosen, err := s.chooseStart(ctx, candidates)
	if err != nil {
		return nil, err
	}
	from := candidates[chosen]
	s.Log.Info("Shipping", "instance", from.index, "host", s.Hosts[from.index], "after", start.String())
	s.status.setSource(from.index)
	dir, err := os.MkdirTemp(s.Spool, streamFolder)
	if err != nil {
		return nil, fmt.Errorf("create a folder for binary logs: %w", err)
	}
	stream, err := startStream(ctx, s.Hosts[from.index], s.Password, dir, start)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &shipSession{shipper: s, stream: stream, primary: primary.uuid, source: from.uuid, have: start, dir: dir, completeAt: s.Clock.Now()}, nil
}

// orderCandidates returns the candidate instances in order of preference: working replicas, then the primary, then
// replicas that were late. A late replica may be the only instance that still has transactions that the others have
// purged.
func orderCandidates(all []binlogFacts, isLate func(binlogFacts) bool) []binlogFacts {
	rank := func(f binlogFacts) int {
		switch {
		case f.writable:
			return 1
		case isLate(f):
			return 2
		}
		return 0
	}
	usable := slices.DeleteFunc(slices.Clone(all), func(f binlogFacts) bool { return f.err != nil || !f.writable && !f.replicating })
	slices.SortStableFunc(usable, func(a, b binlogFacts) int { return rank(a) - rank(b) })
	return usable
}

// chooseStart returns the transactions after which shipping starts: those in the bucket. If no instance can continue
// there, it returns those of the newest backup, or otherwise those of the current state.
func (s *shipper) chooseStart(ctx context.Context, candidates []binlogFacts) (start gtid.Set, chosen int, err error) {
	sources := make([]backup.ShipSource, len(candidates))
	for i, c := range candidates {
		sources[i] = backup.ShipSource{Executed: c.executed, Purged: c.purged}
	}
	primary := slices.IndexFunc(candidates, func(f binlogFacts) bool { return f.writable })
	if !s.state.Until.IsZero() { // Binary logs were shipped earlier.
		if start, chosen, continued := backup.ChooseShipStart([]gtid.Set{s.state.GTIDs}, sources, primary); continued == 0 {
			return start, chosen, nil
		}
	}
	began := candidates[primary].now
	var wanted []gtid.Set
	last, err := s.findNewestBackup(ctx)
	if err != nil {
		return start, 0, err
	}
	if last.Time != nil {
		set, err := gtid.Parse(last.GTIDSet)
		if err != nil {
			return start, 0, fmt.Errorf("parse the GTID set of the newest backup: %w", err)
		}
		wanted = append(wanted, set)
	}
	start, chosen, continued := backup.ChooseShipStart(wanted, sources, primary)
	if continued == 0 {
		began = last.Time.Time
	}
	*s.state = backup.ShippedState{GTIDs: start, Since: began, Until: began}
	s.Log.Warn("Earlier binary logs are not in the bucket; later backups can be restored to every point", "since", began, "gtids", start.String())
	return start, chosen, nil
}

func (s *shipSession) close() error {
	err := s.stream.stop()
	if s.segment != nil {
		err = errors.Join(err, s.segment.remove())
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// findNewestBackup returns the record of the newest backup; its time is nil if there is no backup.
func (s *shipper) findNewestBackup(ctx context.Context) (mocov1beta2.BackupStatus, error) {
	var status mocov1beta2.BackupStatus
	keys, err := bucket.ListKeys(ctx, s.store, backup.ObjectPrefix(s.namespace, s.name))
	if err != nil {
		return status, err
	}
	if newest, found := backup.FindOwnBackup(keys, s.namespace, s.name, s.Clock.Now().Add(time.Minute)); found {
		err = readJSONObject(ctx, s.store, newest.Record, &status)
	}
	return status, err
}

var errPrimaryChanged = errors.New("the primary has changed since shipping from this instance began")

// shipNews ships new transactions. It stores only transactions that the primary has executed, because a transaction
// that is not acknowledged yet may never be committed.
func (s *shipSession) shipNews(ctx context.Context) error {
	primary, err := findPrimary(s.queryBinlogFacts(ctx))
	if err != nil {
		return err
	}
	if primary.uuid != s.primary {
		return errPrimaryChanged
	}
	complete, err := s.readUntil(ctx, primary.executed)
	if err != nil {
		return err
	}
	if complete {
		s.completeAt = s.Clock.Now()
	} else if s.Clock.Since(s.completeAt) > deliveryLimit {
		s.lateAt[s.source] = s.Clock.Now()
		return fmt.Errorf("expected the binary logs to contain every transaction within %s, found some missing; trying another instance", deliveryLimit)
	}
	until := s.state.Until
	if complete {
		until = primary.now
	}
	if err := s.storeSegment(ctx, until); err != nil {
		return err
	}
	s.state.Until = until
	if s.Clock.Since(s.positionAt) >= positionInterval {
		if err := s.writeState(ctx); err != nil {
			return err
		}
	}
	s.status.setShipped(*s.state, complete)
	return nil
}

// readUntil reads the wanted transactions that were not read yet. It stops before a transaction that is not wanted.
func (s *shipSession) readUntil(ctx context.Context, wanted gtid.Set) (complete bool, err error) {
	missing := wanted.Subtract(s.have)
	began := s.Clock.Now()
	for !missing.IsEmpty() {
		head, ok, err := s.stream.peekTransaction()
		switch {
		case err != nil:
			return false, err
		case !ok && s.Clock.Since(began) > s.Interval:
			return false, nil
		case !ok:
			if err := s.stream.wait(ctx); err != nil {
				return false, err
			}
			continue
		case !wanted.Contains(head.GTID):
			return false, nil
		}
		if err := s.prepareSegment(ctx, head); err != nil {
			return false, err
		}
		if err := s.stream.copyTransaction(ctx, s.segment.packer, head.Size); err != nil {
			return false, err
		}
		s.segment.add(head)
		s.have, missing = s.have.Union(head.GTID), missing.Subtract(head.GTID)
	}
	return true, nil
}

// prepareSegment starts a new segment if the transaction does not belong to the current one.
func (s *shipSession) prepareSegment(ctx context.Context, head binlogparser.TransactionHead) error {
	if s.segment != nil {
		taken, err := s.segment.takes(head, s.stream.format)
		if err != nil || taken {
			return err
		}
		if err := errors.Join(s.storeSegment(ctx, s.segment.Last), s.segment.remove()); err != nil {
			return err
		}
		s.segment = nil
	}
	key := backup.SegmentKey(s.namespace, s.name, head.Committed, uuid.NewString()[:8])
	header := binlogparser.SegmentHeader{Previous: s.have, First: head.Committed, Last: head.Committed, Source: s.source}
	segment, err := createSegment(s.Spool, key, s.stream.format, header)
	s.segment = segment
	return err
}

func (s *shipSession) storeSegment(ctx context.Context, until time.Time) error {
	if s.segment == nil || !s.segment.hasNews {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, uploadLimit)
	defer cancel()
	s.segment.Until = until
	if err := s.segment.store(ctx, s.store); err != nil {
		return err
	}
	s.state.GTIDs = s.have
	return nil
}

func (s *shipper) writeState(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	text, err := json.Marshal(s.state)
	if err != nil {
		return fmt.Errorf("encode the state: %w", err)
	}
	if _, err := s.store.PutObject(ctx, backup.ShippedKey(s.namespace, s.name), bytes.NewReader(text)); err != nil {
		return err
	}
	s.positionAt = s.Clock.Now()
	return nil
}

// binlogFacts describes the state of an instance's binary logs.
type binlogFacts struct {
	index                 int
	uuid                  string
	executed, purged      gtid.Set
	writable, replicating bool
	now                   time.Time
	err                   error
}

const binlogFactsStatement = `select @@server_uuid, @@gtid_executed, @@gtid_purged, not @@read_only, timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)),
 exists(select 1 from performance_schema.replication_connection_status s
  join performance_schema.replication_applier_status a on a.channel_name = s.channel_name
  where s.channel_name = '' and s.service_state = 'ON' and a.service_state = 'ON')`

func (s *shipper) queryBinlogFacts(ctx context.Context) []binlogFacts {
	all := make([]binlogFacts, len(s.servers))
	for i, server := range s.servers {
		all[i] = server.queryBinlogFacts(ctx)
		all[i].index = i
	}
	return all
}

func (s *mysqlServer) queryBinlogFacts(ctx context.Context) binlogFacts {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var f binlogFacts
	var executed, purged string
	var micros int64
	if err := s.db.QueryRowContext(ctx, binlogFactsStatement).Scan(&f.uuid, &executed, &purged, &f.writable, &micros, &f.replicating); err != nil {
		f.err = fmt.Errorf("%s %s", s.host, describeError(err))
		return f
	}
	var parseErr error
	f.executed, parseErr = gtid.Parse(executed)
	f.purged, f.err = gtid.Parse(purged)
	f.err = errors.Join(f.err, parseErr)
	f.now = time.UnixMicro(micros).UTC()
	return f
}

func findPrimary(all []binlogFacts) (binlogFacts, error) {
	var found []binlogFacts
	var problems []string
	for _, f := range all {
		switch {
		case f.err != nil:
			problems = append(problems, f.err.Error())
		case f.writable:
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		return binlogFacts{}, fmt.Errorf("expected one writable instance, found %d (%s); shipping continues when exactly one instance is writable; a cluster that replicates from an external server has none until spec.replicationSourceSecretName is removed", len(found), strings.Join(problems, ", "))
	}
	return found[0], nil
}
