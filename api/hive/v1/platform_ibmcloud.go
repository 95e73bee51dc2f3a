// SPDX-License-Identifier: Apache-2.0

package v1

// IBMCloudPlatform identifies a cluster on IBM Cloud VPC. Its machines are the instances of a region whose names begin with the cluster's
// infraID and a hyphen, in the VPC or the resource group that is named after the infraID.
//
// +kubebuilder:pruning:PreserveUnknownFields
type IBMCloudPlatform struct {
	// CredentialsSecretRef references the Secret with the key ibmcloud_api_key.
	CredentialsSecretRef LocalObjectReference `json:"credentialsSecretRef"`
	// Region is the region of the cluster's machines.
	Region string `json:"region"`
}

func (p IBMCloudPlatform) settings(metadata ClusterMetadata) PlatformSettings {
	return PlatformSettings{
		Name: "ibmcloud", Region: p.Region, Machines: metadata.InfraID, CredentialsSecretName: p.CredentialsSecretRef.Name,
		Missing: emptyFields("spec.platform.ibmcloud.region", p.Region, "spec.platform.ibmcloud.credentialsSecretRef.name", p.CredentialsSecretRef.Name),
	}
}
