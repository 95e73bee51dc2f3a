// SPDX-License-Identifier: Apache-2.0

package v1

// AWSPlatform identifies a cluster on EC2.
//
// +kubebuilder:pruning:PreserveUnknownFields
type AWSPlatform struct {
	// CredentialsSecretRef references the Secret with the keys aws_access_key_id and aws_secret_access_key or the key
	// aws_config, and optionally aws_session_token and endpoint_url.
	// +optional
	CredentialsSecretRef LocalObjectReference `json:"credentialsSecretRef,omitempty"`
	// CredentialsAssumeRole is the IAM role that the manager assumes if credentialsSecretRef is empty. The manager's flag
	// --aws-assume-roles must list it for the namespace.
	// +optional
	CredentialsAssumeRole *AssumeRole `json:"credentialsAssumeRole,omitempty"`
	// Region is the region of the cluster's machines.
	Region string `json:"region"`
}

// AssumeRole is an IAM role of the cluster's account.
type AssumeRole struct {
	// RoleARN is the ARN of the role.
	RoleARN string `json:"roleARN"`
	// ExternalID is the external id that the trust policy of the role may require.
	// +optional
	ExternalID string `json:"externalID,omitempty"`
}

func (p AWSPlatform) settings(metadata ClusterMetadata) PlatformSettings {
	credentials := p.CredentialsSecretRef.Name
	if credentials == "" && p.CredentialsAssumeRole != nil {
		credentials = p.CredentialsAssumeRole.RoleARN
	}
	return PlatformSettings{
		Name: "aws", Region: p.Region, Machines: metadata.InfraID,
		CredentialsSecretName: p.CredentialsSecretRef.Name, AssumeRole: p.CredentialsAssumeRole,
		Missing: emptyFields("spec.platform.aws.region", p.Region, "spec.platform.aws.credentialsSecretRef.name", credentials),
	}
}
