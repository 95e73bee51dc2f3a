// SPDX-License-Identifier: Apache-2.0

package v1beta2

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// MySQLClusterStatus is the observed state of a MySQLCluster. MOCO does not have the fields GuaranteedAcknowledgements,
// BinlogShipping, Pause, OfflineSince, Instances and the records of stops.
type MySQLClusterStatus struct {
	// Conditions are the conditions of the cluster.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// CurrentPrimaryIndex is the ordinal of the primary, or of the instance that is becoming the primary. It is
	// initially 0.
	// +kubebuilder:default=0
	CurrentPrimaryIndex int `json:"currentPrimaryIndex"`
	// SyncedReplicas is the number of instances in sync, including the primary.
	// +optional
	SyncedReplicas int `json:"syncedReplicas,omitempty"`
	// ErrantReplicas is the number of instances with transactions that the primary lacks and did not create.
	// +optional
	ErrantReplicas int `json:"errantReplicas,omitempty"`
	// ErrantReplicaList holds the ordinals of the errant replicas.
	// +optional
	// +listType=atomic
	ErrantReplicaList []int `json:"errantReplicaList,omitempty"`
	// GuaranteedAcknowledgements is the number of replicas that are known to hold every acknowledged commit: half of
	// spec.replicas, rounded down, or fewer for some time after a start and after instances were added. A failover
	// needs the GTID sets of at least (spec.replicas - guaranteedAcknowledgements) replicas with data, not counting the
	// primary. In a copy of an external server, the number is 0 and not used.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GuaranteedAcknowledgements *int `json:"guaranteedAcknowledgements,omitempty"`
	// Backup describes the last successful backup. Before the first backup, its time is null, which kubectl prints as
	// <no value>.
	// +optional
	// +default={"time":null}
	Backup BackupStatus `json:"backup,omitzero"`
	// BinlogShipping is the progress of copying binary logs to the bucket, updated once a minute. It is unset if binary
	// logs are not copied.
	// +optional
	BinlogShipping *BinlogShippingStatus `json:"binlogShipping,omitempty"`
	// RestoredTime is the time at which the data was restored.
	// +optional
	RestoredTime *metav1.Time `json:"restoredTime,omitempty"`
	// Cloned is true once the data was cloned from the external server.
	// +optional
	Cloned bool `json:"cloned,omitempty"`
	// ReconcileInfo describes the last successful reconciliation.
	// +optional
	ReconcileInfo ReconcileInfo `json:"reconcileInfo,omitzero"`
	// Pause describes the stops of clustering and of reconciliation. It is unset while neither is stopped.
	// +optional
	Pause *Pause `json:"pause,omitempty"`
	// ClusteringStops are the last stops of clustering, newest first: requester, reason, end, and the user who ended each stop.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	ClusteringStops []torporv1alpha1.StopRecord `json:"clusteringStops,omitempty"`
	// ReconciliationStops are the last stops of reconciliation, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	ReconciliationStops []torporv1alpha1.StopRecord `json:"reconciliationStops,omitempty"`
	// InstanceStops are the last stops of clustering for single instances, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	InstanceStops []torporv1alpha1.StopRecord `json:"instanceStops,omitempty"`
	// ScheduledStops holds one entry for each Slumber that has stopped the cluster. No instance runs while at least one
	// of these Slumbers stops the cluster, regardless of spec.offline.
	// +optional
	// +listType=map
	// +listMapKey=slumber
	// +kubebuilder:validation:MaxItems=20
	ScheduledStops []torporv1alpha1.ScheduledStop `json:"scheduledStops,omitempty"`
	// OfflineSince is the time since which the cluster is offline and has no Pod. It is unset otherwise.
	// +optional
	OfflineSince *metav1.Time `json:"offlineSince,omitempty"`
	// Instances are the last observed states of the MySQL servers. They are also updated while clustering is stopped.
	// +optional
	// +listType=map
	// +listMapKey=ordinal
	Instances []InstanceStatus `json:"instances,omitempty"`
}

// Primary returns the ordinal of the primary, and whether a primary has been chosen. CurrentPrimaryIndex alone does not
// show whether one was chosen, because it is initially 0. The role of the instance is written together with the index.
func (s *MySQLClusterStatus) Primary() (int, bool) {
	for _, i := range s.Instances {
		if i.Role == RolePrimary && i.Ordinal == s.CurrentPrimaryIndex {
			return i.Ordinal, true
		}
	}
	return 0, false
}

