// SPDX-License-Identifier: Apache-2.0

// Package runner is the program in the Pods that back up, restore and ship binary logs. It runs MySQL's own clients,
// queries the servers with SQL, and streams data between them and a bucket. It does not use the Kubernetes API.
package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
	mysqlusers "github.com/torpor-dev/torpor/internal/mysql/users"
)

// BackupUser and RestoreUser are the MySQL accounts that the Jobs use.
const (
	BackupUser  = mysqlusers.BackupUser
	RestoreUser = mysqlusers.AdminUser
)

// BackupOptions describe what to back up and where to store it.
type BackupOptions struct {
	// Cluster has the form namespace/name. It becomes part of the objects' keys.
	Cluster string
	// Hosts holds the host names of the instances, by index.
	Hosts []string
	// IsCopy is true if the cluster replicates from an external server, so no instance accepts writes.
	IsCopy bool
	// Password is the password of BackupUser.
	Password string
	// MaxLag is the maximum replication lag of a replica. 0 means no limit.
	MaxLag time.Duration
	// Retention is the time for which backups and binary logs are kept. 0 means forever.
	Retention time.Duration
	// Bucket is the destination of the backup.
	Bucket bucket.Config
	// Result is the file to which the result is written as JSON. If it is empty, no file is written.
	Result string
	// Clock supplies the current time.
	Clock clock.PassiveClock
	// Log receives one line per step.
	Log *slog.Logger
}

// RunBackup dumps one instance into the bucket. The record is written last, because the other objects do not count as a
// backup without it.
func RunBackup(ctx context.Context, o BackupOptions) error {
	began := o.Clock.Now()
	c, err := openCluster(ctx, o.Cluster, o.Bucket, o.Hosts, o.Password)
	if err != nil {
		return err
	}
	defer closeServers(c.servers)
	made, keys, err := o.backUpAny(ctx, c.store, c.servers, func(at time.Time) backup.ObjectKeys { return backup.ObjectKeysAt(c.namespace, c.name, at) })
	if err != nil {
		return err
	}
	if made.BinlogSize, err = c.measureSegments(ctx); err != nil {
		made.Warnings = append(made.Warnings, "the size of the binary logs in the bucket is unknown: "+err.Error())
	}
	made.Elapsed = metav1.Duration{Duration: o.Clock.Since(began).Round(time.Millisecond)}
	record, err := json.MarshalIndent(made, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the record: %w", err)
	}
	if _, err := c.store.PutObject(ctx, keys.Record, bytes.NewReader(record)); err != nil {
		return err
	}
	o.Log.Info("Backed up", "record", keys.Record, "bytes", made.DumpSize, "gtids", made.GTIDSet)
	var late []string // The record, which is already written, does not contain these warnings.
	if err := o.deleteExpired(ctx, c, began); err != nil {
		late = append(late, "not all expired objects were deleted: "+err.Error())
	}
	message, err := backup.FormatResult(made.BackupStatus, late...)
	if err != nil {
		return err
	}
	return writeResult(o.Result, message)
}

// measureSegments returns the size of the cluster's binary logs in the bucket.
func (c storedCluster) measureSegments(ctx context.Context) (int64, error) {
	sizes, err := c.store.ListSizes(ctx, backup.SegmentPrefix(c.namespace, c.name))
	total := int64(0)
	for key, size := range sizes {
		if _, ok := backup.SegmentTime(key); ok {
			total += size
		}
	}
	return total, err
}

func (o BackupOptions) deleteExpired(ctx context.Context, c storedCluster, began time.Time) error {
	if o.Retention <= 0 {
		return nil
	}
	backups, err := bucket.ListKeys(ctx, c.store, backup.ObjectPrefix(c.namespace, c.name))
	if err != nil {
		return err
	}
	segments, err := bucket.ListKeys(ctx, c.store, backup.SegmentPrefix(c.namespace, c.name))
	if err != nil {
		return err
	}
	for _, key := range backup.ExpiredKeys(backups, segments, c.namespace, c.name, began.Add(-o.Retention)) {
		if err := c.store.DeleteObject(ctx, key); err != nil {
			return err
		}
		o.Log.Info("Deleted expired object", "object", key)
	}
	return nil
}

// backUpAny dumps the best instance. If the instance is too busy for a snapshot, backUpAny tries the next one.
func (o BackupOptions) backUpAny(ctx context.Context, to bucket.Store, servers []*mysqlServer, named func(time.Time) backup.ObjectKeys) (backupRecord, backup.ObjectKeys, error) {
	busy := make([]bool, len(servers))
	for {
		status, err := o.chooseSource(ctx, servers, busy)
		made := backupRecord{BackupStatus: status}
		if err != nil {
			return made, backup.ObjectKeys{}, err
		}
		o.Log.Info("Dumping", "instance", status.SourceIndex, "host", o.Hosts[status.SourceIndex])
		keys, err := o.writeBackup(ctx, to, servers[status.SourceIndex], named, &made)
		if !errors.Is(err, errBusyInstance) {
			return made, keys, err
		}
		o.Log.Info("Trying another instance", "instance", status.SourceIndex, "problem", err.Error())
		busy[status.SourceIndex] = true
	}
}

