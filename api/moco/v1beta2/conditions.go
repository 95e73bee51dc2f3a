// SPDX-License-Identifier: Apache-2.0

package v1beta2

// Condition types of a MySQLCluster. In the normal case every one is True.
const (
	// InitializedCondition is True once the data exists: neither cloned from elsewhere nor restored at the moment.
	InitializedCondition = "Initialized"
	// AvailableCondition is True when the primary takes writes; Unknown while clustering is stopped.
	AvailableCondition = "Available"
	// HealthyCondition is True when every instance does what its role demands; Unknown while clustering is stopped.
	HealthyCondition = "Healthy"
	// StatefulSetReadyCondition is True when every Pod is available and of the newest revision.
	StatefulSetReadyCondition = "StatefulSetReady"
	// ReconcileSuccessCondition is True when the last reconciliation brought the spec to every other object.
	ReconcileSuccessCondition = "ReconcileSuccess"
	// ReconciliationActiveCondition is False while somebody has stopped reconciliation.
	ReconciliationActiveCondition = "ReconciliationActive"
	// ClusteringActiveCondition is False while somebody has stopped clustering.
	ClusteringActiveCondition = "ClusteringActive"
	// SpecFullySupportedCondition is False while the spec has fields that Torpor does not act on; the message lists them.
	SpecFullySupportedCondition = "SpecFullySupported"
)

// Reasons of Initialized, Available and Healthy: the state of the whole cluster, the first in this order that fits.
const (
	// OfflineReason means that the spec says offline, so no instance runs.
	OfflineReason = "Offline"
	// CloningReason means that data is being cloned from a server outside.
	CloningReason = "Cloning"
	// RestoringReason means that data is being restored from a backup.
	RestoringReason = "Restoring"
	// HealthyReason means that every instance is ready and replicates from a primary that takes writes.
	HealthyReason = "Healthy"
	// DegradedReason means that the primary takes writes and enough replicas follow, but not all.
	DegradedReason = "Degraded"
	// FailedReason means that the primary is lost, and enough replicas are there to take one of them.
	FailedReason = "Failed"
	// LostReason means that the primary is lost, and too few replicas are there to know which has all data.
	LostReason = "Lost"
	// IncompleteReason means that the instances are not yet what they should be, and are being made so.
	IncompleteReason = "Incomplete"
)

// Reasons of Initialized, Available and Healthy when they are Unknown.
const (
	// ClusteringStoppedReason means that somebody has stopped clustering, so nobody vouches for the state.
	ClusteringStoppedReason = "ClusteringStopped"
	// NotObservedReason means that the instances could not be asked yet; the message says what is missing.
	NotObservedReason = "NotObserved"
)

// Reasons of ClusteringActive.
const (
	// ClusteringActiveReason means that clustering goes on.
	ClusteringActiveReason = "ClusteringActive"
	// ClusteringInactiveReason means that clustering is stopped; nothing changes an instance any more.
	ClusteringInactiveReason = "ClusteringInactive"
	// QuiescingReason means that clustering was told to stop and brings an operation that is under way to a safe point first.
	QuiescingReason = "Quiescing"
)

// Reasons of ReconciliationActive.
const (
	// ReconciliationActiveReason means that reconciliation goes on.
	ReconciliationActiveReason = "ReconciliationActive"
	// ReconciliationInactiveReason means that reconciliation is stopped.
	ReconciliationInactiveReason = "ReconciliationInactive"
)

// Reasons of ReconcileSuccess.
const (
	// ReconcileSuccessReason means that every object is as the spec says.
	ReconcileSuccessReason = "ReconcileSuccess"
	// ReconcileFailedReason means that an object could not be written or a thing it needs is missing; the message says which.
	ReconcileFailedReason = "ReconcileFailed"
)

// Reasons of StatefulSetReady.
const (
	// StatefulSetReadyReason means that every Pod is available and of the newest revision.
	StatefulSetReadyReason = "StatefulSetReady"
	// StatefulSetNotReadyReason means that Pods are missing, not available or of an older revision.
	StatefulSetNotReadyReason = "StatefulSetNotReady"
	// StatefulSetNotFoundReason means that the StatefulSet does not exist yet.
	StatefulSetNotFoundReason = "StatefulSetNotFound"
)

// Reasons of SpecFullySupported.
const (
	// FullySupportedReason means that Torpor acts on every field of the spec.
	FullySupportedReason = "FullySupported"
	// FieldsIgnoredReason means that Torpor keeps some fields of the spec without acting on them; the message lists them.
	FieldsIgnoredReason = "FieldsIgnored"
)
