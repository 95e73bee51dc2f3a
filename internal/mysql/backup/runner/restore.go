// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/mysql/backup/bucket"
	"github.com/torpor-dev/torpor/internal/mysql/backup/mysqlshdump"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// answerRetry is the interval between connection attempts while an instance is unreachable.
const answerRetry = time.Second

// RestoreOptions describe what to restore, and the instance to fill.
type RestoreOptions struct {
	// Source is the backed-up cluster in the form namespace/name.
	Source string
	// Point is the restore point: the time whose data should be restored.
	Point time.Time
	// Schema, if set, is the only schema that is restored.
	Schema string
	// Users, if not empty, lists the only accounts to restore, each in the form name or name@host.
	Users []string
	// FailsOnLeftOut makes the restore fail if a part of the backup cannot be restored. Otherwise the part is omitted.
	FailsOnLeftOut bool
	// ZoneInfo is the folder of the time zone database. If it is empty, the folder in the image is used.
	ZoneInfo string
	// Host is the instance to fill, and Password is the password of RestoreUser.
	Host, Password string
	// Wait is the time to wait for the instance to become reachable.
	Wait time.Duration
	// Bucket holds the backup.
	Bucket bucket.Config
	// Result is the file to which the result is written as JSON. If it is empty, no file is written.
	Result string
	// Clock supplies the current time.
	Clock clock.PassiveClock
	// Log receives one line per step.
	Log *slog.Logger
}

// RefusedError describes a restore that would fail again if it were retried. Either nothing was written, or the
// instance is still marked as partially restored.
type RefusedError struct{ reason error }

func (e *RefusedError) Error() string { return e.reason.Error() }

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.reason }

// RefusedExitCode is the program's exit code for a RefusedError. The Job is not retried after this exit code.
const RefusedExitCode = backup.RefusedExitCode

type storedBackup struct {
	from     bucket.Store
	keys     backup.ObjectKeys
	status   mocov1beta2.BackupStatus
	broken   []brokenView
	hasZones bool
	contents *dumpContents
	accounts []mysqlAccount
	// shell is the dump of a backup that MOCO made.
	shell *mysqlshdump.Dump
	// replay describes the binary logs to apply after the dump. gtids is the resulting set of transactions.
	replay backup.ReplayPlan
	gtids  gtid.Set
	// standIns lists schemas that are not restored but have to exist while the binary logs are applied.
	standIns []string
}

// RunRestore restores into an empty instance. It may be run again after it was killed at any point.
func RunRestore(ctx context.Context, o RestoreOptions) error {
	found, err := o.findBackup(ctx)
	if err != nil {
		return err
	}
	servers, err := openServers([]string{o.Host}, RestoreUser, o.Password)
	if err != nil {
		return err
	}
	defer closeServers(servers)
	c, err := o.waitForSession(ctx, servers[0])
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // The program exits, so an error of Close has no effect.
	t := restoreTarget{Conn: c, mysqlServer: servers[0]}
	if err := t.lockForRestore(ctx); err != nil {
		return err
	}
	done, err := t.prepareForLoad(ctx, found)
	if err != nil {
		return err
	}
	result := backup.RestoreResult{BackupStatus: found.status}
	result.Warnings = nil // The warnings in the record concern the backup, not the restore.
	if !done {
		o.Log.Info("Restoring", "record", found.keys.Record, "bytes", found.status.DumpSize)
		leftOut, warnings, err := o.loadBackup(ctx, t, found)
		if err != nil {
			return err
		}
		for _, text := range warnings { // The omitted parts are already in the log. A result that is too long refers to it.
			o.Log.Warn("Restored with a warning", "what", text)
		}
		result.Warnings, result.LeftOut = slices.Concat(leftOut, warnings), len(leftOut)
	}
	// The instance is made read-only even if everything is loaded, because an earlier run may have been killed before
	// this step.
	if err := t.closeInstance(ctx); err != nil {
		return err
	}
	o.Log.Info("Restored", "record", found.keys.Record, "point", found.replay.Reached, "gtids", found.gtids.String())
	result.Time, result.GTIDSet = new(metav1.NewTime(found.replay.Reached)), found.gtids.String()
	message, err := backup.FormatRestoreResult(result)
	if err != nil {
		return err
	}
	return writeResult(o.Result, message)
}