// InstanceCount returns the number of instances that exist or should exist. MOCO's schema leaves the validation of
// spec.replicas to a webhook. Therefore a decrease does not remove instances here, and a value out of bounds counts as
// 0, because memory is allocated for each instance.
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

// StartupWait returns how long mysqld may take to start: at least 10 seconds, as in MOCO.
func (c *MySQLCluster) StartupWait() time.Duration {
	return max(time.Duration(c.Spec.StartupWaitSeconds)*time.Second, 10*time.Second)
}

// BinlogShippingStatus is the progress of copying binary logs to the bucket.
type BinlogShippingStatus struct {
	// ShippedUntil is the time up to which every commit is in the bucket.
	// +optional
	ShippedUntil *metav1.Time `json:"shippedUntil,omitempty"`
	// RestorableSince is the first point in time that can be restored. Every later point up to ShippedUntil can be
	// restored, too. RestorableSince is unset before the first backup, and after a gap in the binary logs until the
	// next backup.
	// +optional
	RestorableSince *metav1.Time `json:"restorableSince,omitempty"`
	// SourceIndex is the ordinal of the instance whose binary logs are copied.
	// +optional
	SourceIndex int `json:"sourceIndex"`
	// Problem explains why no binary logs are copied.
	// +optional
	Problem string `json:"problem,omitempty"`
}

// BackupStatus describes the last successful backup.
type BackupStatus struct {
	// Time is the time at which the dump began. Objects in the bucket are named after it.
	// +optional
	// +nullable
	Time *metav1.Time `json:"time"`
	// Elapsed is the duration of the backup.
	// +optional
	Elapsed metav1.Duration `json:"elapsed,omitzero"`
	// SourceIndex is the ordinal of the instance that was backed up.
	// +optional
	SourceIndex int `json:"sourceIndex"`
	// SourceUUID is the server_uuid of that instance.
	// +optional
	SourceUUID string `json:"sourceUUID,omitempty"`
	// UUIDSet holds the server_uuids of the instances that the backup could reach, by ordinal.
	// +optional
	UUIDSet map[string]string `json:"uuidSet,omitempty"`
	// BinlogFilename is a field of MOCO. Torpor does not set it.
	// +optional
	BinlogFilename string `json:"binlogFilename,omitempty"`
	// GTIDSet is the set of transactions in the dump.
	// +optional
	GTIDSet string `json:"gtidSet,omitempty"`
	// DumpSize is the size of the dump in the bucket, in bytes.
	// +optional
	DumpSize int64 `json:"dumpSize"`
	// BinlogSize is the size of the cluster's binary logs in the bucket, in bytes.
	// +optional
	BinlogSize int64 `json:"binlogSize"`
	// WorkDirUsage is a field of MOCO. Torpor sets it to 0, because it streams backups to the bucket.
	// +optional
	WorkDirUsage int64 `json:"workDirUsage"`
	// Warnings lists problems that did not prevent the backup.
	// +optional
	// +nullable
	// +listType=atomic
	Warnings []string `json:"warnings,omitempty"`
}

// ReconcileInfo describes the last successful reconciliation.
type ReconcileInfo struct {
	// Generation is the generation of the MySQLCluster that was last reconciled.
	// +optional
	Generation int64 `json:"generation,omitempty"`
	// ReconcileVersion is the version of the rules that derive objects from the spec.
	// +optional
	ReconcileVersion int `json:"reconcileVersion,omitempty"`
}

