// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// These annotations of a CFApp count its revisions. Admission sets them, and rejects other values in updates.
const (
	// RevisionAnnotation is the app's revision, a decimal number. It increases with every stop, restart and deployment, and never
	// decreases.
	RevisionAnnotation = "korifi.cloudfoundry.org/app-rev"
	// LastStopRevisionAnnotation is the revision that the last stop or restart began. By default, this revision starts
	// only once the Pods of older revisions are gone, or after the drain timeout.
	LastStopRevisionAnnotation = "korifi.cloudfoundry.org/last-stop-app-rev"
)

// FirstRevision is the first revision of an app.
const FirstRevision = "0"

// These are labels of orgs, spaces, apps and their objects.
const (
	// GUIDLabel is the GUID of the object, which is its name. On StatefulSets, PodDisruptionBudgets and Pods it is the
	// GUID of the process.
	GUIDLabel = "korifi.cloudfoundry.org/guid"
	// AppGUIDLabel is the name of the CFApp.
	AppGUIDLabel = "korifi.cloudfoundry.org/app-guid"
	// ProcessGUIDLabel is the name of the CFProcess.
	ProcessGUIDLabel = "korifi.cloudfoundry.org/process-guid"
	// ProcessTypeLabel is the type of the process, such as web.
	ProcessTypeLabel = "korifi.cloudfoundry.org/process-type"
	// AppWorkloadGUIDLabel marks objects that Korifi's own runner creates for an app. Torpor's objects do not have it.
	AppWorkloadGUIDLabel = "korifi.cloudfoundry.org/appworkload-guid"
	// VersionLabel is the revision of an LRP, its StatefulSet and its Pods.
	VersionLabel = "korifi.cloudfoundry.org/version"
	// SpaceGUIDLabel is the name of the CFSpace and of its namespace.
	SpaceGUIDLabel = "korifi.cloudfoundry.org/space-guid"
	// OrgGUIDLabel is the name of the CFOrg, on its namespace and on those of its spaces.
	OrgGUIDLabel = "korifi.cloudfoundry.org/org-guid"
	// DisplayNameLabel is a hash of the display name, with which label selectors find objects by name.
	DisplayNameLabel = "korifi.cloudfoundry.org/display-name"
	// PackageGUIDLabel is the name of the CFPackage of a CFBuild.
	PackageGUIDLabel = "korifi.cloudfoundry.org/package-guid"
	// RouteGUIDLabel is the name of the CFRoute, on its Services, Ingress and HTTPRoute.
	RouteGUIDLabel = "korifi.cloudfoundry.org/route-guid"
	// CreatedAtLabel is Korifi's label with the creation time of an object, in the form 2006-01-02T15-04-05.
	CreatedAtLabel = "korifi.cloudfoundry.org/created_at"
	// UpdatedAtLabel is Korifi's label with the time of the last change to an object, in the form 2006-01-02T15-04-05.
	UpdatedAtLabel = "korifi.cloudfoundry.org/updated_at"
)

// WebProcess is the type of the process that serves requests.
const WebProcess = "web"

// AppFinalizer delays the deletion of a CFApp until its Pods are gone.
const AppFinalizer = "korifi.cloudfoundry.org/cfApp"

// OrgFinalizer delays the deletion of a CFOrg until its namespace is gone.
const OrgFinalizer = "korifi.cloudfoundry.org/cfOrg"

// SpaceFinalizer delays the deletion of a CFSpace until its namespace is gone.
const SpaceFinalizer = "korifi.cloudfoundry.org/cfSpace"

// These are the conditions of a CFApp, a CFProcess and an LRP.
const (
	// ReadyCondition is True while the current revision runs with the desired number of instances, or while a stopped
	// app has no Pods.
	ReadyCondition = "Ready"
	// DrainingCondition is True while Pods are ending, including all Pods of obsolete revisions. The message contains
	// their number.
	DrainingCondition = "Draining"
)

// These are the reasons of Ready.
const (
	// RunningReason means that all desired instances of the current revision are ready.
	RunningReason = "Running"
	// StoppedReason means that the app is stopped and has no Pods.
	StoppedReason = "Stopped"
	// StartingReason means that instances of the current revision are not ready yet.
	StartingReason = "Starting"
	// BlockedReason means that instances of the current revision cannot be created, scheduled or started, or crash
	// during a deployment. The message explains why.
	BlockedReason = "Blocked"
	// StoppingReason means that the app is stopped or the LRP is being deleted, and Pods remain.
	StoppingReason = "Stopping"
	// WaitingForDrainReason means that the current revision waits until the Pods of older revisions are gone.
	WaitingForDrainReason = "WaitingForDrain"
	// DeployingReason means that a deployment or its cancellation replaces other revisions with the current revision.
	DeployingReason = "Deploying"
	// DeploymentPausedReason means that a canary deployment is paused until a user continues it.
	DeploymentPausedReason = "DeploymentPaused"
	// DropletMissingReason means that the app has no droplet, or its build has not produced one.
	DropletMissingReason = "DropletMissing"
	// RevisionUnreadableReason means that the annotation with the app's revision is not a number, or is less than the observed revision.
	RevisionUnreadableReason = "RevisionUnreadable"
	// NewerRevisionReason means that an LRP has a newer revision than the app. The controller's view of the app is
	// stale, so the controller does not act.
	NewerRevisionReason = "NewerRevision"
	// NameTakenReason means that another owner's object, or an object being deleted, has the name of an LRP, a
	// StatefulSet, a Job or a namespace to be created.
	NameTakenReason = "NameTaken"
	// DeletedReason means that the process or its app is being deleted, or the CFTask's app does not exist.
	DeletedReason = "Deleted"
)

