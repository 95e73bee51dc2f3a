// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// MySQLClusterStatus is what is known of the cluster. GuaranteedAcknowledgements, Pause, the records of stops and Instances are
// Torpor's own, the rest is upstream's.
type MySQLClusterStatus struct {
	// Conditions of the cluster; in the normal case every one is True.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// CurrentPrimaryIndex is the ordinal of the instance that is or becomes the primary.
	// +kubebuilder:default=0
	CurrentPrimaryIndex int `json:"currentPrimaryIndex"`
	// SyncedReplicas is how many instances are in sync, the primary included.
	// +optional
	SyncedReplicas int `json:"syncedReplicas,omitempty"`
	// ErrantReplicas is how many instances have transactions that the primary does not know.
	// +optional
	ErrantReplicas int `json:"errantReplicas,omitempty"`
	// ErrantReplicaList are their ordinals.
	// +optional
	// +listType=atomic
	ErrantReplicaList []int `json:"errantReplicaList,omitempty"`
	// GuaranteedAcknowledgements is how many replicas, as was observed, have every commit that a client was told of: half of spec.replicas,
	// rounded down, and fewer for a while after a start, after instances were added, or after somebody has changed how many MySQL awaits. A
	// failover needs spec.replicas less these instances with data, the primary not counted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GuaranteedAcknowledgements *int `json:"guaranteedAcknowledgements,omitempty"`
	// Backup is the last successful backup; before the first its time is null, which kubectl shows as <no value>.
	// +optional
	// +default={"time":null}
	Backup BackupStatus `json:"backup,omitzero"`
	// BinlogShipping is how far the binary logs are in the bucket, looked at once a minute; nothing if they are not copied.
	// +optional
	BinlogShipping *BinlogShippingStatus `json:"binlogShipping,omitempty"`
	// RestoredTime is when the data was restored.
	// +optional
	RestoredTime *metav1.Time `json:"restoredTime,omitempty"`
	// Cloned is true once the data was cloned from the server outside.
	// +optional
	Cloned bool `json:"cloned,omitempty"`
	// ReconcileInfo is what was reconciled last.
	// +optional
	ReconcileInfo ReconcileInfo `json:"reconcileInfo,omitzero"`
	// Pause is what somebody has stopped; nothing while all goes on.
	// +optional
	Pause *Pause `json:"pause,omitempty"`
	// ClusteringStops are the last stops of clustering, the newest first: who asked, why, until when, and who ended it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	ClusteringStops []torporv1alpha1.StopRecord `json:"clusteringStops,omitempty"`
	// ReconciliationStops are the last stops of reconciliation.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	ReconciliationStops []torporv1alpha1.StopRecord `json:"reconciliationStops,omitempty"`
	// InstanceStops are the last times that single instances were left alone.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	InstanceStops []torporv1alpha1.StopRecord `json:"instanceStops,omitempty"`
	// ScheduledStops are those of Slumbers, one entry each. No instance runs while one of them stops the cluster, whatever spec.offline says.
	// +optional
	// +listType=map
	// +listMapKey=slumber
	// +kubebuilder:validation:MaxItems=20
	ScheduledStops []torporv1alpha1.ScheduledStop `json:"scheduledStops,omitempty"`
	// OfflineSince is since when no instance is wanted to run and no Pod of one is left; nothing otherwise.
	// +optional
	OfflineSince *metav1.Time `json:"offlineSince,omitempty"`
	// Instances are the MySQL servers as they were seen last, also while clustering is stopped.
	// +optional
	// +listType=map
	// +listMapKey=ordinal
	Instances []InstanceStatus `json:"instances,omitempty"`
}

// Primary is the ordinal of the primary that was chosen, and whether one was. CurrentPrimaryIndex alone does not tell: it is
// 0 from the beginning. The role is written together with it.
func (s *MySQLClusterStatus) Primary() (int, bool) {
	for _, i := range s.Instances {
		if i.Role == RolePrimary && i.Ordinal == s.CurrentPrimaryIndex {
			return i.Ordinal, true
		}
	}
	return 0, false
}

// InstanceCount is how many instances there are or should be. None is taken away, which upstream's schema leaves to a webhook, as it does
// with replicas out of bounds: they count for nothing, since memory is taken for each.
func (c *MySQLCluster) InstanceCount() int {
	n := 0
	if c.Spec.HasPossibleReplicas() {
		n = int(c.Spec.Replicas)
	}
	for _, i := range c.Status.Instances {
		n = max(n, i.Ordinal+1)
	}
	return n
}

// StartupWait is how long a server may take to start: 10 seconds at least, as upstream has it, since none starts at once.
func (c *MySQLCluster) StartupWait() time.Duration {
	return max(time.Duration(c.Spec.StartupWaitSeconds)*time.Second, 10*time.Second)
}

// BinlogShippingStatus is how far the binary logs are in the bucket.
type BinlogShippingStatus struct {
	// ShippedUntil is up to when every commit is in the bucket.
	// +optional
	ShippedUntil *metav1.Time `json:"shippedUntil,omitempty"`
	// RestorableSince is the first point that can be restored, and with it all until ShippedUntil. Nothing before the first backup, and
	// none after a gap in the binary logs until the next backup.
	// +optional
	RestorableSince *metav1.Time `json:"restorableSince,omitempty"`
	// SourceIndex is the ordinal of the instance whose binary logs are copied.
	// +optional
	SourceIndex int `json:"sourceIndex"`
	// Problem is what keeps the copy from going on.
	// +optional
	Problem string `json:"problem,omitempty"`
}

