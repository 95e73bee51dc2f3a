// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"encoding/json"
	"errors"
	"fmt"

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

// backupStorage is where the backups are.
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
