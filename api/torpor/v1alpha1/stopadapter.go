// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// StopAdapterRoleLabel adds the permissions of a ClusterRole to the manager, if it is "true" on the ClusterRole. Such
// ClusterRoles grant access to the kinds of StopAdapters.
const StopAdapterRoleLabel = "torpor.dev/aggregate-to-stopadapters"

const (
	// SwitchViewerRoleLabel aggregates a ClusterRole into torpor-switch-viewer and torpor-switch-operator, if it is
	// "true" on the ClusterRole.
	SwitchViewerRoleLabel = "torpor.dev/aggregate-to-switch-viewer"
	// SwitchOperatorRoleLabel aggregates a ClusterRole into torpor-switch-operator, if it is "true" on the ClusterRole.
	SwitchOperatorRoleLabel = "torpor.dev/aggregate-to-switch-operator"
)

// StopAdapterFinalizer delays the deletion of a StopAdapter until the objects that Slumbers have stopped are restored,
// for at most five minutes.
const StopAdapterFinalizer = "torpor.dev/stopadapter"

// StopAdapterKind is the kind of a StopAdapter.
func StopAdapterKind() schema.GroupVersionKind { return GroupVersion().WithKind("StopAdapter") }

// StopAdapter describes how to stop and start objects of a third-party kind by setting fields of these objects. A stop
// stores the previous values in an annotation of the object, and a start restores them. Torpor needs permission to get,
// list, watch and patch the kind: a ClusterRole with the label torpor.dev/aggregate-to-stopadapters grants this
// permission.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=stopadapters,singular=stopadapter,scope=Cluster,categories=torpor
// +kubebuilder:validation:XValidation:rule=`self.metadata.name == self.spec.target.resource + '.' + self.spec.target.group`,message=`expected the name RESOURCE.GROUP of the target, so that each kind has at most one StopAdapter; found another name; rename the StopAdapter`
// +kubebuilder:printcolumn:name="Kind",type="string",JSONPath=".spec.target.kind"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].reason"
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].message",priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type StopAdapter struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec StopAdapterSpec `json:"spec"`
	// +optional
	Status StopAdapterStatus `json:"status,omitempty"`
}

// StopAdapterList is a list of StopAdapters.
//
// +kubebuilder:object:root=true
type StopAdapterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StopAdapter `json:"items"`
}

// StopAdapterSpec defines how objects of a kind are stopped, and how their state is recognized.
type StopAdapterSpec struct {
	// Target identifies the kind of the objects.
	Target StopAdapterTarget `json:"target"`
	// Stop lists the changes that stop an object. A start restores the previous values.
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Stop []StopOperation `json:"stop"`
	// State holds CEL expressions that determine the state of an object. The variable object contains the whole object.
	// +optional
	State StopAdapterState `json:"state,omitzero"`
}

// StopAdapterTarget identifies a namespaced kind.
type StopAdapterTarget struct {
	// Group is the API group of the kind.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`
	// Version is the API version of the kind.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version"`
	// Kind is the name of the kind.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// Resource is the plural name of the kind, as in RBAC rules.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+$`
	// +kubebuilder:validation:MaxLength=63
	Resource string `json:"resource"`
}

// StopAdapterState holds CEL expressions that evaluate to true or false. An unset expression counts as true.
type StopAdapterState struct {
	// Asleep is true for a stopped object once no part of the object runs any more.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Asleep string `json:"asleep,omitempty"`
	// Awake is true for an object that is not stopped once the object runs.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Awake string `json:"awake,omitempty"`
	// Stoppable is false for an object that Slumbers and stops of its namespace must not stop.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Stoppable string `json:"stoppable,omitempty"`
}

// StopAdapterStatus is the observed state of a StopAdapter.
type StopAdapterStatus struct {
	// ObservedGeneration is the generation that the controller acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions hold Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// These are the condition type and reasons of a StopAdapter.
const (
	// StopAdapterReadyCondition is True while Torpor can stop and start objects according to this StopAdapter.
	StopAdapterReadyCondition = "Ready"
	// StopAdapterRunningReason means that the controller of the kind runs.
	StopAdapterRunningReason = "AdapterRuns"
	// StopAdapterStartingReason means that Torpor checks whether the kind is served, or lists its objects.
	StopAdapterStartingReason = "AdapterStarts"
	// StopAdapterDormantReason means that the API server does not serve the kind.
	StopAdapterDormantReason = "KindNotServed"
	// StopAdapterForbiddenReason means that Torpor lacks a permission for the kind.
	StopAdapterForbiddenReason = "KindForbidden"
	// StopAdapterInvalidReason means that the spec is invalid.
	StopAdapterInvalidReason = "InvalidAdapter"
	// StopAdapterFailedReason means that the controller of the kind cannot run, or stopped objects cannot be restored.
	StopAdapterFailedReason = "AdapterFailed"
)
