// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CFDomain is a domain for the routes of apps. All orgs share it. An administrator creates it in the root namespace.
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

// CFDomainSpec is the desired state of a domain.
type CFDomainSpec struct {
	// Name is the domain name, such as apps.example.com. It is immutable, because the addresses of routes depend on it.
	// +kubebuilder:validation:MaxLength=189
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="expected no change, because the addresses of routes depend on the name; found one; create a new CFDomain"
	Name string `json:"name"`
}

// CFDomainStatus is the observed state of a domain. Korifi writes it. Torpor does not use it.
type CFDomainStatus struct {
	// Conditions are the conditions that Korifi sets. Torpor sets none.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that Korifi acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// CFRoute maps an address to apps of its space.
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

// RouteProtocol is the protocol of an address.
// +kubebuilder:validation:Enum=http;tcp
type RouteProtocol string

// HTTPRouteProtocol is the only RouteProtocol that Torpor serves.
const HTTPRouteProtocol RouteProtocol = "http"

// HTTP1DestinationProtocol is the protocol of the requests that a destination receives.
const HTTP1DestinationProtocol = "http1"

// CFRouteSpec is the desired state of a route: an address and its destinations.
type CFRouteSpec struct {
	// Host is the first label of the address, such as shop in shop.apps.example.com. An empty host and a wildcard are not supported,
	// because such a route would receive the requests of other routes.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Host string `json:"host,omitempty"`
	// Path is the path prefix of the address, such as /cart. Empty means all paths of the host.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Path string `json:"path,omitempty"`
	// Protocol is the protocol of the address. Empty means http. Routes with tcp are invalid.
	// +optional
	Protocol RouteProtocol `json:"protocol,omitempty"`
	// DomainRef references the CFDomain by name and namespace.
	DomainRef corev1.ObjectReference `json:"domainRef"`
	// Destinations are the processes that receive the requests. A Gateway distributes requests by desired instances; an
	// Ingress uses only the process with the most.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	Destinations []RouteDestination `json:"destinations,omitempty"`
}

// RouteDestination is a process that receives requests of an address.
type RouteDestination struct {
	// GUID identifies the destination in its route.
	// +kubebuilder:validation:MaxLength=63
	GUID string `json:"guid"`
	// Port is the port that the process listens on. 0 means the first port of the process.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// AppRef references a CFApp in the route's namespace.
	AppRef corev1.LocalObjectReference `json:"appRef"`
	// ProcessType is the type of the process, such as web.
	// +kubebuilder:validation:MaxLength=63
	ProcessType string `json:"processType"`
	// Protocol is the protocol of the requests to the process: http1.
	// +optional
	// +kubebuilder:validation:Enum=http1
	Protocol string `json:"protocol,omitempty"`
}

// RouteState is the state of a route.
// +kubebuilder:validation:Enum=valid;invalid
type RouteState string

// These are the states of a CFRoute.
const (
	ValidRoute   RouteState = "valid"
	InvalidRoute RouteState = "invalid"
)

// CFRouteStatus is the observed state of a route.
type CFRouteStatus struct {
	// CurrentStatus is the state of the route, as in Korifi.
	// +optional
	CurrentStatus RouteState `json:"currentStatus,omitempty"`
	// Description explains CurrentStatus.
	// +optional
	Description string `json:"description,omitempty"`
	// FQDN is the host name of the address.
	// +optional
	FQDN string `json:"fqdn,omitempty"`
	// URI is the host name and the path of the address.
	// +optional
	URI string `json:"uri,omitempty"`
	// Destinations are the destinations whose app and process exist.
	// +optional
	Destinations []RouteDestination `json:"destinations,omitempty"`
	// Conditions hold Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that the controller acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}
