// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TaskGUIDLabel is the name of the CFTask, on its Job and its Pod.
const TaskGUIDLabel = "korifi.cloudfoundry.org/task-guid"

// Conditions of a CFTask, as upstream has them. Each is True once it has happened.
const (
	// TaskInitializedCondition: the task has its number, its sizes and its droplet.
	TaskInitializedCondition = "Initialized"
	// TaskStartedCondition: its Job has a Pod.
	TaskStartedCondition = "Started"
	// TaskSucceededCondition: its command has ended with status 0.
	TaskSucceededCondition = "Succeeded"
	// TaskFailedCondition: it will not succeed any more; the message says why.
	TaskFailedCondition = "Failed"
	// TaskCanceledCondition: somebody has ended it.
	TaskCanceledCondition = "Canceled"
)

// Reasons of the conditions of a CFTask.
const (
	// TaskPendingReason: it has not come to that yet.
	TaskPendingReason = "Pending"
	// TaskProceedsReason: it is as it should be.
	TaskProceedsReason = "Proceeds"
	// TaskEndedReason: it is over.
	TaskEndedReason = "Ended"
	// TaskDropletMissingReason: its app has no droplet that could be run.
	TaskDropletMissingReason = "DropletMissing"
	// TaskJobLostReason: somebody has deleted its Job.
	TaskJobLostReason = "JobLost"
)

// CFTask is a command that runs once, with what its app runs with. It is a Job of the app's droplet at the time at which it was made.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=cftasks,singular=cftask,scope=Namespaced
// +kubebuilder:printcolumn:name="Number",type="integer",JSONPath=".status.sequenceId"
// +kubebuilder:printcolumn:name="App",type="string",JSONPath=".spec.appRef.name"
// +kubebuilder:printcolumn:name="Started",type="string",JSONPath=".status.conditions[?(@.type=='Started')].status"
// +kubebuilder:printcolumn:name="Succeeded",type="string",JSONPath=".status.conditions[?(@.type=='Succeeded')].status"
// +kubebuilder:printcolumn:name="Failed",type="string",JSONPath=".status.conditions[?(@.type=='Failed')].status"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=".status.conditions[?(@.type=='Failed')].message",priority=1
type CFTask struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CFTaskSpec `json:"spec"`
	// +optional
	Status CFTaskStatus `json:"status,omitempty"`
}

// CFTaskList is a list of CFTasks.
//
// +kubebuilder:object:root=true
type CFTaskList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CFTask `json:"items"`
}

// CFTaskSpec is what somebody wants to have run.
//
// +kubebuilder:validation:XValidation:fieldPath=`.canceled`,rule=`!has(oldSelf.canceled) || !oldSelf.canceled || has(self.canceled) && self.canceled`,message=`expected a canceled task to stay canceled, found it changed; make a new CFTask`
type CFTaskSpec struct {
	// Command is run by a shell, or by the launcher of buildpacks.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected the command to stay, found it changed; make a new CFTask`
	Command string `json:"command"`
	// AppRef is a CFApp of the same namespace.
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected the app to stay, found it changed; make a new CFTask`
	AppRef corev1.LocalObjectReference `json:"appRef"`
	// Canceled ends the task, if it is not over.
	// +optional
	Canceled bool `json:"canceled,omitempty"`
	// DisplayName is what people call it; empty for its own name. Torpor's own.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	DisplayName string `json:"displayName,omitempty"`
	// MemoryMB and DiskQuotaMB are in MiB; 0 for those of the app's web process. Torpor's own.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048576
	MemoryMB int64 `json:"memoryMB,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048576
	DiskQuotaMB int64 `json:"diskQuotaMB,omitempty"`
}

// CFTaskStatus is what is known of a task.
type CFTaskStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// SequenceID counts the tasks of an app from 1; 0 before it is known.
	// +optional
	SequenceID int64 `json:"sequenceId,omitempty"`
	// MemoryMB and DiskQuotaMB are what it was given.
	// +optional
	MemoryMB int64 `json:"memoryMB,omitempty"`
	// +optional
	DiskQuotaMB int64 `json:"diskQuotaMB,omitempty"`
	// DropletRef is the CFBuild whose droplet it runs.
	// +optional
	DropletRef corev1.LocalObjectReference `json:"dropletRef,omitzero"`
}
