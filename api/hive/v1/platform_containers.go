// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"cmp"
	"strings"
)

// kindLabel is the label by which kind marks the nodes of a cluster.
const kindLabel = "io.x-k8s.kind.cluster"

// ContainersPlatform is a cluster whose nodes are containers, as kind and k3d make them. Its machines are the containers whose label has the
// cluster's infraID as its value, or those whose names begin with namePrefix.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ContainersPlatform struct {
	// Engine is where the container engine serves Docker's API: tcp://HOST:PORT, which is spoken to by TLS, or unix:///PATH, which the
	// manager's flag --container-engine-sockets has to list for the namespace.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(tcp|https|unix)://.+$`
	Engine string `json:"engine"`
	// CredentialsSecretRef names the Secret with tls.crt, tls.key and ca.crt for an engine that is spoken to by TLS.
	// +optional
	CredentialsSecretRef LocalObjectReference `json:"credentialsSecretRef,omitempty"`
	// Label is the label that has the infraID as its value; empty means that of kind, and k3d has k3d.cluster.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^[^=]*$`
	// +optional
	Label string `json:"label,omitempty"`
	// NamePrefix is what the names of the containers begin with; it goes before the label.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-zA-Z0-9][a-zA-Z0-9_.-]+)?$`
	// +optional
	NamePrefix string `json:"namePrefix,omitempty"`
}

func (p ContainersPlatform) settings(metadata ClusterMetadata) PlatformSettings {
	s := PlatformSettings{
		Name: "containers", Cloud: p.Engine, CredentialsSecretName: p.CredentialsSecretRef.Name, Machines: p.NamePrefix,
		Missing: emptyFields("spec.platform.containers.engine", p.Engine),
	}
	if s.Machines == "" && metadata.InfraID != "" {
		s.Machines = cmp.Or(p.Label, kindLabel) + "=" + metadata.InfraID
	}
	if strings.HasPrefix(p.Engine, "unix://") {
		s.CredentialsSecretName = "" // Who may use a socket is decided by the manager's operator.
		return s
	}
	s.Missing = append(s.Missing, emptyFields("spec.platform.containers.credentialsSecretRef.name", s.CredentialsSecretName)...)
	return s
}
