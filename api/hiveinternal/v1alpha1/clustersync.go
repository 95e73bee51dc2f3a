// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterSync says what became of the SyncSets and SelectorSyncSets of the ClusterDeployment of its name. Torpor makes it for a cluster
// that has any.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=clustersyncs,shortName=csync,scope=Namespaced
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type=='Failed')].reason"
// +kubebuilder:printcolumn:name="Synced",type="string",JSONPath=".status.conditions[?(@.type=='Synced')].status"
// +kubebuilder:printcolumn:name="Message",type="string",priority=1,JSONPath=".status.conditions[?(@.type=='Synced')].message"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type ClusterSync struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ClusterSyncSpec `json:"spec,omitempty"`
	// +optional
	Status ClusterSyncStatus `json:"status,omitempty"`
}

// ClusterSyncList is a list of ClusterSyncs.
//
// +kubebuilder:object:root=true
type ClusterSyncList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterSync `json:"items"`
}

// ClusterSyncSpec is empty: what a cluster has is said by sets.
type ClusterSyncSpec struct{}

// ClusterSyncStatus is what became of the sets.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterSyncStatus struct {
	// SyncSets are the SyncSets that name the cluster, and those of which something is left in it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	SyncSets []SyncStatus `json:"syncSets,omitempty"`
	// SelectorSyncSets are the SelectorSyncSets that select the cluster, and those of which something is left in it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	SelectorSyncSets []SyncStatus `json:"selectorSyncSets,omitempty"`
	// Conditions are Failed and Synced.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// FirstSuccessTime is when all sets were applied for the first time.
	// +optional
	FirstSuccessTime *metav1.Time `json:"firstSuccessTime,omitempty"`
	// LastSyncTime is when all sets were last applied, also those that had not changed.
	// +optional
	LastSyncTime *metav1.Time `json:"lastSyncTime,omitempty"`
	// SyncedResume is the resume of the cluster, by the time at which it began, after which that was: each is followed by one.
	// +optional
	SyncedResume *metav1.Time `json:"syncedResume,omitempty"`
}

// SyncSetResult is what became of a set.
type SyncSetResult string

const (
	// SuccessSyncSetResult means that all of the set is in the cluster.
	SuccessSyncSetResult SyncSetResult = "Success"
	// FailureSyncSetResult means that something of the set is not.
	FailureSyncSetResult SyncSetResult = "Failure"
)

// SyncStatus is what became of one set.
type SyncStatus struct {
	// Name of the SyncSet or SelectorSyncSet.
	Name string `json:"name"`
	// ObservedGeneration is the generation of the set that was applied last.
	ObservedGeneration int64 `json:"observedGeneration"`
	// ResourcesToDelete are what a set of the mode Sync has in the cluster. What leaves the set, or the cluster of a set that is gone, is
	// deleted. It is written before anything is applied.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	ResourcesToDelete []SyncResourceReference `json:"resourcesToDelete,omitempty"`
	// Result of the last attempt.
	Result SyncSetResult `json:"result"`
	// FailureMessage says which object was refused, and why.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	FailureMessage string `json:"failureMessage,omitempty"`
	// LastTransitionTime is when the result last changed.
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	// FirstSuccessTime is when the set was applied for the first time.
	// +optional
	FirstSuccessTime *metav1.Time `json:"firstSuccessTime,omitempty"`
}

// SyncResourceReference names an object of a cluster.
type SyncResourceReference struct {
	// APIVersion of the object.
	APIVersion string `json:"apiVersion"`
	// Kind of the object.
	Kind string `json:"kind"`
	// Name of the object.
	Name string `json:"name"`
	// Namespace of the object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// Condition types of a ClusterSync.
const (
	// ClusterSyncFailedCondition is True while a set is refused.
	ClusterSyncFailedCondition = "Failed"
	// ClusterSyncedCondition is True when all sets are in the cluster as they are now.
	ClusterSyncedCondition = "Synced"
)

// Reasons of Failed and Synced.
const (
	// SyncFailureReason means that the cluster refuses something of a set, which the message names.
	SyncFailureReason = "Failure"
	// SyncSuccessReason means that no set is refused.
	SyncSuccessReason = "Success"
	// AllAppliedReason means that all sets are in the cluster.
	AllAppliedReason = "AllApplied"
	// ApplyingReason means that sets are being applied.
	ApplyingReason = "Applying"
	// WaitingForClusterReason means that the cluster hibernates or does not answer, so it is not dialled.
	WaitingForClusterReason = "WaitingForCluster"
	// SyncPausedReason means that an annotation of the ClusterDeployment keeps everything from being applied.
	SyncPausedReason = "Paused"
	// NoAnswerReason means that the cluster did not answer while sets were applied.
	NoAnswerReason = "NoAnswer"
)
