// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"cmp"
	"strings"
)

// AzureCloudName is the name of an Azure cloud.
//
// +kubebuilder:validation:Enum="";AzurePublicCloud;AzureUSGovernmentCloud;AzureChinaCloud;AzureGermanCloud
type AzureCloudName string

// These are the clouds of Azure. AzureGermanCloud no longer exists, but manifests of Hive may contain it.
const (
	AzurePublicCloud       AzureCloudName = "AzurePublicCloud"
	AzureUSGovernmentCloud AzureCloudName = "AzureUSGovernmentCloud"
	AzureChinaCloud        AzureCloudName = "AzureChinaCloud"
)

// AzurePlatform identifies a cluster on Microsoft Azure. Its machines are the virtual machines of the resource group
// that spec.clusterMetadata.platform.azure specifies.
//
// +kubebuilder:pruning:PreserveUnknownFields
type AzurePlatform struct {
	// CredentialsSecretRef references the Secret with the key osServicePrincipal.json.
	CredentialsSecretRef LocalObjectReference `json:"credentialsSecretRef"`
	// Region is the region of the cluster's machines. Machines are listed in all regions of the resource group.
	Region string `json:"region"`
	// CloudName is the Azure cloud of the cluster. Empty means AzurePublicCloud.
	// +optional
	CloudName AzureCloudName `json:"cloudName,omitempty"`
}

// AzureClusterMetadata holds metadata of a cluster on Microsoft Azure.
//
// +kubebuilder:pruning:PreserveUnknownFields
type AzureClusterMetadata struct {
	// ResourceGroupName is the name of the resource group. All of its virtual machines belong to the cluster.
	// +kubebuilder:validation:MaxLength=90
	ResourceGroupName string `json:"resourceGroupName"`
}

func (p AzurePlatform) settings(metadata ClusterMetadata) PlatformSettings {
	group := ""
	if metadata.Platform != nil && metadata.Platform.Azure != nil {
		group = metadata.Platform.Azure.ResourceGroupName
	}
	return PlatformSettings{
		// One listing covers all regions, and Azure ignores the case of names.
		Name: "azure", Cloud: string(cmp.Or(p.CloudName, AzurePublicCloud)), Machines: strings.ToLower(group),
		CredentialsSecretName: p.CredentialsSecretRef.Name,
		Missing: emptyFields("spec.clusterMetadata.platform.azure.resourceGroupName", group,
			"spec.platform.azure.credentialsSecretRef.name", p.CredentialsSecretRef.Name),
	}
}
