// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API torpor.dev/v1alpha1: Slumber, ClusterSlumber, StopAdapter, CFDeployment, and the
// annotations, labels, conditions and reasons that Torpor adds to kinds of other projects.
//
// +kubebuilder:object:generate=true
// +groupName=torpor.dev
package v1alpha1

// Annotations of a CFApp that request a new revision while the app remains started. Each value takes effect once, so
// that a request can be repeated safely.
const (
	// RestartRequestAnnotation requests a restart when it is set to a value that was not used before.
	RestartRequestAnnotation = "torpor.dev/restart-request"
	// DeploymentAnnotation requests a deployment when it is set to a new value: the name of the CFDeployment.
	DeploymentAnnotation = "torpor.dev/deployment"
	// CancelledDeploymentAnnotation cancels the deployment if it equals the value of torpor.dev/deployment.
	CancelledDeploymentAnnotation = "torpor.dev/cancelled-deployment"
)

// Settings of a revision: an immutable Secret with the environment of one process, which the LRPs of the process reference.
const (
	// SettingsAnnotation holds the name of the settings Secret on an LRP, and the command and health check, as JSON, on that Secret.
	SettingsAnnotation = "torpor.dev/settings"
	// SettingsLabel marks a settings Secret.
	SettingsLabel = "torpor.dev/settings"
)

// Labels and annotations of a Pod that has left its Services and ends soon.
const (
	// LeftServicesLabel replaces the label of the process type, by which Services select Pods, and has the same
	// value.
	LeftServicesLabel = "torpor.dev/left-services"
	// LeftServicesAtAnnotation is the time at which the Pod left its Services (RFC 3339).
	LeftServicesAtAnnotation = "torpor.dev/left-services-at"
)

// AppNameLabel holds, on the objects that run an app, its name, with dashes for characters that a label cannot have. It
// is informational: the name of an app may change, and its objects keep the former name until the next revision.
const AppNameLabel = "torpor.dev/app-name"

// AddressesAnnotation holds, on an LRP, the addresses that its instances receive in their environment, separated by commas.
const AddressesAnnotation = "torpor.dev/addresses"

// Annotations of a CFApp that admission sets together with the revision. Admission rejects changes by others.
const (
	// DropletAnnotation is the droplet of the current revision. A change to the app's current droplet does not change it.
	DropletAnnotation = "torpor.dev/droplet"
	// RevisedByAnnotation is the user who began the current revision.
	RevisedByAnnotation = "torpor.dev/revised-by"
	// RevisedAtAnnotation is the time at which the current revision began (RFC 3339).
	RevisedAtAnnotation = "torpor.dev/revised-at"
	// CauseAnnotation is the cause of the current revision: Stop, Restart, Deployment or Repair.
	CauseAnnotation = "torpor.dev/revised-because"
	// StartedByAnnotation is the user who started the app in the current revision. It is absent if the revision began
	// while the app was started.
	StartedByAnnotation = "torpor.dev/started-by"
	// StartedAtAnnotation is the time of that start (RFC 3339).
	StartedAtAnnotation = "torpor.dev/started-at"
	// EndedRevisionsAnnotation holds, as JSON, at most 20 revisions that ended before they were recorded in
	// status.restarts, oldest first.
	EndedRevisionsAnnotation = "torpor.dev/ended-revisions"
)

// CFRoleAnnotation holds, on a RoleBinding, the Cloud Foundry role that it was created for. Several Cloud Foundry roles
// map to one Kubernetes role.
const CFRoleAnnotation = "torpor.dev/cf-role"

// StatusAnnotationPrefix is the prefix of annotations in which controllers keep parts of the status, as JSON, where another project's
// schema of the kind drops the status field.
const StatusAnnotationPrefix = "status.torpor.dev/"

// StatusFullyStoredCondition is False while the served CustomResourceDefinition drops a field of the status. It is absent while every field
// is stored.
const StatusFullyStoredCondition = "StatusFullyStored"

// SchemaLacksFieldReason means that the served CustomResourceDefinition belongs to another project and drops the fields that the message
// names.
const SchemaLacksFieldReason = "SchemaLacksField"

// TooLargeToRememberReason means that the served CustomResourceDefinition drops fields that are also too large for an annotation.
// Operations that depend on them, such as the hibernation of a cluster with many nodes, are not started.
const TooLargeToRememberReason = "TooLargeToRemember"