// findBackup reads the metadata of the backup, so a backup that cannot be restored is detected before an instance is
// changed.
func (o RestoreOptions) findBackup(ctx context.Context) (storedBackup, error) {
	namespace, name, ok := strings.Cut(o.Source, "/")
	if !ok {
		return storedBackup{}, fmt.Errorf("--source: expected namespace/name, found %q", o.Source)
	}
	from, err := bucket.OpenStore(ctx, o.Bucket)
	if err != nil {
		return storedBackup{}, fmt.Errorf("open the bucket: %w", err)
	}
	s := storedBackup{from: from}
	keys, err := bucket.ListKeys(ctx, from, backup.ObjectPrefix(namespace, name))
	if err != nil {
		return s, err
	}
	if s.keys, err = backup.ChooseBackup(keys, namespace, name, o.Point); err != nil {
		return s, err
	}
	read := o.readRecord
	if s.keys.Moco != nil {
		read = o.readMocoDump
	}
	if err := read(ctx, &s); err != nil {
		return s, err
	}
	if s.accounts, err = selectAccounts(s.accounts, o.Users); err != nil {
		return s, err
	}
	return s, o.planReplay(ctx, &s, namespace, name)
}

// readRecord reads the record and the accounts of a backup that Torpor made.
func (o RestoreOptions) readRecord(ctx context.Context, s *storedBackup) error {
	var made backupRecord
	if err := readJSONObject(ctx, s.from, s.keys.Record, &made); err != nil {
		return err
	}
	s.status, s.hasZones, s.contents = made.BackupStatus, made.HasTimeZones, made.Contents
	s.broken = slices.DeleteFunc(made.BrokenViews, func(v brokenView) bool {
		return o.Schema != "" && v.Schema != o.Schema
	})
	return readJSONObject(ctx, s.from, s.keys.Accounts, &s.accounts)
}

func readJSONObject[T any](ctx context.Context, from bucket.Store, key string, into *T) error {
	object, err := from.GetObject(ctx, key)
	if err != nil {
		return err
	}
	defer func() { _ = object.Close() }() // The object was only read.
	if err := json.NewDecoder(object).Decode(into); err != nil {
		return fmt.Errorf("read %s: expected JSON: %w", key, err)
	}
	return nil
}

// waitForSession returns a session once the instance is reachable.
func (o RestoreOptions) waitForSession(ctx context.Context, s *mysqlServer) (*sql.Conn, error) {
	waiting, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	tick := time.NewTicker(answerRetry)
	defer tick.Stop()
	for {
		c, err := s.db.Conn(waiting)
		if err == nil {
			return c, nil
		}
		select {
		case <-tick.C:
		case <-waiting.Done():
			return nil, fmt.Errorf("expected instance %s to answer within %s, but the instance %s", s.host, o.Wait, describeError(err))
		}
	}
}

// loadBackup loads the whole backup. The dump's transactions are not written to the binary log but become gtid_purged;
// replicas are cloned later. It returns the parts that MySQL refused, and warnings.
func (o RestoreOptions) loadBackup(ctx context.Context, t restoreTarget, from storedBackup) (leftOut, warnings []string, err error) {
	if err := t.beginLoad(ctx, from.keys.Record); err != nil {
		return nil, nil, err
	}
	if err := o.loadTimeZones(ctx, t, from); err != nil {
		return nil, nil, err
	}
	left, err := o.loadStoredDump(ctx, t, &from)
	if err != nil {
		return nil, nil, err
	}
	if err := o.compareContents(ctx, t, from.contents, left); err != nil {
		return nil, nil, err
	}
	if warnings, err = o.addAccounts(ctx, t, from.accounts, left); err != nil {
		return nil, nil, err
	}
	// The check comes before the binary logs, which may take a long time to apply.
	if err := o.requireAllParts(left); err != nil {
		return nil, nil, err
	}
	broken, err := t.makeViews(ctx, slices.Concat(from.broken, left.views))
	if err != nil {
		return nil, nil, err
	}
	if err := o.replayOnto(ctx, t, from, &broken, left); err != nil {
		return nil, nil, err
	}
	broken = left.takeViews(broken)
	left.texts = append(left.texts, brokenViewWarnings(broken, "not restored")...)
	for _, text := range left.texts {
		o.Log.Warn("Left out", "what", text)
	}
	if err := o.requireAllParts(left); err != nil {
		return nil, nil, err
	}
	disabled, err := queryColumn(ctx, t.Conn, disabledEventsQuery)
	if err != nil {
		return nil, nil, fmt.Errorf("list events: %w", err)
	}
	if n := len(disabled); n > 0 {
		warnings = append(warnings, fmt.Sprintf("%d events are disabled, because the dump was made from a replica, where all events are disabled: %s; enable the events that should run with ALTER EVENT … ENABLE",
			n, strings.Join(disabled[:min(n, maxNamed)], ", ")))
	}
	if from.shell != nil && from.shell.IsInexact {
		warnings = append(warnings, "according to MOCO's dump, the dumped rows may not match the GTID set; compare the data with the source")
	}
	return left.texts, warnings, t.finishLoad(ctx)
}

