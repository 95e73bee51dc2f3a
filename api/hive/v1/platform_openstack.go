// SPDX-License-Identifier: Apache-2.0

package v1

// OpenStackPlatform is a cluster on OpenStack. Its machines are the servers whose property openshiftClusterID is the cluster's infraID.
//
// +kubebuilder:pruning:PreserveUnknownFields
type OpenStackPlatform struct {
	// CredentialsSecretRef names the Secret with the key clouds.yaml.
	CredentialsSecretRef LocalObjectReference `json:"credentialsSecretRef"`
	// Cloud is the name of the cloud in clouds.yaml.
	// +kubebuilder:validation:MaxLength=253
	Cloud string `json:"cloud"`
}

func (p OpenStackPlatform) settings(metadata ClusterMetadata) PlatformSettings {
	return PlatformSettings{
		// The region is in clouds.yaml, as for OpenStack's own clients.
		Name: "openstack", Cloud: p.Cloud, Machines: metadata.InfraID, CredentialsSecretName: p.CredentialsSecretRef.Name,
		Missing: emptyFields("spec.platform.openstack.cloud", p.Cloud, "spec.platform.openstack.credentialsSecretRef.name", p.CredentialsSecretRef.Name),
	}
}
