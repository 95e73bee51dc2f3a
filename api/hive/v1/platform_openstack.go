// SPDX-License-Identifier: Apache-2.0

package v1

// OpenStackStopMethod is what a hibernation does to the servers of a cluster.
//
// +kubebuilder:validation:Enum="";Stop;Shelve
type OpenStackStopMethod string

// The ways to stop servers.
const (
	// OpenStackStop turns them off. They keep their hosts.
	OpenStackStop OpenStackStopMethod = "Stop"
	// OpenStackShelve turns them off and gives up their hosts. What they had there is kept as an image, and they start wherever there is room.
	OpenStackShelve OpenStackStopMethod = "Shelve"
)

// OpenStackPlatform is a cluster on OpenStack. Its machines are the servers whose property openshiftClusterID is the cluster's infraID.
//
// +kubebuilder:pruning:PreserveUnknownFields
type OpenStackPlatform struct {
	// CredentialsSecretRef names the Secret with the key clouds.yaml.
	CredentialsSecretRef LocalObjectReference `json:"credentialsSecretRef"`
	// Cloud is the name of the cloud in clouds.yaml.
	// +kubebuilder:validation:MaxLength=253
	Cloud string `json:"cloud"`
	// StopMethod is Stop, which lets the servers keep their hosts, or Shelve, which gives the hosts up, so that a resume takes longer and needs
	// room; empty means Stop. It counts for the next hibernation, and for a cluster that hibernates already.
	// +optional
	StopMethod OpenStackStopMethod `json:"stopMethod,omitempty"`
}

func (p OpenStackPlatform) settings(metadata ClusterMetadata) PlatformSettings {
	return PlatformSettings{
		// The region is in clouds.yaml, as for OpenStack's own clients.
		Name: "openstack", Cloud: p.Cloud, IsCloudNamedBySecret: true, Machines: metadata.InfraID, CredentialsSecretName: p.CredentialsSecretRef.Name,
		FreesCapacity: p.StopMethod == OpenStackShelve,
		Missing:       emptyFields("spec.platform.openstack.cloud", p.Cloud, "spec.platform.openstack.credentialsSecretRef.name", p.CredentialsSecretRef.Name),
	}
}
