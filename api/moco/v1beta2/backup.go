// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BackupPolicy is when and how the MySQLClusters that name it are backed up.
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

// BackupPolicySpec says when and how backups are made.
type BackupPolicySpec struct {
	// Schedule is when backups are made.
	// +kubebuilder:validation:MinLength=1
	Schedule Schedule `json:"schedule"`
	// TimeZone of the schedule, as Europe/Berlin; none means that of the control plane.
	// +optional
	// +nullable
	TimeZone *string `json:"timeZone,omitempty"`
	// JobConfig is how a backup is made.
	JobConfig JobConfig `json:"jobConfig"`
	// StartingDeadlineSeconds is how late a backup may start.
	// +optional
	// +nullable
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`
	// ConcurrencyPolicy is what happens if the backup before has not ended.
	// +optional
	// +kubebuilder:default=Allow
	// +kubebuilder:validation:Enum=Allow;Forbid;Replace
	ConcurrencyPolicy string `json:"concurrencyPolicy,omitempty"`
	// ActiveDeadlineSeconds is how long a backup may take.
	// +optional
	// +nullable
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`
	// BackoffLimit is how often a backup is tried again.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`
	// SuccessfulJobsHistoryLimit is how many Jobs that ended well are kept.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	SuccessfulJobsHistoryLimit *int32 `json:"successfulJobsHistoryLimit,omitempty"`
	// FailedJobsHistoryLimit is how many Jobs that failed are kept.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=0
	FailedJobsHistoryLimit *int32 `json:"failedJobsHistoryLimit,omitempty"`
	// PointInTimeRecovery copies the binary logs into the bucket as they are written, so that a restore reaches every point in time.
	// Without it a restore has the newest backup before its point.
	// +optional
	PointInTimeRecovery *PointInTimeRecovery `json:"pointInTimeRecovery,omitempty"`
	// RetentionDays is how far back every backup is kept, and with binary logs every point can be restored. What is older goes, but for
	// the backup that the oldest point needs. None means that nothing is removed.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=36500
	RetentionDays *int32 `json:"retentionDays,omitempty"`
}

// PointInTimeRecovery says how binary logs are copied.
type PointInTimeRecovery struct {
	// IntervalSeconds is how often what is new is stored: how much is lost at most, beside the time of an upload, if all servers are.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	IntervalSeconds int32 `json:"intervalSeconds,omitempty"`
}

// Schedule is a time table in the five fields of cron, or one such as @daily; empty means none.
//
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule=`self.matches('(?i)^$|^((CRON_)?TZ=\\S+\\s+)?(@(yearly|annually|monthly|weekly|daily|midnight|hourly|every\\s+([0-9.]+(ns|us|ms|s|m|h))+)|([*?]|[0-5]?\\d(-\\w+)?)(/0*[1-9]\\d*)?(,([*?]|[0-5]?\\d(-\\w+)?)(/0*[1-9]\\d*)?)*\\s+([*?]|([01]?\\d|2[0-3])(-\\w+)?)(/0*[1-9]\\d*)?(,([*?]|([01]?\\d|2[0-3])(-\\w+)?)(/0*[1-9]\\d*)?)*\\s+([*?]|(0?[1-9]|[12]\\d|3[01])(-\\w+)?)(/0*[1-9]\\d*)?(,([*?]|(0?[1-9]|[12]\\d|3[01])(-\\w+)?)(/0*[1-9]\\d*)?)*\\s+([*?]|(0?[1-9]|1[0-2]|[a-z]{3})(-\\w+)?)(/0*[1-9]\\d*)?(,([*?]|(0?[1-9]|1[0-2]|[a-z]{3})(-\\w+)?)(/0*[1-9]\\d*)?)*\\s+([*?]|(0?[0-6]|[a-z]{3})(-\\w+)?)(/0*[1-9]\\d*)?(,([*?]|(0?[0-6]|[a-z]{3})(-\\w+)?)(/0*[1-9]\\d*)?)*)$')`,message=`expected minute, hour, day of month, month and day of week as for cron, or one such as @daily; try */5 * * * *`
type Schedule string

