// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CFOrg is a group of spaces. It is in the root namespace, and owns the namespace with its name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=cforgs,singular=cforg,scope=Namespaced
// +kubebuilder:printcolumn:name="Display Name",type="string",JSONPath=".spec.displayName"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule=`size(self.metadata.name) <= 63`,messageExpression=`'metadata.name: expected at most 63 characters, because a namespace is named after it; found %d; choose a shorter one'.format([size(self.metadata.name)])`
type CFOrg struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CFOrgSpec `json:"spec"`
	// +optional
	Status CFOrgStatus `json:"status,omitempty"`
}

// CFOrgList is a list of CFOrgs.
//
// +kubebuilder:object:root=true
type CFOrgList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CFOrg `json:"items"`
}

// CFOrgSpec is the desired state of an org.
type CFOrgSpec struct {
	// DisplayName is the name of the org that users see.
	// +kubebuilder:validation:Pattern=`^[[:alnum:][:punct:][:print:]]+$`
	// +kubebuilder:validation:MaxLength=250
	DisplayName string `json:"displayName"`
}

// CFOrgStatus is the observed state of an org.
type CFOrgStatus struct {
	// Conditions hold Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that the controller acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// GUID is the name of the org's namespace.
	// +optional
	GUID string `json:"guid,omitempty"`
}

// CFSpace is a group of apps. It is in the namespace of its org, and owns the namespace with its name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=cfspaces,singular=cfspace,scope=Namespaced
// +kubebuilder:printcolumn:name="Display Name",type="string",JSONPath=".spec.displayName"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule=`size(self.metadata.name) <= 63`,messageExpression=`'metadata.name: expected at most 63 characters, because a namespace is named after it; found %d; choose a shorter one'.format([size(self.metadata.name)])`
type CFSpace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CFSpaceSpec `json:"spec"`
	// +optional
	Status CFSpaceStatus `json:"status,omitempty"`
}

// CFSpaceList is a list of CFSpaces.
//
// +kubebuilder:object:root=true
type CFSpaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CFSpace `json:"items"`
}

// CFSpaceSpec is the desired state of a space.
type CFSpaceSpec struct {
	// DisplayName is the name of the space that users see.
	// +kubebuilder:validation:Pattern=`^[[:alnum:][:punct:][:print:]]+$`
	// +kubebuilder:validation:MaxLength=250
	DisplayName string `json:"displayName"`
}

// CFSpaceStatus is the observed state of a space.
type CFSpaceStatus struct {
	// Conditions hold Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that the controller acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// GUID is the name of the space's namespace.
	// +optional
	GUID string `json:"guid,omitempty"`
}
