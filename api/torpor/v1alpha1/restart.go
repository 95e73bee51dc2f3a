// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API torpor.dev/v1alpha1: Slumber, ClusterSlumber, StopAdapter, CFDeployment, and the
// annotations, labels, conditions and reasons that Torpor adds to kinds of other projects.
//
// +kubebuilder:object:generate=true
// +groupName=torpor.dev
package v1alpha1

// Clients request or cancel a new revision of a started CFApp with these annotations. A request with an unchanged value
// has no effect, so it can be repeated safely.
const (
	// RestartRequestAnnotation requests a restart when it is set to a new value.
	RestartRequestAnnotation = "torpor.dev/restart-request"
	// DeploymentAnnotation requests a deployment when it is set to a new value. The value is the name of the
	// CFDeployment.
	DeploymentAnnotation = "torpor.dev/deployment"
	// CancelledDeploymentAnnotation cancels the deployment if it has the same value as torpor.dev/deployment.
	CancelledDeploymentAnnotation = "torpor.dev/cancelled-deployment"
)

// The settings of a process in a revision are in an immutable Secret, to which its LRP refers.
const (
	// SettingsAnnotation holds, on an LRP, the name of the settings Secret. On this Secret, it holds the command, the
	// health check and the ports as JSON.
	SettingsAnnotation = "torpor.dev/settings"
	// SettingsLabel marks a settings Secret.
	SettingsLabel = "torpor.dev/settings"
)

// These mark a Pod that its Services no longer select, and that terminates soon.
const (
	// LeftServicesLabel replaces the label with the process type, and has the same value, so that Services no longer
	// select the Pod.
	LeftServicesLabel = "torpor.dev/left-services"
	// LeftServicesAtAnnotation is the time at which Torpor replaced the label with the process type of a Pod by
	// torpor.dev/left-services (RFC 3339).
	LeftServicesAtAnnotation = "torpor.dev/left-services-at"
)

// AppNameLabel is the name of the app, on its objects, with dashes instead of characters that a label cannot contain.
// The label is informational: if the name of an app changes, its LRPs keep the former name until the next revision.
const AppNameLabel = "torpor.dev/app-name"

// AddressesAnnotation holds, on an LRP, the addresses of the app's routes, separated by commas, for the environment of
// the instances.
const AddressesAnnotation = "torpor.dev/addresses"

// Admission sets these annotations of a CFApp when it sets the revision, and rejects other values that clients set.
const (
	// DropletAnnotation is the droplet of the current revision. Once it is set, a change to spec.currentDropletRef does
	// not change it.
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
	// StartedAtAnnotation is the time at which this user started the app (RFC 3339).
	StartedAtAnnotation = "torpor.dev/started-at"
	// EndedRevisionsAnnotation holds, as JSON, at most 20 revisions that ended before the controller recorded them in
	// status.restarts, oldest first.
	EndedRevisionsAnnotation = "torpor.dev/ended-revisions"
)

// CFRoleAnnotation is the Cloud Foundry role for which a RoleBinding was created. Several Cloud Foundry roles map to
// one Kubernetes role.
const CFRoleAnnotation = "torpor.dev/cf-role"

// StatusAnnotationPrefix is the prefix of annotations in which controllers store fields of the status as JSON, because
// the CustomResourceDefinition of another project may drop these fields.
const StatusAnnotationPrefix = "status.torpor.dev/"

// StatusFullyStoredCondition is False while the served CustomResourceDefinition drops a field of the status. It is absent while every field
// is stored.
const StatusFullyStoredCondition = "StatusFullyStored"

// SchemaLacksFieldReason means that the served CustomResourceDefinition belongs to another project or another version
// of Torpor, and drops the fields that the message lists.
const SchemaLacksFieldReason = "SchemaLacksField"

// TooLargeToRememberReason means that the served CustomResourceDefinition drops fields that are also too large for an
// annotation. Torpor does not start operations that depend on these fields, such as the hibernation of a cluster with
// many nodes.
const TooLargeToRememberReason = "TooLargeToRemember"
