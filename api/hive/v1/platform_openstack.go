// SPDX-License-Identifier: Apache-2.0

package v1

// OpenStackStopMethod is the way in which a hibernation stops the servers of a cluster.
//
// +kubebuilder:validation:Enum="";Stop;Shelve
type OpenStackStopMethod string

// The ways to stop servers.
const (
	// OpenStackStop powers servers off. They keep their hosts.
	OpenStackStop OpenStackStopMethod = "Stop"
	// OpenStackShelve powers servers off and releases their hosts. Their local disks are kept as images, and they start on any host with
	// capacity.
	OpenStackShelve OpenStackStopMethod = "Shelve"
)

// OpenStackPlatform identifies a cluster on OpenStack. Its machines are the servers whose property openshiftClusterID is the cluster's
// infraID.
//
// +kubebuilder:pruning:PreserveUnknownFields
type OpenStackPlatform struct {
	// CredentialsSecretRef references the Secret with the key clouds.yaml.
	CredentialsSecretRef LocalObjectReference `json:"credentialsSecretRef"`
	// Cloud is the name of the cloud in clouds.yaml.
	// +kubebuilder:validation:MaxLength=253
	Cloud string `json:"cloud"`
	// StopMethod is Stop, by which the servers keep their hosts, or Shelve, which releases the hosts, so a resume takes longer and
	// needs free capacity. Empty means Stop. A change also applies to a cluster that hibernates already.
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
