// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BackupPolicy defines when and how the MySQLClusters that reference it are backed up.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=backuppolicies,singular=backuppolicy,scope=Namespaced
type BackupPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec BackupPolicySpec `json:"spec"`
}

// BackupPolicyList is a list of BackupPolicies.
//
// +kubebuilder:object:root=true
type BackupPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BackupPolicy `json:"items"`
}

// BackupPolicySpec defines when and how backups are made.
type BackupPolicySpec struct {
	// Schedule is the schedule of the backups.
	// +kubebuilder:validation:MinLength=1
	Schedule Schedule `json:"schedule"`
	// TimeZone is the time zone of the schedule, such as Europe/Berlin. It defaults to the time zone of the control plane.
	// +optional
	// +nullable
	TimeZone *string `json:"timeZone,omitempty"`
	// JobConfig configures the Jobs that make backups, and the copying of binary logs.
	JobConfig JobConfig `json:"jobConfig"`
	// StartingDeadlineSeconds limits how late a backup may start after its scheduled time.
	// +optional
	// +nullable
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`
	// ConcurrencyPolicy defines what happens if the previous backup has not ended, as in a CronJob.
	// +optional
	// +kubebuilder:default=Allow
	// +kubebuilder:validation:Enum=Allow;Forbid;Replace
	ConcurrencyPolicy string `json:"concurrencyPolicy,omitempty"`
	// ActiveDeadlineSeconds limits how long a backup may take.
	// +optional
	// +nullable
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`
	// BackoffLimit is the maximum number of retries of a failed backup.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`
	// SuccessfulJobsHistoryLimit is the number of successful Jobs that are kept. 0 counts as 1.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	SuccessfulJobsHistoryLimit *int32 `json:"successfulJobsHistoryLimit,omitempty"`
	// FailedJobsHistoryLimit is the number of failed Jobs that are kept.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	FailedJobsHistoryLimit *int32 `json:"failedJobsHistoryLimit,omitempty"`
	// PointInTimeRecovery configures the copying of binary logs to the bucket, so that every point in time can be
	// restored. If it is unset and a bucket is configured, the default settings apply.
	// +optional
	PointInTimeRecovery *PointInTimeRecovery `json:"pointInTimeRecovery,omitempty"`
	// RetentionDays is the number of days for which backups and binary logs are kept. Older backups and logs are
	// deleted, except those that the oldest restorable point needs. If RetentionDays is unset, nothing is deleted.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=36500
	RetentionDays *int32 `json:"retentionDays,omitempty"`
}

// PointInTimeRecovery configures the copying of binary logs.
type PointInTimeRecovery struct {
	// Disabled ends the copying of binary logs. From the next backup on, a restore uses only the newest backup before
	// the requested point.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
	// IntervalSeconds is the interval at which new binary log events are copied to the bucket. If all servers are lost,
	// the transactions of up to one interval and one upload are lost.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	IntervalSeconds int32 `json:"intervalSeconds,omitempty"`
}

// defaultShippingSeconds is the default of spec.pointInTimeRecovery.intervalSeconds.
const defaultShippingSeconds = 5

// ShippingInterval returns the interval at which new binary log events are copied to the bucket, or 0 if they are not
// copied.
func (s *BackupPolicySpec) ShippingInterval() time.Duration {
	switch p := s.PointInTimeRecovery; {
	case p == nil && s.JobConfig.BucketConfig == nil, p != nil && p.Disabled:
		return 0
	case p == nil:
		return defaultShippingSeconds * time.Second
	default:
		return time.Duration(cmp.Or(p.IntervalSeconds, defaultShippingSeconds)) * time.Second
	}
}

