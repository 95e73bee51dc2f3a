// SPDX-License-Identifier: Apache-2.0

package v1

import "reflect"

// Platform is the cloud of a cluster. Torpor preserves the fields of other platforms, and does not use them.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Platform struct {
	// AWS is Amazon EC2, or a cloud that implements its API.
	// +optional
	AWS *AWSPlatform `json:"aws,omitempty"`
	// Azure is Microsoft Azure.
	// +optional
	Azure *AzurePlatform `json:"azure,omitempty"`
	// BareMetal describes physical machines with management controllers (BMCs).
	// +optional
	BareMetal *BareMetalPlatform `json:"baremetal,omitempty"`
	// Containers describes nodes that are containers of one container engine, such as those of kind and k3d.
	// +optional
	Containers *ContainersPlatform `json:"containers,omitempty"`
	// GCP is Google Cloud.
	// +optional
	GCP *GCPPlatform `json:"gcp,omitempty"`
	// IBMCloud is IBM Cloud VPC.
	// +optional
	IBMCloud *IBMCloudPlatform `json:"ibmcloud,omitempty"`
	// Libvirt describes a host with virtual machines of libvirt.
	// +optional
	Libvirt *LibvirtPlatform `json:"libvirt,omitempty"`
	// OpenStack is a cloud that implements OpenStack's API.
	// +optional
	OpenStack *OpenStackPlatform `json:"openstack,omitempty"`
}

// ClusterPlatformMetadata holds metadata of an installed cluster that only some platforms need.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterPlatformMetadata struct {
	// Azure holds metadata of a cluster on Microsoft Azure.
	// +optional
	Azure *AzureClusterMetadata `json:"azure,omitempty"`
}

// PlatformSettings holds the settings of a platform in a form that is common to all platforms. It is not part of the
// API.
// +kubebuilder:object:generate=false
type PlatformSettings struct {
	// Name is the name of the platform's field in spec.platform; empty if Torpor does not know the platform.
	Name string
	// Cloud identifies the cloud of the cluster among the clouds of the platform; empty if the platform has only one
	// cloud.
	Cloud string
	// IsCloudNamedBySecret is true if the name in Cloud is valid only within the credentials Secret. Another Secret may
	// use another name for the same cloud.
	IsCloudNamedBySecret bool
	// Region is the region whose machines are listed; empty if one listing covers all regions.
	Region string
	// Machines identifies the machines, for example by the infraID in their tags or names.
	Machines string
	// CredentialsSecretName is the name of the Secret with the cloud credentials, in the namespace of the
	// ClusterDeployment; empty if the manager uses its own identity.
	CredentialsSecretName string
	// AssumeRole is the role to assume if CredentialsSecretName is empty; nil if there is none.
	AssumeRole *AssumeRole
	// DiscardLocalDisks defines whether a stop discards the data on disks of a machine's host; nil means the default of
	// the cloud.
	DiscardLocalDisks *bool
	// FreesCapacity is true if a stop must release the machines' capacity on their hosts, on a platform on which that
	// is optional.
	FreesCapacity bool
	// ListedMachines are all machines of the cluster, on platforms whose clusters list them in the spec.
	ListedMachines []BareMetalMachine
	// Missing lists the required fields that are not set.
	Missing []string
}

// platformFields are the fields of one platform.
type platformFields interface {
	settings(metadata ClusterMetadata) PlatformSettings
}

// PlatformSettings returns the settings of the first platform that is set. A new platform is a file with its fields, and a field of
// Platform.
func (s ClusterDeploymentSpec) PlatformSettings() PlatformSettings {
	metadata := ClusterMetadata{}
	if s.ClusterMetadata != nil {
		metadata = *s.ClusterMetadata
	}
	for _, field := range reflect.ValueOf(s.Platform).Fields() {
		if platform, ok := reflect.TypeAssert[platformFields](field); ok && !field.IsNil() {
			return platform.settings(metadata)
		}
	}
	return PlatformSettings{}
}

// emptyFields takes pairs of a path and a value, and returns the paths whose value is empty, in their order.
func emptyFields(pathsAndValues ...string) []string {
	var missing []string
	for i := 0; i+1 < len(pathsAndValues); i += 2 {
		if pathsAndValues[i+1] == "" {
			missing = append(missing, pathsAndValues[i])
		}
	}
	return missing
}