// JobConfig is how a Job reads or writes backups. Upstream requires a service account, a bucket and a work volume;
// its own example leaves them out, so they are asked for when a Job is made.
type JobConfig struct {
	// ServiceAccountName of the Pod.
	// +optional
	// +kubebuilder:validation:MinLength=1
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// BucketConfig is where backups are.
	// +optional
	BucketConfig *BucketConfig `json:"bucketConfig,omitempty"`
	// WorkVolume is the source of the volume for the working directory.
	// +optional
	WorkVolume *Kept `json:"workVolume,omitempty"`
	// Threads is how many threads the Job uses.
	// +optional
	// +kubebuilder:default=4
	// +kubebuilder:validation:Minimum=1
	Threads int `json:"threads,omitempty"`
	// CPU that the Pod requests.
	// +optional
	// +nullable
	// +kubebuilder:default=4
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// MaxCPU is the limit of the Pod.
	// +optional
	// +nullable
	MaxCPU *resource.Quantity `json:"maxCpu,omitempty"`
	// Memory that the Pod requests.
	// +optional
	// +nullable
	// +kubebuilder:default="4Gi"
	Memory *resource.Quantity `json:"memory,omitempty"`
	// MaxMemory is the limit of the Pod.
	// +optional
	// +nullable
	MaxMemory *resource.Quantity `json:"maxMemory,omitempty"`
	// EnvFrom are sources of environment variables.
	// +optional
	// +listType=atomic
	EnvFrom []Kept `json:"envFrom,omitempty"`
	// Env are environment variables.
	// +optional
	// +listType=atomic
	Env []Kept `json:"env,omitempty"`
	// Affinity of the Pod.
	// +optional
	Affinity *Kept `json:"affinity,omitempty"`
	// Volumes of the Pod.
	// +optional
	// +listType=atomic
	Volumes []Kept `json:"volumes,omitempty"`
	// VolumeMounts of the container.
	// +optional
	// +listType=atomic
	VolumeMounts []Kept `json:"volumeMounts,omitempty"`
}

// BucketConfig is a bucket of an object storage.
type BucketConfig struct {
	// BucketName is the name of the bucket.
	// +kubebuilder:validation:MinLength=1
	BucketName string `json:"bucketName"`
	// Region of the bucket.
	// +optional
	Region string `json:"region,omitempty"`
	// EndpointURL is the storage's URL, if it is not that of the cloud.
	// +optional
	// +kubebuilder:validation:Pattern="^https?://.*"
	EndpointURL string `json:"endpointURL,omitempty"`
	// UsePathStyle puts the bucket's name into the path instead of the host name.
	// +optional
	UsePathStyle bool `json:"usePathStyle,omitempty"`
	// BackendType is the storage's protocol.
	// +optional
	// +kubebuilder:default=s3
	// +kubebuilder:validation:Enum=s3;gcs;azure
	BackendType string `json:"backendType,omitempty"`
	// CACert is a file with the certificates that the storage is trusted by.
	// +optional
	CACert string `json:"caCert,omitempty"`
	// ServerSideEncryption asks the storage to encrypt what is written: AES256 with a key of its own, aws:kms with one of a key
	// management service. Empty means what the bucket does by itself.
	// +optional
	// +kubebuilder:validation:Enum=AES256;"aws:kms";"aws:kms:dsse"
	ServerSideEncryption string `json:"serverSideEncryption,omitempty"`
	// KMSKeyID names the key of aws:kms; empty means the account's own.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	KMSKeyID string `json:"kmsKeyID,omitempty"`
}

// Restore is which backup a new cluster is filled from.
type Restore struct {
	// SourceName is the name of the MySQLCluster that was backed up.
	// +kubebuilder:validation:MinLength=1
	SourceName string `json:"sourceName"`
	// SourceNamespace is its namespace.
	// +kubebuilder:validation:MinLength=1
	SourceNamespace string `json:"sourceNamespace"`
	// RestorePoint is the time whose data is wanted.
	RestorePoint metav1.Time `json:"restorePoint"`
	// JobConfig is how the backup is read.
	JobConfig JobConfig `json:"jobConfig"`
	// Schema is the only schema that is restored; empty means all.
	// +optional
	Schema string `json:"schema,omitempty"`
	// Users are the only users that are restored; none means all.
	// +optional
	// +listType=atomic
	Users RestoredUsers `json:"users,omitempty"`
}

// RestoredUsers are users as name or name@host. Upstream's schema has them in one string, separated by commas, and an object that
// cannot be read would keep its controllers from every other one.
type RestoredUsers []string

// UnmarshalJSON reads a list, or upstream's string.
func (u *RestoredUsers) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		return json.Unmarshal(data, (*[]string)(u))
	}
	*u = strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	return nil
}