// Pause describes the stops of clustering and of reconciliation.
type Pause struct {
	// Clustering is set while a stop of clustering is requested, or a start is refused.
	// +optional
	Clustering *Stop `json:"clustering,omitempty"`
	// Reconciliation is set while a stop of reconciliation is requested.
	// +optional
	Reconciliation *Stop `json:"reconciliation,omitempty"`
	// Quiescing describes the operation, such as a switchover, that is being brought to a safe point before clustering
	// stops. Empty means that no operation is in progress.
	// +optional
	Quiescing string `json:"quiescing,omitempty"`
	// Unfinished describes the work that was not finished when clustering stopped. Empty means that all work was
	// finished.
	// +optional
	Unfinished string `json:"unfinished,omitempty"`
	// ObservedAt is the time of the last check of the instances while clustering is stopped. This check has produced
	// status.instances, state and startFindings.
	// +optional
	ObservedAt *metav1.Time `json:"observedAt,omitempty"`
	// LookRequest is the value of the annotation torpor.dev/look-requested at the start of that check.
	// +optional
	LookRequest string `json:"lookRequest,omitempty"`
	// State is the state of the cluster while clustering is stopped, such as Healthy.
	// +optional
	State string `json:"state,omitempty"`
	// StartFindings are problems that a start of clustering would encounter. Problems of severity refuse come first.
	// +optional
	// +listType=atomic
	StartFindings []StartFinding `json:"startFindings,omitempty"`
}

// StartFinding is a problem that a start of clustering would encounter.
type StartFinding struct {
	// Severity is refuse or warn. Without --force, kubectl moco refuses a start because of a problem of severity refuse.
	// The manager refuses it, too, unless a start loses nothing.
	Severity string `json:"severity"`
	// Message describes the problem, and how a start of clustering handles it.
	Message string `json:"message"`
	// Remedy describes the steps to take before a start of clustering.
	Remedy string `json:"remedy"`
}

// Stop holds the requester, the time and the reason for a stop.
type Stop struct {
	// Since is the time at which Torpor first observed the stop.
	Since metav1.Time `json:"since"`
	// By is the user who requested the stop. If admission did not record the request, it is "unknown", followed by the
	// field manager if there is one.
	// +optional
	By string `json:"by,omitempty"`
	// Reason is the reason for the stop, from the switch's annotation or torpor.dev/reason.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Until is the time at which the stop ends automatically, from the switch's annotation or torpor.dev/until.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
}

// InstanceStatus is the last observed state of a MySQL server. Fields that could not be read are unset.
type InstanceStatus struct {
	// Ordinal is the ordinal of the instance, as in the name of its Pod.
	Ordinal int `json:"ordinal"`
	// Role is the role of the instance in the replication.
	// +optional
	Role Role `json:"role,omitempty"`
	// Stopped is true while clustering is stopped for this instance.
	// +optional
	Stopped bool `json:"stopped,omitempty"`
	// Writable is true if the instance accepts writes. Two writable instances can diverge.
	// +optional
	Writable *bool `json:"writable,omitempty"`
	// ExecutedGTIDs is the set of transactions that the instance has executed (gtid_executed).
	// +optional
	ExecutedGTIDs string `json:"executedGTIDs,omitempty"`
	// ErrantGTIDs is the set of transactions of the instance that the primary does not have, except those with the
	// primary's UUID.
	// +optional
	ErrantGTIDs string `json:"errantGTIDs,omitempty"`
	// AheadGTIDs is the set of the instance's transactions with the primary's UUID that the primary has not executed.
	// When the primary uses these GTIDs for other transactions, this instance skips those transactions and lacks their
	// rows.
	// +optional
	AheadGTIDs string `json:"aheadGTIDs,omitempty"`
	// MissingGTIDs is the set of transactions that the instance lacks and that the primary has purged from its binary logs. The instance
	// cannot replicate and must be cloned again.
	// +optional
	MissingGTIDs string `json:"missingGTIDs,omitempty"`
	// DiscardedGTIDs is the set of transactions that the primary did not have, and that this instance lost when it was
	// cloned again. No primary acknowledged them to a client, except perhaps those with the UUID of the primary.
	// +optional
	DiscardedGTIDs string `json:"discardedGTIDs,omitempty"`
	// LagSeconds is the replication lag of the instance.
	// +optional
	LagSeconds *int64 `json:"lagSeconds,omitempty"`
	// IOThread is the state of the replication receiver thread: Yes, No or Connecting.
	// +optional
	IOThread string `json:"ioThread,omitempty"`
	// SQLThread is the state of the replication applier thread: Yes or No.
	// +optional
	SQLThread string `json:"sqlThread,omitempty"`
	// Message describes a problem of the instance and the next step. It is empty if there is no problem.
	// +optional
	Message string `json:"message,omitempty"`
}
