// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Annotations of a CFApp that count its revisions. Torpor's admission writes them; edits by others are refused.
const (
	// RevisionAnnotation is the app's revision, a decimal number; it rises with every stop, restart and deployment and never falls.
	RevisionAnnotation = "korifi.cloudfoundry.org/app-rev"
	// LastStopRevisionAnnotation is the revision that the last stop or restart began; what is older has to be gone before it runs.
	LastStopRevisionAnnotation = "korifi.cloudfoundry.org/last-stop-app-rev"
)

// FirstRevision is the revision of an app that was never stopped.
const FirstRevision = "0"

// Labels of what belongs to an app.
const (
	// GUIDLabel is the object's own GUID, which is its name; on Pods it is that of the process.
	GUIDLabel = "korifi.cloudfoundry.org/guid"
	// AppGUIDLabel is the name of the CFApp.
	AppGUIDLabel = "korifi.cloudfoundry.org/app-guid"
	// ProcessGUIDLabel is the name of the CFProcess.
	ProcessGUIDLabel = "korifi.cloudfoundry.org/process-guid"
	// ProcessTypeLabel is the type of the process, such as web.
	ProcessTypeLabel = "korifi.cloudfoundry.org/process-type"
	// AppWorkloadGUIDLabel is on what Korifi's own runner makes of an app, and on nothing of Torpor's.
	AppWorkloadGUIDLabel = "korifi.cloudfoundry.org/appworkload-guid"
	// VersionLabel is the revision of an LRP, its StatefulSet and its Pods.
	VersionLabel = "korifi.cloudfoundry.org/version"
	// SpaceGUIDLabel is the name of the CFSpace and of its namespace.
	SpaceGUIDLabel = "korifi.cloudfoundry.org/space-guid"
	// OrgGUIDLabel is the name of the CFOrg, on its namespace and on those of its spaces.
	OrgGUIDLabel = "korifi.cloudfoundry.org/org-guid"
	// DisplayNameLabel is a hash of the name that people see, so that objects can be found by it.
	DisplayNameLabel = "korifi.cloudfoundry.org/display-name"
	// PackageGUIDLabel is the name of the CFPackage that a CFBuild is made from.
	PackageGUIDLabel = "korifi.cloudfoundry.org/package-guid"
	// RouteGUIDLabel is the name of the CFRoute, on the Services of its destinations.
	RouteGUIDLabel = "korifi.cloudfoundry.org/route-guid"
	// CreatedAtLabel is when an object was made, as in 2006-01-02T15-04-05.
	CreatedAtLabel = "korifi.cloudfoundry.org/created_at"
	// UpdatedAtLabel is when an object was changed last, as in 2006-01-02T15-04-05.
	UpdatedAtLabel = "korifi.cloudfoundry.org/updated_at"
)

// WebProcess is the type of the process that answers requests.
const WebProcess = "web"

// AppFinalizer keeps a CFApp until its Pods are gone.
const AppFinalizer = "korifi.cloudfoundry.org/cfApp"

// OrgFinalizer keeps a CFOrg until its namespace is gone.
const OrgFinalizer = "korifi.cloudfoundry.org/cfOrg"

// SpaceFinalizer keeps a CFSpace until its namespace is gone.
const SpaceFinalizer = "korifi.cloudfoundry.org/cfSpace"

// Conditions of a CFApp, a CFProcess and an LRP.
const (
	// ReadyCondition is True when the current revision runs as wanted, or a stopped app has no Pod left.
	ReadyCondition = "Ready"
	// DrainingCondition is True while Pods of a revision that has to go are left; the message counts them.
	DrainingCondition = "Draining"
)

// Reasons of Ready.
const (
	// RunningReason: as many instances of the current revision are ready as are wanted.
	RunningReason = "Running"
	// StoppedReason: the app is stopped and no Pod is left.
	StoppedReason = "Stopped"
	// StartingReason: instances of the current revision are not ready yet.
	StartingReason = "Starting"
	// BlockedReason: instances of the current revision can be neither made nor placed nor started; the message says why.
	BlockedReason = "Blocked"
	// StoppingReason: the app is stopped and Pods are left.
	StoppingReason = "Stopping"
	// WaitingForDrainReason: the current revision is held until the Pods of older ones are gone.
	WaitingForDrainReason = "WaitingForDrain"
	// DeployingReason: a deployment brings the current revision up beside older ones.
	DeployingReason = "Deploying"
	// DeploymentPausedReason: a canary runs beside the older revision and waits for somebody to continue.
	DeploymentPausedReason = "DeploymentPaused"
	// DropletMissingReason: the app has no droplet, or its build has not made one.
	DropletMissingReason = "DropletMissing"
	// RevisionUnreadableReason: the annotation with the app's revision is no number, or less than what was acted on.
	RevisionUnreadableReason = "RevisionUnreadable"
	// NewerRevisionReason: an LRP is newer than the app, which is taken for a stale view; nothing is done.
	NewerRevisionReason = "NewerRevision"
	// NameTakenReason: an object has the name that the current revision's LRP needs; it is waited for.
	NameTakenReason = "NameTaken"
	// DeletedReason: the process is being deleted.
	DeletedReason = "Deleted"
)

