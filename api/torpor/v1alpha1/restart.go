// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API torpor.dev/v1alpha1: the names that Torpor adds to the kinds of others, and CFDeployment,
// which brings a new revision of an app up beside the old one.
//
// +kubebuilder:object:generate=true
// +groupName=torpor.dev
package v1alpha1

// Annotations of a CFApp by which somebody asks for a new revision while the app stays started. A value asks once: asking
// again with the same value does nothing, so that a call can be repeated.
const (
	// RestartRequestAnnotation asks for a restart when it gets a new value, which may be anything that was not used before.
	RestartRequestAnnotation = "torpor.dev/restart-request"
	// DeploymentAnnotation asks for a new revision beside the old one when it gets a new value: the name of the deployment.
	DeploymentAnnotation = "torpor.dev/deployment"
	// CancelledDeploymentAnnotation takes a deployment back when it is the value of torpor.dev/deployment.
	CancelledDeploymentAnnotation = "torpor.dev/cancelled-deployment"
)

// Settings of a revision: an immutable Secret with the environment of one process, which its LRPs refer to.
const (
	// SettingsAnnotation is on an LRP the name of its Secret, and on the Secret the command and the health check, as JSON.
	SettingsAnnotation = "torpor.dev/settings"
	// SettingsLabel is on such a Secret.
	SettingsLabel = "torpor.dev/settings"
)

// AddressesAnnotation is on an LRP the addresses that its instances are told of, separated by commas.
const AddressesAnnotation = "torpor.dev/addresses"

// Annotations of a CFApp that Torpor's admission writes beside the revision; edits by others are refused.
const (
	// DropletAnnotation is the droplet that the current revision runs, whatever the app's current droplet becomes.
	DropletAnnotation = "torpor.dev/droplet"
	// RevisedByAnnotation is who began the current revision.
	RevisedByAnnotation = "torpor.dev/revised-by"
	// RevisedAtAnnotation is when the current revision began (RFC 3339).
	RevisedAtAnnotation = "torpor.dev/revised-at"
	// CauseAnnotation is why the current revision began: Stop, Restart, Deployment or Repair.
	CauseAnnotation = "torpor.dev/revised-because"
	// StartedByAnnotation is who started the app in the current revision; a revision that begins while the app runs has none.
	StartedByAnnotation = "torpor.dev/started-by"
	// StartedAtAnnotation is when (RFC 3339).
	StartedAtAnnotation = "torpor.dev/started-at"
	// EndedRevisionsAnnotation holds revisions that ended before status.restarts had them, as JSON, the oldest first, at most 20.
	EndedRevisionsAnnotation = "torpor.dev/ended-revisions"
)

// CFRoleAnnotation is on a RoleBinding the role of CF that it was made for: several are one to Kubernetes.
const CFRoleAnnotation = "torpor.dev/cf-role"

// StatusAnnotationPrefix begins the annotations in which controllers keep the part of a status that they decide by, as JSON:
// another project's schema of the kind may not keep the field itself.
const StatusAnnotationPrefix = "status.torpor.dev/"

// StatusFullyStoredCondition is False while the served CustomResourceDefinition does not keep a field of the status; it is
// absent while everything is kept.
const StatusFullyStoredCondition = "StatusFullyStored"

// SchemaLacksFieldReason means that the served CustomResourceDefinition is another project's, and drops the fields that the message
// names.
const SchemaLacksFieldReason = "SchemaLacksField"

// TooLargeToRememberReason means that the served CustomResourceDefinition drops fields which are too large for an annotation too:
// what depends on them, such as the hibernation of a cluster with many nodes, is not begun.
const TooLargeToRememberReason = "TooLargeToRemember"
