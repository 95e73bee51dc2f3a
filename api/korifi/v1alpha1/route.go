// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CFDomain is a domain below which apps may have their addresses. All orgs share it. It lives in the root namespace, and only
// an administrator makes one.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=cfdomains,singular=cfdomain,scope=Namespaced
// +kubebuilder:printcolumn:name="Domain",type="string",JSONPath=".spec.name"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type CFDomain struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CFDomainSpec `json:"spec"`
	// +optional
	Status CFDomainStatus `json:"status,omitempty"`
}

// CFDomainList is a list of CFDomains.
//
// +kubebuilder:object:root=true
type CFDomainList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CFDomain `json:"items"`
}

// CFDomainSpec is what a domain is.
type CFDomainSpec struct {
	// Name is the domain, such as apps.example.com. It does not change: addresses would change with it.
	// +kubebuilder:validation:MaxLength=189
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="expected the name that the domain has, found another one; make another CFDomain"
	Name string `json:"name"`
}

// CFDomainStatus is what is known of a domain; upstream writes it, and Torpor needs none.
type CFDomainStatus struct {
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// CFRoute is an address, and the apps of its space that answer there.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=cfroutes,singular=cfroute,scope=Namespaced
// +kubebuilder:printcolumn:name="URI",type="string",JSONPath=".status.uri"
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].status"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type CFRoute struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CFRouteSpec `json:"spec"`
	// +optional
	Status CFRouteStatus `json:"status,omitempty"`
}

// CFRouteList is a list of CFRoutes.
//
// +kubebuilder:object:root=true
type CFRouteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CFRoute `json:"items"`
}

// RouteProtocol is what is spoken at an address.
// +kubebuilder:validation:Enum=http;tcp
type RouteProtocol string

// HTTPRouteProtocol is the only RouteProtocol that Torpor serves.
const HTTPRouteProtocol RouteProtocol = "http"

// HTTP1DestinationProtocol is what is spoken to an app.
const HTTP1DestinationProtocol = "http1"

// CFRouteSpec is an address and where its requests go.
type CFRouteSpec struct {
	// Host is the first label of the address, such as shop of shop.apps.example.com. Torpor serves no domain itself and no
	// wildcard, because whoever had one would get the requests of all others.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Host string `json:"host,omitempty"`
	// Path is where the address begins on its host, such as /cart; empty for all of the host.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Path string `json:"path,omitempty"`
	// +optional
	Protocol RouteProtocol `json:"protocol,omitempty"`
	// DomainRef is the CFDomain, in its own namespace.
	DomainRef corev1.ObjectReference `json:"domainRef"`
	// Destinations share the requests as their instances do.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Destinations []RouteDestination `json:"destinations,omitempty"`
}

// RouteDestination is a process that answers at an address.
type RouteDestination struct {
	// GUID tells destinations of one route apart.
	// +kubebuilder:validation:MaxLength=63
	GUID string `json:"guid"`
	// Port is the one that the process listens on; 0 for its first one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// AppRef is a CFApp of the route's namespace.
	AppRef corev1.LocalObjectReference `json:"appRef"`
	// ProcessType is that of the process, such as web.
	// +kubebuilder:validation:MaxLength=63
	ProcessType string `json:"processType"`
	// +optional
	// +kubebuilder:validation:Enum=http1
	Protocol string `json:"protocol,omitempty"`
}

// RouteState says whether an address is served.
// +kubebuilder:validation:Enum=valid;invalid
type RouteState string

// States of a CFRoute.
const (
	ValidRoute   RouteState = "valid"
	InvalidRoute RouteState = "invalid"
)

// CFRouteStatus is what is known of an address.
type CFRouteStatus struct {
	// CurrentStatus and Description say whether the route is as it has to be, as upstream has them.
	// +optional
	CurrentStatus RouteState `json:"currentStatus,omitempty"`
	// +optional
	Description string `json:"description,omitempty"`
	// FQDN is the address's name, URI with its path.
	// +optional
	FQDN string `json:"fqdn,omitempty"`
	// +optional
	URI string `json:"uri,omitempty"`
	// Destinations are those that get requests, with their ports.
	// +optional
	Destinations []RouteDestination `json:"destinations,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
