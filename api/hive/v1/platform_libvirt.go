// SPDX-License-Identifier: Apache-2.0

package v1

// LibvirtPlatform identifies a cluster whose machines are virtual machines of one libvirt host. Its machines are the
// domains whose metadata contains the cluster's infraID, and domains without such metadata that have names such as
// INFRAID-worker-0.
//
// +kubebuilder:pruning:PreserveUnknownFields
type LibvirtPlatform struct {
	// CredentialsSecretRef references the Secret with the key uri, such as qemu+tls://host.example.com/system, and
	// for TLS clientcert.pem, clientkey.pem and cacert.pem.
	CredentialsSecretRef LocalObjectReference `json:"credentialsSecretRef"`
}

func (p LibvirtPlatform) settings(metadata ClusterMetadata) PlatformSettings {
	return PlatformSettings{
		Name: "libvirt", Machines: metadata.InfraID, CredentialsSecretName: p.CredentialsSecretRef.Name,
		Missing: emptyFields("spec.platform.libvirt.credentialsSecretRef.name", p.CredentialsSecretRef.Name),
	}
}
