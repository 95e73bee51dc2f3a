// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterSync reports the results of the SyncSets and SelectorSyncSets of the ClusterDeployment with the same name. Torpor creates it for a
// cluster that has such sets.
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

// ClusterSyncSpec is empty. SyncSets and SelectorSyncSets define the applied objects.
type ClusterSyncSpec struct{}

// ClusterSyncStatus holds the results of the sets.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterSyncStatus struct {
	// SyncSets are the results of the SyncSets that reference the cluster, and of SyncSets whose objects have not been
	// deleted from the cluster yet.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	SyncSets []SyncStatus `json:"syncSets,omitempty"`
	// SelectorSyncSets are the results of the SelectorSyncSets that select the cluster, and of SelectorSyncSets whose
	// objects have not been deleted from the cluster yet.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	SelectorSyncSets []SyncStatus `json:"selectorSyncSets,omitempty"`
	// Conditions hold Failed and Synced.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// FirstSuccessTime is the time at which all sets were applied for the first time.
	// +optional
	FirstSuccessTime *metav1.Time `json:"firstSuccessTime,omitempty"`
	// LastSyncTime is the time at which Torpor last sent all sets to the cluster, including unchanged and rejected
	// sets.
	// +optional
	LastSyncTime *metav1.Time `json:"lastSyncTime,omitempty"`
	// SyncedResume is the start time of the last resume after which all sets were sent. Torpor applies all sets again
	// after each resume.
	// +optional
	SyncedResume *metav1.Time `json:"syncedResume,omitempty"`
}

// SyncSetResult is the result of applying a set: Success or Failure.
type SyncSetResult string

const (
	// SuccessSyncSetResult means that the whole set is applied.
	SuccessSyncSetResult SyncSetResult = "Success"
	// FailureSyncSetResult means that at least one object of the set is not applied.
	FailureSyncSetResult SyncSetResult = "Failure"
)

// SyncStatus is the result of one set.
type SyncStatus struct {
	// Name is the name of the SyncSet or SelectorSyncSet.
	Name string `json:"name"`
	// ObservedGeneration is the generation of the set at the last attempt.
	ObservedGeneration int64 `json:"observedGeneration"`
	// ResourcesToDelete are the objects that a set with the mode Sync has in the cluster. Torpor deletes such an object
	// when it is removed from the set, or when the set no longer applies to the cluster. The list is written before the
	// objects are applied.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2000
	ResourcesToDelete []SyncResourceReference `json:"resourcesToDelete,omitempty"`
	// Result is the result of the last attempt: Success or Failure.
	Result SyncSetResult `json:"result"`
	// FailureMessage explains why the set is not applied, such as the rejected object and the reason.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	FailureMessage string `json:"failureMessage,omitempty"`
	// LastTransitionTime is the time at which the result last changed.
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	// FirstSuccessTime is the time at which the set was applied for the first time.
	// +optional
	FirstSuccessTime *metav1.Time `json:"firstSuccessTime,omitempty"`
}

// SyncResourceReference identifies an object of a cluster.
type SyncResourceReference struct {
	// APIVersion is the API version of the object.
	APIVersion string `json:"apiVersion"`
	// Kind is the kind of the object.
	Kind string `json:"kind"`
	// Name is the name of the object.
	Name string `json:"name"`
	// Namespace is the namespace of the object.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// These are the condition types of a ClusterSync.
const (
	// ClusterSyncFailedCondition is True while a set cannot be applied, or an object cannot be deleted.
	ClusterSyncFailedCondition = "Failed"
	// ClusterSyncedCondition is True if the current content of all sets is applied.
	ClusterSyncedCondition = "Synced"
)

// These are the reasons of Failed and Synced.
const (
	// SyncFailureReason means that the sets or objects in the message cannot be applied or deleted.
	SyncFailureReason = "Failure"
	// SyncSuccessReason means that no set is known to have a problem.
	SyncSuccessReason = "Success"
	// AllAppliedReason means that all sets are applied.
	AllAppliedReason = "AllApplied"
	// ApplyingReason means that sets are being applied.
	ApplyingReason = "Applying"
	// WaitingForClusterReason means that the cluster hibernates or does not answer. Torpor does not connect to it.
	WaitingForClusterReason = "WaitingForCluster"
	// SyncPausedReason means that an annotation of the ClusterDeployment pauses changes to the cluster.
	SyncPausedReason = "Paused"
	// NoAnswerReason means that the cluster's API server did not answer while Torpor applied the sets.
	NoAnswerReason = "NoAnswer"
)