// Schedule is a cron expression with five fields, or a shorthand such as @daily. Empty means no schedule.
//
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule=`self.matches('(?i)^$|^((CRON_)?TZ=\\S+\\s+)?(@(yearly|annually|monthly|weekly|daily|midnight|hourly|every\\s+([0-9.]+(ns|us|ms|s|m|h))+)|([*?]|[0-5]?\\d(-\\w+)?)(/0*[1-9]\\d*)?(,([*?]|[0-5]?\\d(-\\w+)?)(/0*[1-9]\\d*)?)*\\s+([*?]|([01]?\\d|2[0-3])(-\\w+)?)(/0*[1-9]\\d*)?(,([*?]|([01]?\\d|2[0-3])(-\\w+)?)(/0*[1-9]\\d*)?)*\\s+([*?]|(0?[1-9]|[12]\\d|3[01])(-\\w+)?)(/0*[1-9]\\d*)?(,([*?]|(0?[1-9]|[12]\\d|3[01])(-\\w+)?)(/0*[1-9]\\d*)?)*\\s+([*?]|(0?[1-9]|1[0-2]|[a-z]{3})(-\\w+)?)(/0*[1-9]\\d*)?(,([*?]|(0?[1-9]|1[0-2]|[a-z]{3})(-\\w+)?)(/0*[1-9]\\d*)?)*\\s+([*?]|(0?[0-6]|[a-z]{3})(-\\w+)?)(/0*[1-9]\\d*)?(,([*?]|(0?[0-6]|[a-z]{3})(-\\w+)?)(/0*[1-9]\\d*)?)*)$')`,message=`expected the five fields of cron (minute, hour, day of month, month and day of week), or a descriptor such as @daily; try */5 * * * *`
type Schedule string

// JobConfig configures a Job that reads or writes backups. MOCO's schema requires a service account, a bucket and a
// work volume, but its examples omit them. Torpor requires a bucket or a work volume, and checks this when it creates a
// Job.
type JobConfig struct {
	// ServiceAccountName is the service account of the Pod.
	// +optional
	// +kubebuilder:validation:MinLength=1
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// BucketConfig identifies the bucket of the backups.
	// +optional
	BucketConfig *BucketConfig `json:"bucketConfig,omitempty"`
	// WorkVolume is the source of the volume that stores the backups. It is ignored if BucketConfig is set.
	// +optional
	WorkVolume *Kept `json:"workVolume,omitempty"`
	// Threads is a field of MOCO, which Torpor preserves and does not use.
	// +optional
	// +kubebuilder:default=4
	// +kubebuilder:validation:Minimum=1
	Threads int `json:"threads,omitempty"`
	// CPU is the CPU request of the Pod.
	// +optional
	// +nullable
	// +kubebuilder:default=4
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// MaxCPU is the CPU limit of the Pod.
	// +optional
	// +nullable
	MaxCPU *resource.Quantity `json:"maxCpu,omitempty"`
	// Memory is the memory request of the Pod.
	// +optional
	// +nullable
	// +kubebuilder:default="4Gi"
	Memory *resource.Quantity `json:"memory,omitempty"`
	// MaxMemory is the memory limit of the Pod.
	// +optional
	// +nullable
	MaxMemory *resource.Quantity `json:"maxMemory,omitempty"`
	// EnvFrom are sources of environment variables of the container.
	// +optional
	// +listType=atomic
	EnvFrom []Kept `json:"envFrom,omitempty"`
	// Env are environment variables of the container.
	// +optional
	// +listType=atomic
	Env []Kept `json:"env,omitempty"`
	// Affinity is the affinity of the Pod.
	// +optional
	Affinity *Kept `json:"affinity,omitempty"`
	// Volumes are additional volumes of the Pod.
	// +optional
	// +listType=atomic
	Volumes []Kept `json:"volumes,omitempty"`
	// VolumeMounts are additional volume mounts of the container.
	// +optional
	// +listType=atomic
	VolumeMounts []Kept `json:"volumeMounts,omitempty"`
}

// BucketConfig identifies a bucket of an object storage.
type BucketConfig struct {
	// BucketName is the name of the bucket.
	// +kubebuilder:validation:MinLength=1
	BucketName string `json:"bucketName"`
	// Region is the region of the bucket.
	// +optional
	Region string `json:"region,omitempty"`
	// EndpointURL is the URL of the storage. Empty means Amazon S3 in the Region.
	// +optional
	// +kubebuilder:validation:Pattern="^https?://.*"
	EndpointURL string `json:"endpointURL,omitempty"`
	// UsePathStyle puts the name of the bucket into the path of requests instead of the host name.
	// +optional
	UsePathStyle bool `json:"usePathStyle,omitempty"`
	// BackendType is the protocol of the storage. Torpor supports only s3.
	// +optional
	// +kubebuilder:default=s3
	// +kubebuilder:validation:Enum=s3;gcs;azure
	BackendType string `json:"backendType,omitempty"`
	// CACert is the path of a file with the CA certificates of the storage.
	// +optional
	CACert string `json:"caCert,omitempty"`
	// ServerSideEncryption requests encryption by the storage: AES256 with a key of the storage, or aws:kms or
	// aws:kms:dsse with a key of a key management service. Empty means the default of the bucket.
	// +optional
	// +kubebuilder:validation:Enum=AES256;"aws:kms";"aws:kms:dsse"
	ServerSideEncryption string `json:"serverSideEncryption,omitempty"`
	// KMSKeyID identifies the key for aws:kms and aws:kms:dsse. Empty means the default key of the account.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	KMSKeyID string `json:"kmsKeyID,omitempty"`
}

