// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"cmp"
	"strings"
)

// kindLabel is the label by which kind marks the nodes of a cluster.
const kindLabel = "io.x-k8s.kind.cluster"

// ContainersPlatform identifies a cluster whose nodes are containers, such as those of kind and k3d. Its machines are the containers whose
// label has the cluster's infraID as its value, or whose names begin with namePrefix.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ContainersPlatform struct {
	// Engine is the address at which the container engine serves Docker's API: tcp://HOST:PORT, which requires TLS, or unix:///PATH, which
	// the manager's flag --container-engine-sockets must list for the namespace.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(tcp|https|unix)://.+$`
	Engine string `json:"engine"`
	// CredentialsSecretRef references the Secret with the keys tls.crt, tls.key and ca.crt for an engine that
	// requires TLS.
	// +optional
	CredentialsSecretRef LocalObjectReference `json:"credentialsSecretRef,omitempty"`
	// Label is the label whose value is the infraID. Empty means the label that kind sets. The label that k3d sets is
	// k3d.cluster.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^[^=]*$`
	// +optional
	Label string `json:"label,omitempty"`
	// NamePrefix is the prefix of the names of the containers. If NamePrefix is set, Label is not used.
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
		s.CredentialsSecretName = "" // Access to a socket depends only on the flag --container-engine-sockets.
		return s
	}
	s.Missing = append(s.Missing, emptyFields("spec.platform.containers.credentialsSecretRef.name", s.CredentialsSecretName)...)
	return s
}
