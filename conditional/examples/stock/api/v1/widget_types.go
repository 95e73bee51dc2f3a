// SPDX-License-Identifier: Apache-2.0

// Package v1 contains the kind Widget.
// +kubebuilder:object:generate=true
// +groupName=example.com
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// AddToScheme adds the kind to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	of := schema.GroupVersion{Group: "example.com", Version: "v1"}
	s.AddKnownTypes(of, &Widget{}, &WidgetList{})
	metav1.AddToGroupVersion(s, of)
	return nil
}

// WidgetSpec defines the desired message.
type WidgetSpec struct {
	Message string `json:"message,omitempty"`
}

// +kubebuilder:object:root=true

// Widget has a message that a ConfigMap of the same name repeats.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WidgetSpec `json:"spec,omitempty"`
}

// +kubebuilder:object:root=true

// WidgetList is a list of Widgets.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Widget `json:"items"`
}