// Reasons of Draining.
const (
	// DrainingReason: Pods of a revision that has to go are left.
	DrainingReason = "Draining"
	// DrainTimeoutReason: such Pods are left after the drain timeout, and the current revision starts beside them.
	DrainTimeoutReason = "DrainTimeout"
	// DrainedReason: none is left.
	DrainedReason = "Drained"
)

// Conditions of a CFBuild, as upstream has them.
const (
	// StagingCondition is True while the droplet is being made.
	StagingCondition = "Staging"
	// SucceededCondition is True once the droplet is there, and False when there will be none.
	SucceededCondition = "Succeeded"
	// PinnedCondition is True if the droplet names its image by a digest, which the image's registry was asked for. A droplet that another
	// builder has made has none.
	PinnedCondition = "Pinned"
)

// Reasons of Pinned.
const (
	// ImagePinnedReason: the droplet is the image that its name led to when it was built, for ever.
	ImagePinnedReason = "ImagePinned"
	// RegistryNotAskedReason: the manager may not ask the registry.
	RegistryNotAskedReason = "RegistryNotAsked"
	// RegistryNotAllowedReason: the registry is, or refers to, a server that the manager may not reach.
	RegistryNotAllowedReason = "RegistryNotAllowed"
	// RegistrySilentReason: the registry did not answer in time, or cannot be reached.
	RegistrySilentReason = "RegistrySilent"
	// RegistryBusyReason: too many images are asked for at the same time.
	RegistryBusyReason = "RegistryBusy"
	// RegistryRefusedReason: the registry has refused to say.
	RegistryRefusedReason = "RegistryRefused"
	// ImageUnreadableReason: what the registry says is no image, or too large.
	ImageUnreadableReason = "ImageUnreadable"
	// PullSecretUnreadableReason: a Secret that the image is pulled with cannot be read.
	PullSecretUnreadableReason = "PullSecretUnreadable"
)

// Reasons of Staging and Succeeded, and of Ready of a CFPackage, a CFOrg and a CFSpace.
const (
	// SourceReadyReason: the package names the image that droplets are made from.
	SourceReadyReason = "SourceReady"
	// SourceMissingReason: the package names no image with its code.
	SourceMissingReason = "SourceMissing"
	// BuildFailedReason: whoever built the droplet says that it failed.
	BuildFailedReason = "BuildFailed"
	// ImageMissingReason: the registry says that there is no such image.
	ImageMissingReason = "ImageMissing"
	// StagedReason: the droplet is there.
	StagedReason = "Staged"
	// PackageMissingReason: there is no CFPackage to make the droplet from.
	PackageMissingReason = "PackageMissing"
	// BuiltByOthersReason: the package holds code, and somebody else has to fill in the droplet.
	BuiltByOthersReason = "BuiltByOthers"
	// NamespaceReadyReason: the namespace is there.
	NamespaceReadyReason = "NamespaceReady"
)

// Reasons of Ready of a CFRoute.
const (
	// AddressServedReason: the gateway has accepted the address.
	AddressServedReason = "AddressServed"
	// AddressReservedReason: the address is the space's, and no app answers there.
	AddressReservedReason = "AddressReserved"
	// AddressPublishedReason: the Ingress or the HTTPRoute is there; whether it is served is not known.
	AddressPublishedReason = "AddressPublished"
	// GatewayRefusedReason: the gateway has refused the address; the message is its own.
	GatewayRefusedReason = "GatewayRefused"
	// AddressTakenReason: an older CFRoute has the address, or one of another namespace the host.
	AddressTakenReason = "AddressTaken"
	// AddressInvalidReason: the host, the path or the protocol of the address cannot be served.
	AddressInvalidReason = "AddressInvalid"
	// DomainMissingReason: there is no such CFDomain, or an older one has its name.
	DomainMissingReason = "DomainMissing"
)
