// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
)

const (
	// volumeFolder is where a volume with backups is mounted.
	volumeFolder = "/backup"
	s3           = "s3"
	volumeName   = "torpor-backup"
)

var errNoStorage = errors.New("jobConfig: expected bucketConfig, the bucket for the backups, or workVolume, the volume for them, found neither; add one")

type backupStorage struct {
	// flags are those of the program.
	flags []string
	// volume for the backups, if they are not in a bucket.
	volume *corev1.VolumeSource
}

// parseStorage prefers a bucket. The work volume is not needed then, since everything is streamed.
func parseStorage(job mocov1beta2.JobConfig) (backupStorage, error) {
	if b := job.BucketConfig; b != nil {
		return parseBucket(*b)
	}
	if job.WorkVolume == nil {
		return backupStorage{}, errNoStorage
	}
	var volume corev1.VolumeSource
	if err := decodeKept(*job.WorkVolume, &volume, "workVolume"); err != nil {
		return backupStorage{}, err
	}
	if volume.EmptyDir != nil || volume.Ephemeral != nil {
		return backupStorage{}, errors.New("jobConfig.workVolume: expected a volume that stays, because the backups go there without a bucketConfig, found one that ends with the Pod; " +
			"take a persistentVolumeClaim, or add a bucketConfig")
	}
	return backupStorage{flags: []string{"--folder=" + volumeFolder}, volume: &volume}, nil
}

func parseBucket(b mocov1beta2.BucketConfig) (backupStorage, error) {
	if b.BackendType != "" && b.BackendType != s3 {
		return backupStorage{}, fmt.Errorf("jobConfig.bucketConfig.backendType: expected s3, found %s, which Torpor does not support; use a bucket with S3's protocol", b.BackendType)
	}
	s := backupStorage{flags: []string{"--bucket=" + b.BucketName}}
	for _, f := range []struct{ name, value string }{
		{"region", b.Region}, {"endpoint", b.EndpointURL}, {"ca-cert", b.CACert},
	} {
		if f.value != "" {
			s.flags = append(s.flags, "--"+f.name+"="+f.value)
		}
	}
	if b.UsePathStyle {
		s.flags = append(s.flags, "--path-style")
	}
	return s, nil
}

// decodeKept reads an object of another API that was kept as it was written.
func decodeKept[T any](kept mocov1beta2.Kept, into *T, field string) error {
	if err := json.Unmarshal(kept.Raw, into); err != nil {
		return fmt.Errorf("jobConfig.%s: expected it as in a Pod: %w", field, err)
	}
	return nil
}

func decodeKeptList[T any](kept []mocov1beta2.Kept, field string) ([]T, error) {
	var all []T
	for i, k := range kept {
		var one T
		if err := decodeKept(k, &one, fmt.Sprintf("%s[%d]", field, i)); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

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

// maxMessage is how much of a termination message the kubelet keeps, in bytes.
const maxMessage = 4096

// FormatResult returns the termination message of a container that backed up. What does not fit is left out, with a
// warning; the record in the bucket has all of it.
func FormatResult(status mocov1beta2.BackupStatus) (string, error) {
	for _, shrink := range []func(){
		func() {},
		func() { status.UUIDSet = nil },
		func() {
			status.GTIDSet = ""
			status.Warnings = []string{fmt.Sprintf("the GTID set and %d warnings are too long to be shown; they are in the bucket", len(status.Warnings))}
		},
	} {
		shrink()
		text, err := json.Marshal(status)
		if err != nil {
			return "", fmt.Errorf("encode the result: %w", err)
		}
		if len(text) <= maxMessage {
			return string(text), nil
		}
	}
	return "", fmt.Errorf("expected a result of at most %d bytes, found more without its GTID set", maxMessage)
}

// ParseResult reads what FormatResult wrote.
func ParseResult(text string) (mocov1beta2.BackupStatus, error) {
	var status mocov1beta2.BackupStatus
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return status, fmt.Errorf("expected the result of a backup as JSON, found %d bytes that are none: %w", len(text), err)
	}
	if status.Time == nil {
		return status, fmt.Errorf("expected the result of a backup, found JSON without its time")
	}
	return status, nil
}
