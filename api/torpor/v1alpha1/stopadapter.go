// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// StopAdapterRoleLabel of a ClusterRole, with the value "true", gives Torpor what the role grants: the rights to the kinds of StopAdapters.
const StopAdapterRoleLabel = "torpor.dev/aggregate-to-stopadapters"

const (
	// SwitchViewerRoleLabel of a ClusterRole, with the value "true", gives what the role grants to who has torpor-switch-viewer or -operator.
	SwitchViewerRoleLabel = "torpor.dev/aggregate-to-switch-viewer"
	// SwitchOperatorRoleLabel of a ClusterRole, with the value "true", gives what the role grants to who has torpor-switch-operator.
	SwitchOperatorRoleLabel = "torpor.dev/aggregate-to-switch-operator"
)

// StopAdapterFinalizer keeps a deleted StopAdapter until what it has stopped is given back.
const StopAdapterFinalizer = "torpor.dev/stopadapter"

// StopAdapterKind is the kind of a StopAdapter.
func StopAdapterKind() schema.GroupVersionKind { return GroupVersion().WithKind("StopAdapter") }

// StopAdapter says how the objects of a kind are stopped that knows nothing of Torpor: by its own switch. What was there before is kept in an
// annotation of the object, and comes back. Torpor needs the right to get, list, watch and patch the kind: a ClusterRole with the label
// torpor.dev/aggregate-to-stopadapters gives it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=stopadapters,singular=stopadapter,scope=Cluster,categories=torpor
// +kubebuilder:validation:XValidation:rule=`self.metadata.name == self.spec.target.resource + '.' + self.spec.target.group`,message=`expected the name RESOURCE.GROUP of the target, so that one StopAdapter is about each kind; found another; rename it`
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

// StopAdapterSpec is how objects are stopped, and how it is seen that they are.
type StopAdapterSpec struct {
	// Target is the kind of the objects.
	Target StopAdapterTarget `json:"target"`
	// Stop is what is changed of an object that is to be stopped. A start brings back what was there.
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Stop []StopOperation `json:"stop"`
	// State says in CEL what an object with the fields of Stop has become; object is the whole of it.
	// +optional
	State StopAdapterState `json:"state,omitzero"`
}

// StopAdapterTarget is a kind with namespaces.
type StopAdapterTarget struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// Resource is the plural, as rights name it.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]+$`
	// +kubebuilder:validation:MaxLength=63
	Resource string `json:"resource"`
}

// StopAdapterState has an expression of CEL for each question, which comes to true or false. Unset is true.
type StopAdapterState struct {
	// Asleep is whether nothing of a stopped object runs any more.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Asleep string `json:"asleep,omitempty"`
	// Awake is whether an object that is not stopped has come back.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Awake string `json:"awake,omitempty"`
	// Stoppable is whether an object may be stopped.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Stoppable string `json:"stoppable,omitempty"`
}

// StopAdapterStatus is whether objects are stopped by it.
type StopAdapterStatus struct {
	// ObservedGeneration is the generation that this is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Condition type and reasons of a StopAdapter.
const (
	// StopAdapterReadyCondition is True while objects are stopped and started by it.
	StopAdapterReadyCondition = "Ready"
	// StopAdapterRunningReason says that they are.
	StopAdapterRunningReason = "AdapterRuns"
	// StopAdapterStartingReason says that Torpor finds out whether the kind is served, or lists what there is of it.
	StopAdapterStartingReason = "AdapterStarts"
	// StopAdapterDormantReason says that the API server does not serve the kind.
	StopAdapterDormantReason = "KindNotServed"
	// StopAdapterForbiddenReason says that Torpor has no rights to the kind.
	StopAdapterForbiddenReason = "KindForbidden"
	// StopAdapterInvalidReason says that the spec makes no sense.
	StopAdapterInvalidReason = "InvalidAdapter"
	// StopAdapterFailedReason says that the kind could not be watched.
	StopAdapterFailedReason = "AdapterFailed"
)
