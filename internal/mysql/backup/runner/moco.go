// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/mysql/backup"
	"github.com/torpor-dev/torpor/internal/mysql/backup/binlogparser"
	"github.com/torpor-dev/torpor/internal/mysql/backup/mysqlshdump"
	"github.com/torpor-dev/torpor/internal/mysql/gtid"
)

// readMocoDump reads everything except the rows of a dump that MOCO made. Nothing is loaded from a dump that cannot be
// loaded completely.
func (o RestoreOptions) readMocoDump(ctx context.Context, s *storedBackup) error {
	object, err := s.from.GetObject(ctx, s.keys.Dump)
	if err != nil {
		return err
	}
	defer func() { _ = object.Close() }() // The object was only read.
	if s.shell, err = mysqlshdump.Read(object); err != nil {
		return refuseFormat(s.keys.Dump, err)
	}
	s.status.Time, s.status.GTIDSet = new(metav1.NewTime(s.keys.Moco.Time)), s.shell.GTIDSet
	s.hasZones = true // MOCO's servers have time zone tables.
	accounts, err := s.shell.Accounts()
	if err != nil {
		return refuseFormat(s.keys.Dump, err)
	}
	left := listUnrestoredNames()
	for _, a := range accounts {
		if !slices.Contains(left, a.User) {
			s.accounts = append(s.accounts, mysqlAccount{User: a.User, Host: a.Host, Create: a.Create, Grants: a.Grants})
		}
	}
	return nil
}

// refuseFormat returns an error for an object that cannot be read. A retry would not fix a wrong format.
func refuseFormat(key string, err error) error {
	err = fmt.Errorf("read %s: %w", key, err)
	if _, isFormat := errors.AsType[*mysqlshdump.FormatError](err); isFormat {
		return &RefusedError{err}
	}
	return err
}

// loadMocoDump writes the dump as SQL and loads it. The rows are counted while they are written, for the later
// comparison.
func (o RestoreOptions) loadMocoDump(ctx context.Context, t restoreTarget, from *storedBackup, archive io.Reader) (*leftOutParts, error) {
	read, write := io.Pipe()
	rows, ended := map[mysqlshdump.TableName]int64(nil), make(chan struct{})
	go func() {
		defer close(ended)
		var err error
		rows, err = from.shell.Write(write, archive, o.Schema)
		write.CloseWithError(err)
	}()
	source := &readErrorRecorder{from: read}
	left, err := loadSQL(ctx, t.host, o.Password, source, &dumpOutline{from: source, isShells: true})
	_ = read.Close() // Closing the pipe stops its writer.
	<-ended
	if err != nil {
		return nil, refuseFormat(from.keys.Dump, err)
	}
	// Without a version, only the names of definitions are compared.
	from.contents = &dumpContents{Rows: map[string]int64{}, Definitions: map[string]string{}}
	for name, count := range rows {
		from.contents.Rows[name.String()] = count
	}
	for _, object := range from.shell.Objects(o.Schema) {
		from.contents.Definitions[object.Kind+" "+mysqlshdump.QuoteName(object.Schema)+"."+mysqlshdump.QuoteName(object.Name)] = ""
	}
	return left, nil
}

// mocoLog matches the names of binary logs in MOCO's archive, which end with a number.
var mocoLog = regexp.MustCompile(`^(?:\./)?binlog/[^/]+\.\d{1,9}$`)

// maxMocoLogs limits the number of binary logs in an archive.
const maxMocoLogs = 100_000

// planMocoReplay plans to apply all binary logs that MOCO stored next to a dump. They end at the next dump.
func (o RestoreOptions) planMocoReplay(ctx context.Context, s *storedBackup, dump gtid.Set) error {
	moco := s.keys.Moco
	began := o.Clock.Now()
	s.replay = backup.ReplayPlan{Reached: moco.Time}
	if o.Point.Equal(moco.Time) {
		return nil
	}
	segments, err := readMocoLogs(ctx, s)
	if err != nil {
		return err
	}
	reached := moco.Next
	for _, segment := range segments {
		if !dump.Contains(segment.GTIDs) {
			s.replay.Segments = append(s.replay.Segments, segment)
		}
		if segment.Last.After(reached) {
			reached = segment.Last
		}
	}
	switch {
	case !reached.Before(o.Point):
		s.replay.Reached = o.Point
	case !o.Point.After(began):
		return &RefusedError{fmt.Errorf("expected MOCO's binary logs %s to reach the restore point %s, found them only until %s; "+
			"choose a restore point from %s until this time", moco.Binlogs, formatPoint(o.Point), formatPoint(reached), formatPoint(moco.Time))}
	case reached.After(moco.Time):
		s.replay.Reached = reached
	}
	return nil
}

// readMocoLogs reads the transaction sets of the binary logs in an archive.
func readMocoLogs(ctx context.Context, s *storedBackup) ([]backup.StoredSegment, error) {
	key := s.keys.Moco.Binlogs
	object, err := openPacked(ctx, s.from, key)
	if err != nil {
		return nil, err
	}
	defer object.close()
	var all []backup.StoredSegment
	entries := tar.NewReader(object.plain)
	for {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", key, err)
		}
		if !mocoLog.MatchString(entry.Name) {
			continue
		}
		header, err := binlogparser.ReadWholeLog(entries)
		if err != nil {
			return nil, fmt.Errorf("read %s of %s: %w", entry.Name, key, err)
		}
		if all = append(all, backup.StoredSegment{Key: key, File: entry.Name, SegmentHeader: header}); len(all) > maxMocoLogs {
			return nil, &RefusedError{fmt.Errorf("read %s: expected at most %d binary logs, found more", key, maxMocoLogs)}
		}
	}
	slices.SortFunc(all, func(a, b backup.StoredSegment) int { return mocoLogNumber(a.File) - mocoLogNumber(b.File) })
	for i := range len(all) - 1 {
		if mocoLogNumber(all[i+1].File) != mocoLogNumber(all[i].File)+1 {
			return nil, &RefusedError{fmt.Errorf("read %s: expected binary logs with consecutive numbers, found %s after %s",
				key, path.Base(all[i+1].File), path.Base(all[i].File))}
		}
	}
	return all, nil
}

func mocoLogNumber(file string) int {
	number, _ := strconv.Atoi(file[strings.LastIndex(file, ".")+1:]) // mocoLog has matched the digits.
	return number
}
