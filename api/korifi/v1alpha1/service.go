// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CredentialsKey is the key under which the Secret of a service holds the credentials, as JSON.
const CredentialsKey = "credentials"

// CFServiceInstance describes an external service, and references the credentials that apps need. Bound services are in
// the environment of an app from its next start, restart or deployment. Torpor does not set the status.
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

// ServiceInstanceType is the type of a service.
// +kubebuilder:validation:Enum=user-provided;managed
type ServiceInstanceType string

// UserProvidedService is the only ServiceInstanceType that Torpor supports.
const UserProvidedService ServiceInstanceType = "user-provided"

// CFServiceInstanceSpec is the desired state of a service.
type CFServiceInstanceSpec struct {
	// DisplayName is the name of the service that users see.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	DisplayName string `json:"displayName"`
	// SecretName is the name of a Secret in the same namespace, which holds the credentials as JSON under the key
	// credentials.
	// +kubebuilder:validation:MinLength=1
	SecretName string `json:"secretName"`
	// Type is the type of the service. Only user-provided services are supported.
	Type ServiceInstanceType `json:"type"`
	// ServiceLabel is the label of the service in VCAP_SERVICES. It defaults to user-provided.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	ServiceLabel string `json:"serviceLabel,omitempty"`
	// Tags are the tags of the service in VCAP_SERVICES.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	Tags []string `json:"tags,omitempty"`
}

// CFServiceBinding provides the credentials of a service to an app.
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

// CFServiceBindingSpec is the desired state of a binding.
type CFServiceBindingSpec struct {
	// DisplayName is the name of the binding in VCAP_SERVICES. It defaults to the name of the service.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	DisplayName string `json:"displayName,omitempty"`
	// Service references a CFServiceInstance in the same namespace.
	Service corev1.ObjectReference `json:"service"`
	// AppRef references a CFApp in the same namespace.
	AppRef corev1.LocalObjectReference `json:"appRef"`
	// Type is the type of the binding. Empty means app. Service keys, which have the type key, are not supported.
	// +optional
	// +kubebuilder:validation:Enum=app;key;""
	Type string `json:"type,omitempty"`
}

// CFServiceStatus is the observed state of a service or a binding. Korifi writes it. Torpor does not use it.
type CFServiceStatus struct {
	// Conditions are the conditions that Korifi sets. Torpor sets none.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that Korifi acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
