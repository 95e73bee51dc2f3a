// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"cmp"
	"strings"
)

// AzureCloudName is one of Azure's clouds.
//
// +kubebuilder:validation:Enum="";AzurePublicCloud;AzureUSGovernmentCloud;AzureChinaCloud;AzureGermanCloud
type AzureCloudName string

// The clouds of Azure. The German one was closed; Hive's manifests may still name it.
const (
	AzurePublicCloud       AzureCloudName = "AzurePublicCloud"
	AzureUSGovernmentCloud AzureCloudName = "AzureUSGovernmentCloud"
	AzureChinaCloud        AzureCloudName = "AzureChinaCloud"
)

// AzurePlatform is a cluster on Microsoft Azure. Its machines are those of a resource group, which
// spec.clusterMetadata.platform.azure names.
//
// +kubebuilder:pruning:PreserveUnknownFields
type AzurePlatform struct {
	// CredentialsSecretRef names the Secret with the key osServicePrincipal.json.
	CredentialsSecretRef LocalObjectReference `json:"credentialsSecretRef"`
	// Region of the cluster's machines. They are found in all regions of their resource group.
	Region string `json:"region"`
	// CloudName is which of Azure's clouds the cluster is in; empty means AzurePublicCloud.
	// +optional
	CloudName AzureCloudName `json:"cloudName,omitempty"`
}

// AzureClusterMetadata is what is known of a cluster on Microsoft Azure.
//
// +kubebuilder:pruning:PreserveUnknownFields
type AzureClusterMetadata struct {
	// ResourceGroupName is the resource group whose virtual machines are the cluster's, all of them.
	// +kubebuilder:validation:MaxLength=90
	ResourceGroupName string `json:"resourceGroupName"`
}

func (p AzurePlatform) settings(metadata ClusterMetadata) PlatformSettings {
	group := ""
	if metadata.Platform != nil && metadata.Platform.Azure != nil {
		group = metadata.Platform.Azure.ResourceGroupName
	}
	return PlatformSettings{
		// Azure answers for all regions at once, and does not tell upper case from lower.
		Name: "azure", Cloud: string(cmp.Or(p.CloudName, AzurePublicCloud)), Machines: strings.ToLower(group),
		CredentialsSecretName: p.CredentialsSecretRef.Name,
		Missing: emptyFields("spec.clusterMetadata.platform.azure.resourceGroupName", group,
			"spec.platform.azure.credentialsSecretRef.name", p.CredentialsSecretRef.Name),
	}
}
