// SPDX-License-Identifier: Apache-2.0

package v1

// GCPPlatform identifies a cluster on Google Cloud. Its machines are the instances in all zones of the credentials'
// project with names such as INFRAID-worker-0, except instances whose labels assign them to another cluster.
//
// +kubebuilder:pruning:PreserveUnknownFields
type GCPPlatform struct {
	// CredentialsSecretRef references the Secret with the key osServiceAccount.json.
	CredentialsSecretRef LocalObjectReference `json:"credentialsSecretRef"`
	// Region is the region of the cluster's machines. Machines are listed in all regions of the project.
	Region string `json:"region"`
	// DiscardLocalSsdOnHibernate defines what happens to the data on local SSDs when a machine is stopped: true discards it, and false
	// requests that Google Cloud preserves it. If it is unset, Google Cloud refuses to stop a machine with local SSDs.
	// +optional
	DiscardLocalSsdOnHibernate *bool `json:"discardLocalSsdOnHibernate,omitempty"`
}

func (p GCPPlatform) settings(metadata ClusterMetadata) PlatformSettings {
	return PlatformSettings{
		// The project is in the credentials, and one listing covers all of its regions.
		Name: "gcp", Machines: metadata.InfraID, CredentialsSecretName: p.CredentialsSecretRef.Name, DiscardLocalDisks: p.DiscardLocalSsdOnHibernate,
		Missing: emptyFields("spec.platform.gcp.credentialsSecretRef.name", p.CredentialsSecretRef.Name),
	}
}
