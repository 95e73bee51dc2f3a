// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

const (
	// timeFormat names backups, in UTC, so that names sort as times do. It is upstream's.
	timeFormat = "20060102-150405"
	recordFile = "backup.json"
)

// ObjectKeys are the names of one backup's objects.
type ObjectKeys struct {
	// Dump is compressed SQL, and Accounts are the users and their rights. Record exists when the other two are whole.
	Dump, Accounts, Record string
}

// ObjectPrefix begins the names of all backups of a cluster.
func ObjectPrefix(namespace, name string) string { return "moco/" + namespace + "/" + name + "/" }

// ObjectKeysAt names the objects of the backup of a time. The record is written last.
func ObjectKeysAt(namespace, name string, at time.Time) ObjectKeys {
	folder := ObjectPrefix(namespace, name) + at.UTC().Format(timeFormat)
	return ObjectKeys{Dump: folder + "/dump.sql.zst", Accounts: folder + "/accounts.json", Record: path.Join(folder, recordFile)}
}

// ChooseBackup returns the newest whole backup that is not after the point. keys are those below Prefix, in any order.
func ChooseBackup(keys []string, namespace, name string, point time.Time) (ObjectKeys, error) {
	var whole []time.Time
	for _, key := range keys {
		middle, ok := strings.CutPrefix(key, ObjectPrefix(namespace, name))
		if !ok {
			continue
		}
		if at, err := time.Parse(timeFormat+"/"+recordFile, middle); err == nil {
			whole = append(whole, at)
		}
	}
	slices.SortFunc(whole, time.Time.Compare)
	for _, at := range slices.Backward(whole) {
		if !at.After(point) {
			return ObjectKeysAt(namespace, name, at), nil
		}
	}
	found := "none at all; look at the bucket and at spec.restore.sourceNamespace and sourceName"
	if len(whole) > 0 {
		found = fmt.Sprintf("%d, the first of %s; choose a later restore point", len(whole), whole[0].Format(time.RFC3339))
	}
	return ObjectKeys{}, fmt.Errorf("expected a backup of %s/%s that is not after %s, found %s", namespace, name, point.UTC().Format(time.RFC3339), found)
}
