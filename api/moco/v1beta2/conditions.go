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
	// OfflineReason: the spec says offline, so no instance runs.
	OfflineReason = "Offline"
	// CloningReason: data is being cloned from a server outside.
	CloningReason = "Cloning"
	// RestoringReason: data is being restored from a backup.
	RestoringReason = "Restoring"
	// HealthyReason: every instance is ready and replicates from a primary that takes writes.
	HealthyReason = "Healthy"
	// DegradedReason: the primary takes writes and enough replicas follow, but not all.
	DegradedReason = "Degraded"
	// FailedReason: the primary is lost, and enough replicas are there to take one of them.
	FailedReason = "Failed"
	// LostReason: the primary is lost, and too few replicas are there to know which has all data.
	LostReason = "Lost"
	// IncompleteReason: the instances are not yet what they should be, and are being made so.
	IncompleteReason = "Incomplete"
)

// Reasons of Initialized, Available and Healthy when they are Unknown.
const (
	// ClusteringStoppedReason: somebody has stopped clustering, so nobody vouches for the state.
	ClusteringStoppedReason = "ClusteringStopped"
	// NotObservedReason: the instances could not be asked yet; the message says what is missing.
	NotObservedReason = "NotObserved"
)

// Reasons of ClusteringActive.
const (
	// ClusteringActiveReason: clustering goes on.
	ClusteringActiveReason = "ClusteringActive"
	// ClusteringInactiveReason: clustering is stopped; nothing changes an instance any more.
	ClusteringInactiveReason = "ClusteringInactive"
	// QuiescingReason: clustering was told to stop and brings an operation that is under way to a safe point first.
	QuiescingReason = "Quiescing"
)

// Reasons of ReconciliationActive.
const (
	// ReconciliationActiveReason: reconciliation goes on.
	ReconciliationActiveReason = "ReconciliationActive"
	// ReconciliationInactiveReason: reconciliation is stopped.
	ReconciliationInactiveReason = "ReconciliationInactive"
)

// Reasons of ReconcileSuccess.
const (
	// ReconcileSuccessReason: every object is as the spec says.
	ReconcileSuccessReason = "ReconcileSuccess"
	// ReconcileFailedReason: an object could not be written or a thing it needs is missing; the message says which.
	ReconcileFailedReason = "ReconcileFailed"
)

// Reasons of StatefulSetReady.
const (
	// StatefulSetReadyReason: every Pod is available and of the newest revision.
	StatefulSetReadyReason = "StatefulSetReady"
	// StatefulSetNotReadyReason: Pods are missing, not available or of an older revision.
	StatefulSetNotReadyReason = "StatefulSetNotReady"
	// StatefulSetNotFoundReason: the StatefulSet does not exist yet.
	StatefulSetNotFoundReason = "StatefulSetNotFound"
)

// Reasons of SpecFullySupported.
const (
	// FullySupportedReason: Torpor acts on every field of the spec.
	FullySupportedReason = "FullySupported"
	// FieldsIgnoredReason: Torpor keeps some fields of the spec without acting on them; the message lists them.
	FieldsIgnoredReason = "FieldsIgnored"
)
