// SPDX-License-Identifier: Apache-2.0

package v1

// GCPPlatform is a cluster on Google Cloud. Its machines are the instances whose names begin with the cluster's infraID and a hyphen, in
// all zones of the project that the credentials are of, without those whose labels say that they are another cluster's.
//
// +kubebuilder:pruning:PreserveUnknownFields
type GCPPlatform struct {
	// CredentialsSecretRef names the Secret with the key osServiceAccount.json.
	CredentialsSecretRef LocalObjectReference `json:"credentialsSecretRef"`
	// Region of the cluster's machines. They are found in all regions of their project.
	Region string `json:"region"`
	// DiscardLocalSsdOnHibernate says what becomes of the data on local SSDs when a machine that has any is stopped: true loses them, false
	// has Google Cloud keep them, and without a value Google Cloud refuses to stop the machine.
	// +optional
	DiscardLocalSsdOnHibernate *bool `json:"discardLocalSsdOnHibernate,omitempty"`
}

func (p GCPPlatform) settings(metadata ClusterMetadata) PlatformSettings {
	return PlatformSettings{
		// The project is in the credentials, and one answer is for all of its regions.
		Name: "gcp", Machines: metadata.InfraID, CredentialsSecretName: p.CredentialsSecretRef.Name, DiscardLocalDisks: p.DiscardLocalSsdOnHibernate,
		Missing: emptyFields("spec.platform.gcp.credentialsSecretRef.name", p.CredentialsSecretRef.Name),
	}
}