// These are the reasons of Draining.
const (
	// DrainingReason means that Pods are ending.
	DrainingReason = "Draining"
	// DrainTimeoutReason means that Pods of an obsolete revision remain after the drain timeout, so the current
	// revision may start anyway.
	DrainTimeoutReason = "DrainTimeout"
	// DrainedReason means that no Pod is ending.
	DrainedReason = "Drained"
)

// These are the condition types of a CFBuild. Staging and Succeeded are Korifi's.
const (
	// StagingCondition is True until the build has ended.
	StagingCondition = "Staging"
	// SucceededCondition is True if the droplet exists, and False if the build has failed.
	SucceededCondition = "Succeeded"
	// PinnedCondition is True if the droplet references its image by a digest, which Torpor resolved at the registry. A
	// CFBuild whose droplet an external builder provides does not have this condition.
	PinnedCondition = "Pinned"
)

// These are the reasons of Pinned.
const (
	// ImagePinnedReason means that the droplet references the image by the digest to which the image's name resolved
	// when the droplet was built.
	ImagePinnedReason = "ImagePinned"
	// RegistryNotAskedReason means that the manager is not configured to contact the registry.
	RegistryNotAskedReason = "RegistryNotAsked"
	// RegistryNotAllowedReason means that the manager may not connect to the registry, or to a server to which it
	// redirects.
	RegistryNotAllowedReason = "RegistryNotAllowed"
	// RegistrySilentReason means that the registry did not answer in time, is unreachable, or has an untrusted
	// certificate.
	RegistrySilentReason = "RegistrySilent"
	// RegistryBusyReason means that too many images are being resolved at the same time.
	RegistryBusyReason = "RegistryBusy"
	// RegistryRefusedReason means that the registry rejected the request.
	RegistryRefusedReason = "RegistryRefused"
	// ImageUnreadableReason means that the registry's answer is not an image manifest, or is too large.
	ImageUnreadableReason = "ImageUnreadable"
	// PullSecretUnreadableReason means that a Secret that the image is pulled with cannot be read.
	PullSecretUnreadableReason = "PullSecretUnreadable"
)

// These are the reasons of Staging and Succeeded, and of Ready of a CFPackage, a CFOrg and a CFSpace.
const (
	// SourceReadyReason means that the package references an image.
	SourceReadyReason = "SourceReady"
	// SourceMissingReason means that no image with the source code of the package was uploaded yet.
	SourceMissingReason = "SourceMissing"
	// BuildFailedReason means that the builder of the droplet reports a failure.
	BuildFailedReason = "BuildFailed"
	// ImageMissingReason means that the registry does not have the image.
	ImageMissingReason = "ImageMissing"
	// StagedReason means that the droplet exists.
	StagedReason = "Staged"
	// PackageMissingReason means that the CFPackage of the build does not exist.
	PackageMissingReason = "PackageMissing"
	// BuiltByOthersReason means that the package holds source code, and an external builder must provide the
	// droplet.
	BuiltByOthersReason = "BuiltByOthers"
	// NamespaceReadyReason means that the namespace exists.
	NamespaceReadyReason = "NamespaceReady"
)

// These are the reasons of Ready of a CFRoute.
const (
	// AddressServedReason means that the gateway has accepted the route, or the Ingress has a load balancer.
	AddressServedReason = "AddressServed"
	// AddressReservedReason means that the address is reserved for the space, and no existing app is mapped to it.
	AddressReservedReason = "AddressReserved"
	// AddressPublishedReason means that the Ingress or the HTTPRoute does not report yet whether the address is served,
	// or is not written yet.
	AddressPublishedReason = "AddressPublished"
	// GatewayRefusedReason means that the gateway rejected the address. The message contains the gateway's reason.
	GatewayRefusedReason = "GatewayRefused"
	// AddressTakenReason means that an older CFRoute has the address, or the oldest CFRoute with the host is in
	// another namespace.
	AddressTakenReason = "AddressTaken"
	// AddressInvalidReason means that the host, the path or the protocol of the address cannot be served.
	AddressInvalidReason = "AddressInvalid"
	// DomainMissingReason means that the CFDomain of the route does not exist, or an older CFDomain has the same
	// domain name.
	DomainMissingReason = "DomainMissing"
)