// chooseSource queries all instances and chooses one that is not busy.
func (o BackupOptions) chooseSource(ctx context.Context, servers []*mysqlServer, busy []bool) (mocov1beta2.BackupStatus, error) {
	facts := make([]instanceFacts, len(servers))
	for i, s := range servers {
		facts[i] = s.queryFacts(ctx)
		facts[i].Busy = busy[i]
	}
	seen := make([]backup.SourceCandidate, len(servers))
	uuids := map[string]string{}
	for i, f := range facts {
		seen[i] = f.SourceCandidate
		if f.Problem == "" {
			uuids[strconv.Itoa(i)] = f.uuid
		}
	}
	primary := o.findPrimary(facts)
	if primary >= 0 {
		seen[primary].LeadsCopy = !facts[primary].Writable
	}
	if err := markErrantInstances(ctx, servers, facts, primary, seen); err != nil {
		return mocov1beta2.BackupStatus{}, err
	}
	chosen, warnings, err := backup.ChooseSource(seen, o.MaxLag)
	if err != nil {
		if slices.Contains(busy, true) {
			err = fmt.Errorf("%w; the backup is tried again", err)
		}
		return mocov1beta2.BackupStatus{}, fmt.Errorf("choose an instance: %w", err)
	}
	return mocov1beta2.BackupStatus{SourceIndex: chosen, SourceUUID: facts[chosen].uuid, UUIDSet: uuids, Warnings: warnings}, nil
}

// findPrimary returns the index of the primary, or -1 if none exists. It supports clusters that replicate from an
// external server.
func (o BackupOptions) findPrimary(all []instanceFacts) int {
	primary := slices.IndexFunc(all, func(f instanceFacts) bool { return f.Problem == "" && f.Writable })
	if primary >= 0 || !o.IsCopy {
		return primary
	}
	sources := make([]string, len(all))
	for i, f := range all {
		sources[i] = f.source
	}
	return backup.FindCopyPrimary(o.Hosts, sources)
}

// markErrantInstances marks replicas with transactions that the primary lacks.
func markErrantInstances(ctx context.Context, servers []*mysqlServer, all []instanceFacts, primary int, seen []backup.SourceCandidate) error {
	for i, f := range all {
		if f.Problem != "" || f.Writable || i == primary {
			continue
		}
		if primary < 0 {
			seen[i].HasNoPrimary = true
			continue
		}
		// The primary is queried after the replicas, so it has executed or is committing every transaction that they
		// received from it.
		known, err := servers[primary].hasExecutedOrCommits(ctx, f.executed)
		if err != nil {
			return fmt.Errorf("compare instance %d with the primary: %w", i, err)
		}
		seen[i].Errant = !known
	}
	return nil
}

// writeBackup writes the accounts and the dump, and fills in the record.
func (o BackupOptions) writeBackup(ctx context.Context, to bucket.Store, from *mysqlServer, named func(time.Time) backup.ObjectKeys, made *backupRecord) (backup.ObjectKeys, error) {
	var none backup.ObjectKeys
	before, err := from.readInventory(ctx)
	if err != nil {
		return none, err
	}
	made.BrokenViews, made.HasTimeZones = before.broken, before.knowsZones
	views := brokenViewWarnings(before.broken, "not in the backup")
	made.Warnings = slices.Concat(made.Warnings, before.unsafeTableWarnings(), views)
	d, err := startDump(ctx, from, o.Password, before)
	if err != nil {
		return none, err
	}
	defer d.stop()
	after, err := from.readInventory(ctx)
	if err != nil {
		return none, err
	}
	// The inventories are read outside of the dump's snapshot. They describe the snapshot only if both are equal.
	if !before.isEqual(after) {
		return none, errors.New("expected the schemas, accounts, FLOAT columns and broken views to stay the same while the dump began, " +
			"found changes; the next attempt includes them")
	}
	// The time is rounded up to a full second, so it is never before the snapshot.
	at := metav1.NewTime(o.Clock.Now().UTC().Truncate(time.Second).Add(time.Second))
	made.Time, made.GTIDSet = &at, d.gtids
	keys := named(at.Time)
	accounts, err := json.Marshal(before.Accounts)
	if err != nil {
		return none, fmt.Errorf("encode the accounts: %w", err)
	}
	if _, err := to.PutObject(ctx, keys.Accounts, bytes.NewReader(accounts)); err != nil {
		return none, err
	}
	counted := d.readers.counter.start(ctx, before.unsafeNames)
	stream := d.startCompression(ctx)
	defer func() { _ = stream.Close() }() // PutObject has already returned the error of a read.
	if made.DumpSize, err = to.PutObject(ctx, keys.Dump, stream); err != nil {
		return keys, err
	}
	rows := <-counted
	if rows.err == nil {
		made.Contents = describeContents(before, after, rows.rows)
	}
	return keys, rows.err
}

// writeResult writes the result to the file from which the kubelet reads the termination message.
func writeResult(file, text string) error {
	if file == "" {
		return nil
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}
