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
