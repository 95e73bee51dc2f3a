// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TaskGUIDLabel is the name of the CFTask, on its Job, Pod and Secret.
const TaskGUIDLabel = "korifi.cloudfoundry.org/task-guid"

// These are the condition types of a CFTask, as in Korifi. A condition that is True remains True.
const (
	// TaskInitializedCondition means that the task has a sequence id, resource limits and a droplet.
	TaskInitializedCondition = "Initialized"
	// TaskStartedCondition means that the Job of the task has created a Pod.
	TaskStartedCondition = "Started"
	// TaskSucceededCondition means that the command has ended with exit code 0.
	TaskSucceededCondition = "Succeeded"
	// TaskFailedCondition means that the task has failed or was canceled. The message explains why.
	TaskFailedCondition = "Failed"
	// TaskCanceledCondition means that a user canceled the task before it ended.
	TaskCanceledCondition = "Canceled"
)

// These are the reasons of the conditions of a CFTask.
const (
	// TaskPendingReason means that the task waits for its Pod.
	TaskPendingReason = "Pending"
	// TaskProceedsReason means that the task was initialized or started.
	TaskProceedsReason = "Proceeds"
	// TaskEndedReason means that the task has ended.
	TaskEndedReason = "Ended"
	// TaskDropletMissingReason means that the app has no droplet, or its build has not produced one.
	TaskDropletMissingReason = "DropletMissing"
	// TaskJobLostReason means that the Job of the task was deleted.
	TaskJobLostReason = "JobLost"
)

// CFTask is a command that runs once, with the environment and the services of its app. It runs as a Job with the
// droplet that the app has when the task gets its sequence id.
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

// CFTaskSpec is the desired state of a task.
//
// +kubebuilder:validation:XValidation:fieldPath=`.canceled`,rule=`!has(oldSelf.canceled) || !oldSelf.canceled || has(self.canceled) && self.canceled`,message=`expected a canceled task to stay canceled; found the cancellation removed; create a new CFTask`
type CFTaskSpec struct {
	// Command is the command. A shell, or the launcher of buildpacks, runs it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected no change to the command; found one; create a new CFTask`
	Command string `json:"command"`
	// AppRef references a CFApp in the same namespace.
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected no change to the app, because a task belongs to one app; found one; create a new CFTask`
	AppRef corev1.LocalObjectReference `json:"appRef"`
	// Canceled ends the task if the task has not ended.
	// +optional
	Canceled bool `json:"canceled,omitempty"`
	// DisplayName is the name of the task that users see. It defaults to the name of the CFTask. Torpor has added this
	// field.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	DisplayName string `json:"displayName,omitempty"`
	// MemoryMB is the memory limit in MiB. 0 means the limit of the app's web process. Torpor has added this field.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048576
	MemoryMB int64 `json:"memoryMB,omitempty"`
	// DiskQuotaMB is the disk limit in MiB. 0 means the limit of the app's web process. Torpor has added this field.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048576
	DiskQuotaMB int64 `json:"diskQuotaMB,omitempty"`
}

// CFTaskStatus is the observed state of a task.
type CFTaskStatus struct {
	// Conditions hold Initialized, Started, Succeeded, Failed and Canceled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that the controller acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// SequenceID is the number of the task in its app, counted from 1. 0 means that no number is assigned yet.
	// +optional
	SequenceID int64 `json:"sequenceId,omitempty"`
	// MemoryMB is the memory limit of the task, in MiB.
	// +optional
	MemoryMB int64 `json:"memoryMB,omitempty"`
	// DiskQuotaMB is the disk limit of the task, in MiB.
	// +optional
	DiskQuotaMB int64 `json:"diskQuotaMB,omitempty"`
	// DropletRef references the CFBuild whose droplet the task runs.
	// +optional
	DropletRef corev1.LocalObjectReference `json:"dropletRef,omitzero"`
}