// BackupStatus is the last successful backup.
type BackupStatus struct {
	// Time of the backup; objects in the bucket are named after it.
	// +optional
	// +nullable
	Time *metav1.Time `json:"time"`
	// Elapsed is how long it took.
	// +optional
	Elapsed metav1.Duration `json:"elapsed,omitzero"`
	// SourceIndex is the ordinal of the instance that was backed up.
	// +optional
	SourceIndex int `json:"sourceIndex"`
	// SourceUUID is its server_uuid.
	// +optional
	SourceUUID string `json:"sourceUUID,omitempty"`
	// UUIDSet are the server_uuids of the instances that could have been backed up, by ordinal.
	// +optional
	UUIDSet map[string]string `json:"uuidSet,omitempty"`
	// BinlogFilename is the binary log that was written at that time.
	// +optional
	BinlogFilename string `json:"binlogFilename,omitempty"`
	// GTIDSet are the transactions in the dump.
	// +optional
	GTIDSet string `json:"gtidSet,omitempty"`
	// DumpSize is the size of the dump in the bucket, in bytes.
	// +optional
	DumpSize int64 `json:"dumpSize"`
	// BinlogSize is the size of the binary logs in the bucket, in bytes.
	// +optional
	BinlogSize int64 `json:"binlogSize"`
	// WorkDirUsage is the most that the working directory held, in bytes.
	// +optional
	WorkDirUsage int64 `json:"workDirUsage"`
	// Warnings of the backup.
	// +optional
	// +nullable
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}

// ReconcileInfo is what was reconciled last.
type ReconcileInfo struct {
	// Generation of the MySQLCluster.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// ReconcileVersion is the version of the reconciler.
	// +optional
	ReconcileVersion int `json:"reconcileVersion,omitempty"`
}

// Pause is what somebody has stopped.
type Pause struct {
	// Clustering is set while clustering should be stopped.
	// +optional
	Clustering *Stop `json:"clustering,omitempty"`
	// Reconciliation is set while reconciliation should be stopped.
	// +optional
	Reconciliation *Stop `json:"reconciliation,omitempty"`
	// Quiescing is the operation, such as a switchover, that is brought to a safe point before clustering stops;
	// empty means that clustering rests or goes on.
	// +optional
	Quiescing string `json:"quiescing,omitempty"`
	// Unfinished is what could not be brought to a safe point in time before clustering stopped; empty means nothing.
	// +optional
	Unfinished string `json:"unfinished,omitempty"`
	// ObservedAt is when the instances were looked at last while clustering is stopped: status.instances and what stands
	// below is of that time.
	// +optional
	ObservedAt *metav1.Time `json:"observedAt,omitempty"`
	// LookRequest is the value of the annotation torpor.dev/look-requested when that look began.
	// +optional
	LookRequest string `json:"lookRequest,omitempty"`
	// State is what the cluster looks like while clustering is stopped, such as Healthy.
	// +optional
	State string `json:"state,omitempty"`
	// StartFindings are what a start of clustering would meet, the reasons to refuse it first.
	// +optional
	// +listType=atomic
	StartFindings []StartFinding `json:"startFindings,omitempty"`
}

// StartFinding is something that a start of clustering would meet.
type StartFinding struct {
	// Severity is refuse or warn.
	Severity string `json:"severity"`
	// Message says what was found, and what a start does about it.
	Message string `json:"message"`
	// Remedy is what to do before a start.
	Remedy string `json:"remedy"`
}

// Stop is who stopped something, when and why.
type Stop struct {
	// Since is when Torpor saw it first.
	Since metav1.Time `json:"since"`
	// By is who set the annotation; "unknown", with the field manager where there is one, if no admission noted that.
	// +optional
	By string `json:"by,omitempty"`
	// Reason is that of the annotation torpor.dev/reason.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Until is when it ends by itself, as the annotation torpor.dev/until says.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// InstanceStatus is a MySQL server as it was seen last. What could not be asked is left out.
type InstanceStatus struct {
	// Ordinal of the instance, as in the name of its Pod.
	Ordinal int `json:"ordinal"`
	// Role that the instance has.
	// +optional
	Role Role `json:"role,omitempty"`
	// Stopped is true while clustering leaves this instance alone.
	// +optional
	Stopped bool `json:"stopped,omitempty"`
	// Writable is whether the instance takes writes. Two writable instances are a danger.
	// +optional
	Writable *bool `json:"writable,omitempty"`
	// ExecutedGTIDs are the transactions that the instance has executed, as gtid_executed.
	// +optional
	ExecutedGTIDs string `json:"executedGTIDs,omitempty"`
	// ErrantGTIDs are those that the primary does not know and that are not under the primary's UUID.
	// +optional
	ErrantGTIDs string `json:"errantGTIDs,omitempty"`
	// AheadGTIDs are those under the primary's UUID that the primary has not executed: when it does, this instance
	// skips them and misses their rows.
	// +optional
	AheadGTIDs string `json:"aheadGTIDs,omitempty"`
	// MissingGTIDs are those that the instance has not and that the primary has deleted from its binary logs: it cannot
	// follow and needs a copy.
	// +optional
	MissingGTIDs string `json:"missingGTIDs,omitempty"`
	// DiscardedGTIDs are those that only this instance had and that it lost when it was cloned anew. Nobody was told that they
	// were safe.
	// +optional
	DiscardedGTIDs string `json:"discardedGTIDs,omitempty"`
	// LagSeconds is how far the instance is behind the primary.
	// +optional
	LagSeconds *int64 `json:"lagSeconds,omitempty"`
	// IOThread is the state of the thread that receives transactions: Yes, No or Connecting.
	// +optional
	IOThread string `json:"ioThread,omitempty"`
	// SQLThread is the state of the thread that applies transactions: Yes or No.
	// +optional
	SQLThread string `json:"sqlThread,omitempty"`
	// Message says what is wrong with the instance and what to do; empty means nothing.
	// +optional
	Message string `json:"message,omitempty"`
}
