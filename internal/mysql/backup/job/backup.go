// SPDX-License-Identifier: Apache-2.0

// Package job runs in the Pods that back up and restore: it runs MySQL's own clients, queries the servers by SQL and
// streams the data between them and a bucket. It knows nothing of Kubernetes.
package job

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
	"github.com/torpor-dev/torpor/internal/mysql/accounts"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
)

// BackupUser and RestoreUser are the accounts of the database that the Jobs use.
const (
	BackupUser  = accounts.BackupUser
	RestoreUser = accounts.AdminUser
)

// BackupOptions say what to back up and where to.
type BackupOptions struct {
	// Cluster is namespace/name, which the objects are named after.
	Cluster string
	// Hosts are the instances, by index.
	Hosts []string
	// IsCopy says that the cluster copies a server outside, so that no instance takes writes.
	IsCopy bool
	// Password of BackupUser.
	Password string
	// MaxLag is how far a replica may be behind; 0 means any.
	MaxLag time.Duration
	// Retention is how far back backups and binary logs are kept; 0 means for ever.
	Retention time.Duration
	// Bucket is where the backup goes.
	Bucket bucket.Config
	// Result is the file for the outcome, as JSON; empty means none.
	Result string
	// Clock tells the time.
	Clock clock.PassiveClock
	// Log gets one line per step.
	Log *slog.Logger
}

// RunBackup dumps one instance into the bucket. The record is written last: without it the rest does not count as a backup.
func RunBackup(ctx context.Context, o BackupOptions) error {
	began := o.Clock.Now()
	c, err := openCluster(ctx, o.Cluster, o.Bucket, o.Hosts, o.Password)
	if err != nil {
		return err
	}
	defer closeServers(c.servers)
	status, keys, err := o.backUpAny(ctx, c.store, c.servers, func(at time.Time) backup.ObjectKeys { return backup.ObjectKeysAt(c.namespace, c.name, at) })
	if err != nil {
		return err
	}
	status.Elapsed = metav1.Duration{Duration: o.Clock.Since(began).Round(time.Millisecond)}
	record, err := json.MarshalIndent(status, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the record: %w", err)
	}
	if _, err := c.store.PutObject(ctx, keys.Record, bytes.NewReader(record)); err != nil {
		return err
	}
	o.Log.Info("Backed up", "record", keys.Record, "bytes", status.DumpSize, "gtids", status.GTIDSet)
	if err := o.deleteExpired(ctx, c, began); err != nil {
		status.Warnings = append(status.Warnings, "what has expired was not deleted: "+err.Error())
	}
	message, err := backup.FormatResult(status)
	if err != nil {
		return err
	}
	return writeResult(o.Result, message)
}

func (o BackupOptions) deleteExpired(ctx context.Context, c storedCluster, began time.Time) error {
	if o.Retention <= 0 {
		return nil
	}
	backups, err := c.store.ListKeys(ctx, backup.ObjectPrefix(c.namespace, c.name))
	if err != nil {
		return err
	}
	segments, err := c.store.ListKeys(ctx, backup.SegmentPrefix(c.namespace, c.name))
	if err != nil {
		return err
	}
	for _, key := range backup.ExpiredKeys(backups, segments, c.namespace, c.name, began.Add(-o.Retention)) {
		if err := c.store.DeleteObject(ctx, key); err != nil {
			return err
		}
		o.Log.Info("Deleted, because it has expired", "object", key)
	}
	return nil
}

// backUpAny dumps the best instance whose snapshot can be taken without holding up its clients.
func (o BackupOptions) backUpAny(ctx context.Context, to bucket.Store, servers []*mysqlServer, named func(time.Time) backup.ObjectKeys) (mocov1beta2.BackupStatus, backup.ObjectKeys, error) {
	busy := make([]bool, len(servers))
	for {
		status, err := o.chooseSource(ctx, servers, busy)
		if err != nil {
			return status, backup.ObjectKeys{}, err
		}
		o.Log.Info("Dumping", "instance", status.SourceIndex, "host", o.Hosts[status.SourceIndex])
		keys, err := o.writeBackup(ctx, to, servers[status.SourceIndex], named, &status)
		if !errors.Is(err, errBusyInstance) {
			return status, keys, err
		}
		o.Log.Info("Another instance is tried", "instance", status.SourceIndex, "because it", err.Error())
		busy[status.SourceIndex] = true
	}
}

// chooseSource queries all instances that are not busy and picks one.
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

// findPrimary returns the index of the instance that has what the cluster has; -1 if none is found.
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

// markErrantInstances marks replicas with transactions that the primary does not have.
func markErrantInstances(ctx context.Context, servers []*mysqlServer, all []instanceFacts, primary int, seen []backup.SourceCandidate) error {
	for i, f := range all {
		if f.Problem != "" || f.Writable || i == primary {
			continue
		}
		if primary < 0 {
			seen[i].HasNoPrimary = true
			continue
		}
		// The primary is queried after the replicas, so that it has executed by now what they had received from it.
		known, err := servers[primary].hasExecuted(ctx, f.executed)
		if err != nil {
			return fmt.Errorf("compare instance %d with the primary: %w", i, err)
		}
		seen[i].Errant = !known
	}
	return nil
}

// writeBackup writes the accounts and the dump, and fills in the status.
func (o BackupOptions) writeBackup(ctx context.Context, to bucket.Store, from *mysqlServer, named func(time.Time) backup.ObjectKeys, status *mocov1beta2.BackupStatus) (backup.ObjectKeys, error) {
	var none backup.ObjectKeys
	before, err := from.readInventory(ctx)
	if err != nil {
		return none, err
	}
	status.Warnings = append(status.Warnings, before.unsafeTableWarnings()...)
	d, err := startDump(ctx, from, o.Password, before.Schemas)
	if err != nil {
		return none, err
	}
	defer d.stop()
	after, err := from.readInventory(ctx)
	if err != nil {
		return none, err
	}
	// The inventory is read outside of the dump's snapshot. Only if it is equal before and after does it belong to it.
	if !before.isEqual(after) {
		return none, errors.New("expected the schemas and accounts to stay while the dump began, found them changed; the next try will have them")
	}
	at := metav1.NewTime(o.Clock.Now().UTC().Truncate(time.Second).Add(time.Second)) // Never before the snapshot.
	status.Time, status.GTIDSet = &at, d.gtids
	keys := named(at.Time)
	accounts, err := json.Marshal(before.Accounts)
	if err != nil {
		return none, fmt.Errorf("encode the accounts: %w", err)
	}
	if _, err := to.PutObject(ctx, keys.Accounts, bytes.NewReader(accounts)); err != nil {
		return none, err
	}
	stream := d.startCompression()
	defer func() { _ = stream.Close() }() // What went wrong was returned by PutObject.
	status.DumpSize, err = to.PutObject(ctx, keys.Dump, stream)
	return keys, err
}

// writeResult writes the outcome where the kubelet reads it as the termination message.
func writeResult(file, text string) error {
	if file == "" {
		return nil
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}
