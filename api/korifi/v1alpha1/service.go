// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CredentialsKey is the key of a service's Secret with its credentials, as JSON.
const CredentialsKey = "credentials"

// CFServiceInstance is a service that somebody else runs, with the credentials that apps need. No controller looks at it: what is
// bound is handed to the next revision of an app.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=cfserviceinstances,singular=cfserviceinstance,scope=Namespaced
// +kubebuilder:printcolumn:name="Display Name",type="string",JSONPath=".spec.displayName"
// +kubebuilder:printcolumn:name="Type",type="string",JSONPath=".spec.type"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type CFServiceInstance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CFServiceInstanceSpec `json:"spec"`
	// +optional
	Status CFServiceStatus `json:"status,omitempty"`
}

// CFServiceInstanceList is a list of CFServiceInstances.
//
// +kubebuilder:object:root=true
type CFServiceInstanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CFServiceInstance `json:"items"`
}

// ServiceInstanceType is who makes a service.
// +kubebuilder:validation:Enum=user-provided;managed
type ServiceInstanceType string

// UserProvidedService is the only ServiceInstanceType that Torpor hands to apps.
const UserProvidedService ServiceInstanceType = "user-provided"

// CFServiceInstanceSpec is what a service is.
type CFServiceInstanceSpec struct {
	// DisplayName is what people call it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	DisplayName string `json:"displayName"`
	// SecretName is a Secret of the same namespace, with the credentials as JSON under the key credentials.
	// +kubebuilder:validation:MinLength=1
	SecretName string              `json:"secretName"`
	Type       ServiceInstanceType `json:"type"`
	// +optional
	// +kubebuilder:validation:MaxLength=255
	ServiceLabel string `json:"serviceLabel,omitempty"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Tags []string `json:"tags,omitempty"`
}

// CFServiceBinding gives an app the credentials of a service.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=cfservicebindings,singular=cfservicebinding,scope=Namespaced
// +kubebuilder:printcolumn:name="App",type="string",JSONPath=".spec.appRef.name"
// +kubebuilder:printcolumn:name="Service",type="string",JSONPath=".spec.service.name"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type CFServiceBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CFServiceBindingSpec `json:"spec"`
	// +optional
	Status CFServiceStatus `json:"status,omitempty"`
}

// CFServiceBindingList is a list of CFServiceBindings.
//
// +kubebuilder:object:root=true
type CFServiceBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CFServiceBinding `json:"items"`
}

// CFServiceBindingSpec is which app gets what.
type CFServiceBindingSpec struct {
	// DisplayName is what the app finds the credentials by; empty for the name of the service.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	DisplayName string `json:"displayName,omitempty"`
	// Service is a CFServiceInstance of the same namespace.
	Service corev1.ObjectReference `json:"service"`
	// AppRef is a CFApp of the same namespace.
	AppRef corev1.LocalObjectReference `json:"appRef"`
	// Type is app; keys for people are not handed out.
	// +optional
	// +kubebuilder:validation:Enum=app;key;""
	Type string `json:"type,omitempty"`
}

// CFServiceStatus is what is known of a service or a binding; upstream writes it, and Torpor needs none.
type CFServiceStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