// requireAllParts returns an error if a part was omitted although FailsOnLeftOut is set.
func (o RestoreOptions) requireAllParts(left *leftOutParts) error {
	if !o.FailsOnLeftOut || len(left.texts) == 0 {
		return nil
	}
	return &RefusedError{fmt.Errorf("expected every part of the backup to be restored, because spec.restore.onError is Fail, found %d that were not: %s; "+
		"create another MySQLCluster with onError Skip, other settings, or a backup of the corrected source", len(left.texts), left.summarize())}
}

func (o RestoreOptions) loadStoredDump(ctx context.Context, t restoreTarget, from *storedBackup) (*leftOutParts, error) {
	object, err := from.from.GetObject(ctx, from.keys.Dump)
	if err != nil {
		return nil, err
	}
	defer func() { _ = object.Close() }() // The object was only read.
	var left *leftOutParts
	if from.shell != nil {
		left, err = o.loadMocoDump(ctx, t, from, object)
	} else {
		left, err = loadDump(ctx, t.host, o.Password, object, o.Schema)
	}
	if err != nil {
		return nil, err
	}
	if err := t.execAll(ctx, "remove objects that were created without their settings", left.drops...); err != nil {
		return nil, err
	}
	return left, o.verifyLoaded(ctx, t, *from)
}

// replayOnto applies the binary logs, while stand-ins exist for the broken views. After that, broken contains the views
// that could still not be created.
func (o RestoreOptions) replayOnto(ctx context.Context, t restoreTarget, from storedBackup, broken *[]brokenView, left *leftOutParts) (err error) {
	if err := t.standInViews(ctx, *broken); err != nil {
		return err
	}
	if err := o.replayWithStandIns(ctx, t, from); err != nil {
		if len(left.texts) > 0 {
			err = fmt.Errorf("%w; the binary logs may need parts that MySQL refused: %s", err, left.summarize())
		}
		if len(from.status.Warnings) > 0 {
			err = fmt.Errorf("%w; the backup has the warnings: %s", err, strings.Join(from.status.Warnings, "; "))
		}
		return err
	}
	if err := o.requireSchema(ctx, t); err != nil {
		return err
	}
	*broken, err = t.replaceStandIns(ctx, *broken)
	return err
}

// disabledEventsQuery lists the events that a replica received from its source. A replica does not record whether they
// were enabled on the source.
const disabledEventsQuery = `select concat(event_schema, '.', event_name) from information_schema.events where status like '%SIDE_DISABLED' order by 1`

// verifyLoaded returns an error unless the loaded transactions equal those in the dump.
func (o RestoreOptions) verifyLoaded(ctx context.Context, t restoreTarget, from storedBackup) error {
	executed, err := t.executedGTIDs(ctx)
	if err != nil {
		return err
	}
	if same, err := t.areEqualGTIDSets(ctx, executed, from.status.GTIDSet); err != nil || !same {
		return errors.Join(err, fmt.Errorf("expected the transactions %q after loading the dump, found %q", from.status.GTIDSet, executed))
	}
	return nil
}

// requireSchema returns an error if the only schema to restore was not created.
func (o RestoreOptions) requireSchema(ctx context.Context, t restoreTarget) error {
	if o.Schema == "" {
		return nil
	}
	schemas, err := queryColumn(ctx, t.Conn, schemasQuery)
	if err == nil && !slices.Contains(schemas, o.Schema) {
		err = fmt.Errorf("expected schema %q in the backup, or in the binary logs up to the restore point, found none; correct spec.restore.schema in a new MySQLCluster", o.Schema)
	}
	return err
}
