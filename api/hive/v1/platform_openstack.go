// SPDX-License-Identifier: Apache-2.0

package v1

// OpenStackStopMethod is the method by which a hibernation stops the servers of a cluster.
//
// +kubebuilder:validation:Enum="";Stop;Shelve
type OpenStackStopMethod string

// These are the methods to stop servers.
const (
	// OpenStackStop powers servers off. The servers keep their capacity on their hosts.
	OpenStackStop OpenStackStopMethod = "Stop"
	// OpenStackShelve powers servers off and releases their capacity. OpenStack keeps their local disks as images, and
	// starts the servers on any host with free capacity.
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
	// StopMethod is Stop, which keeps the servers' capacity on their hosts, or Shelve, which releases this capacity. A
	// resume after Shelve takes longer and needs free capacity. Empty means Stop. A change to Shelve also applies to a
	// cluster that already hibernates.
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
