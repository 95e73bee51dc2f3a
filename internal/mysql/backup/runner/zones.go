// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
)

const (
	// zoneInfoFolder is the folder of the time zone database.
	zoneInfoFolder = "/usr/share/zoneinfo"
	// knowsZonesQuery returns 1 if the server has named time zones.
	knowsZonesQuery = "select exists (select 1 from mysql.time_zone_name)"
)

// loadTimeZones loads the time zone tables if the source had them and the target does not, because events and
// statements of the source may use named time zones. Without the tables, only these events and statements fail, so a
// failure to load the tables is merely logged.
func (o RestoreOptions) loadTimeZones(ctx context.Context, t restoreTarget, from storedBackup) error {
	var known bool
	if err := t.queryValue(ctx, &known, knowsZonesQuery); err != nil || known || !from.hasZones {
		return err
	}
	if err := o.runZoneLoader(ctx, t.host); err != nil {
		o.Log.Warn("Did not load the time zone tables", "problem", err.Error())
		return ctx.Err()
	}
	o.Log.Info("Loaded the time zone tables, because the source has them")
	return nil
}

func (o RestoreOptions) runZoneLoader(ctx context.Context, host string) (err error) {
	options, err := writeOptionFile(host, RestoreUser, o.Password)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, options.removeFolder()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	read := clientCommand(ctx, "mysql_tzinfo_to_sql", []string{cmp.Or(o.ZoneInfo, zoneInfoFolder)})
	load := clientCommand(ctx, "mysql", loadFlags(options, writingSession+outsideBinlogs, "mysql"))
	var readComplaints, loadComplaints bytes.Buffer
	read.Stderr, load.Stderr = &limitedBuffer{to: &readComplaints, left: maxComplaint}, &limitedBuffer{to: &loadComplaints, left: maxComplaint}
	if load.Stdin, err = read.StdoutPipe(); err != nil {
		return fmt.Errorf("prepare mysql_tzinfo_to_sql: %w", err)
	}
	if err := read.Start(); err != nil {
		return fmt.Errorf("start mysql_tzinfo_to_sql: %w", err)
	}
	loadErr := load.Run()
	if loadErr != nil {
		cancel()
	}
	readErr := read.Wait()
	if loadErr != nil {
		return describeClientError(loadErr, loadComplaints.String(), "the time zone tables")
	}
	if readErr != nil {
		return fmt.Errorf("mysql_tzinfo_to_sql: %w: %s", readErr, strings.TrimSpace(readComplaints.String()))
	}
	return nil
}