// Restore identifies the backup whose data a new cluster gets.
type Restore struct {
	// SourceName is the name of the MySQLCluster that was backed up.
	// +kubebuilder:validation:MinLength=1
	SourceName string `json:"sourceName"`
	// SourceNamespace is the namespace of that MySQLCluster.
	// +kubebuilder:validation:MinLength=1
	SourceNamespace string `json:"sourceNamespace"`
	// RestorePoint is the point in time whose data is restored.
	RestorePoint metav1.Time `json:"restorePoint"`
	// JobConfig configures the Job that reads the backup.
	JobConfig JobConfig `json:"jobConfig"`
	// Schema is the only schema that is restored. Empty means all schemas.
	// +optional
	Schema string `json:"schema,omitempty"`
	// Users are the only users that are restored, as name or name@host. Empty means all users. The value is a list, or
	// one comma-separated string, as in MOCO's schema.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Users *RestoredUsers `json:"users,omitempty"`
	// OnError defines what happens if MySQL rejects a part of the backup, such as a view or an account. Skip, the
	// default, restores the other parts, and the condition RestoreComplete lists the missing parts. Fail makes
	// the restore fail without a retry.
	// +optional
	OnError RestoreErrorPolicy `json:"onError,omitempty"`
}

// RestoreErrorPolicy defines what a restore does if MySQL rejects a part of the backup.
// +kubebuilder:validation:Enum=Fail;Skip
type RestoreErrorPolicy string

const (
	// SkipOnRestoreError skips the rejected part.
	SkipOnRestoreError RestoreErrorPolicy = "Skip"
	// FailOnRestoreError makes the restore fail without a retry.
	FailOnRestoreError RestoreErrorPolicy = "Fail"
)

// RestoredUsers holds the value of spec.restore.users as it was written. Decoding accepts any value, because one
// MySQLCluster that cannot be decoded would stop the controllers for all MySQLClusters. Encoding writes the value
// unchanged, because spec.restore is immutable.
type RestoredUsers struct {
	// Raw is the JSON text of the value.
	Raw []byte `json:"-"`
}

const (
	// maxRestoredUsers is the maximum number of users of a restore.
	maxRestoredUsers = 256
	// maxRestoredUser is the maximum length of a user in bytes. It leaves room for a name of 32 characters, a host of
	// 255, and quotes.
	maxRestoredUser = 512
)

// UnmarshalJSON implements json.Unmarshaler.
func (u *RestoredUsers) UnmarshalJSON(data []byte) error {
	u.Raw = bytes.Clone(data)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (u *RestoredUsers) MarshalJSON() ([]byte, error) {
	if len(u.Raw) == 0 {
		return []byte("null"), nil
	}
	return u.Raw, nil
}

// Names returns the users as a list.
func (u *RestoredUsers) Names() ([]string, error) {
	const next = "create a new MySQLCluster with a list of names, or with one string that separates them by commas"
	if u == nil || len(u.Raw) == 0 || string(u.Raw) == "null" || string(u.Raw) == `""` {
		return nil, nil
	}
	var text string
	var names []string
	if json.Unmarshal(u.Raw, &text) == nil {
		names = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
		if len(names) == 0 {
			return nil, errors.New("users: expected the names of users, found a string without a name; " + next)
		}
	} else if json.Unmarshal(u.Raw, &names) != nil {
		return nil, errors.New("users: expected a list of names or a string, found another JSON type; " + next)
	}
	if len(names) > maxRestoredUsers {
		return nil, fmt.Errorf("users: expected at most %d names, found %d; %s", maxRestoredUsers, len(names), next)
	}
	if i := slices.IndexFunc(names, func(name string) bool { return name == "" || len(name) > maxRestoredUser }); i >= 0 {
		return nil, fmt.Errorf("users[%d]: expected a name of 1 to %d bytes, found %d; %s",
			i, maxRestoredUser, len(names[i]), next)
	}
	return names, nil
}
