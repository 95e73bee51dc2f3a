// SPDX-License-Identifier: Apache-2.0

package v1

// Platform is the cloud of a cluster. Platforms that are not listed are kept as they are.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Platform struct {
	// AWS is Amazon EC2, or anything that speaks its API.
	// +optional
	AWS *AWSPlatform `json:"aws,omitempty"`
}

// AWSPlatform is a cluster on EC2.
//
// +kubebuilder:pruning:PreserveUnknownFields
type AWSPlatform struct {
	// CredentialsSecretRef names the Secret with the keys aws_access_key_id and aws_secret_access_key,
	// and optionally aws_session_token and endpoint_url.
	// +optional
	CredentialsSecretRef LocalObjectReference `json:"credentialsSecretRef,omitempty"`
	// CredentialsAssumeRole is the IAM role that the manager takes where credentialsSecretRef is empty. The manager's flag
	// --aws-assume-roles has to list it for the namespace.
	// +optional
	CredentialsAssumeRole *AssumeRole `json:"credentialsAssumeRole,omitempty"`
	// Region of the cluster's machines.
	Region string `json:"region"`
}

// AssumeRole is an IAM role of the cluster's account.
type AssumeRole struct {
	// RoleARN is the name of the role.
	RoleARN string `json:"roleARN"`
	// ExternalID is what the role's trust policy may ask for.
	// +optional
	ExternalID string `json:"externalID,omitempty"`
}

// PlatformSettings is what Torpor needs of every platform. It is the same for all of them and no part of the API.
//
// +kubebuilder:object:generate=false
type PlatformSettings struct {
	// Name is the platform's field under spec.platform; empty where Torpor has no field for the platform.
	Name string
	// Region is where the machines are.
	Region string
	// CredentialsSecretName names the Secret of the account, in the namespace of the ClusterDeployment.
	CredentialsSecretName string
	// AssumeRole is taken where CredentialsSecretName is empty; nil for none.
	AssumeRole *AssumeRole
}

// Settings returns the settings of the platform that is set. A new platform is a field above and a case here.
func (p Platform) Settings() PlatformSettings {
	switch {
	case p.AWS != nil:
		return PlatformSettings{
			Name: "aws", Region: p.AWS.Region, CredentialsSecretName: p.AWS.CredentialsSecretRef.Name, AssumeRole: p.AWS.CredentialsAssumeRole,
		}
	default:
		return PlatformSettings{}
	}
}
