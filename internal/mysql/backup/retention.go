// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"slices"
	"strings"
	"time"
)

// ExpiredKeys returns the keys of a cluster's backups and binary logs that may be deleted, in order of deletion. The
// record of a backup is deleted first, so a partly deleted backup never counts as a backup. Objects created since the
// cutoff are kept. The newest complete backup before the cutoff and its binary logs are kept too, because a restore to
// a time soon after the cutoff needs them. If no complete backup is as old as the cutoff, nothing expires.
func ExpiredKeys(backups, segments []string, namespace, name string, cutoff time.Time) []string {
	whole := wholeBackups(backups, namespace, name)
	base := slices.IndexFunc(whole, cutoff.Before)
	if base < 0 {
		base = len(whole)
	}
	if base == 0 { // There is no backup that is as old as the cutoff.
		return nil
	}
	oldest := whole[base-1]
	var expired []string
	for _, at := range whole[:base-1] {
		keys := ObjectKeysAt(namespace, name, at)
		expired = append(expired, keys.Record, keys.Accounts, keys.Dump)
	}
	for _, key := range segments {
		if at, ok := SegmentTime(key); ok && at.Add(MaxSegmentSpan+clockTolerance).Before(oldest) {
			expired = append(expired, key)
		}
	}
	return expired
}

// wholeBackups returns the times of the complete backups, which have a record, oldest first.
func wholeBackups(keys []string, namespace, name string) []time.Time {
	return backupsWith(recordFile, keys, namespace, name)
}

// backupsWith returns the times of the backups with a given file, oldest first.
func backupsWith(file string, keys []string, namespace, name string) []time.Time {
	var whole []time.Time
	for _, key := range keys {
		middle, ok := strings.CutPrefix(key, ObjectPrefix(namespace, name))
		if !ok {
			continue
		}
		if at, err := time.Parse(timeFormat+"/"+file, middle); err == nil {
			whole = append(whole, at)
		}
	}
	slices.SortFunc(whole, time.Time.Compare)
	return whole
}
