// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// CFApp describes an app, which is started or stopped. Its namespace is the space of the app.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=cfapps,singular=cfapp,scope=Namespaced
// +kubebuilder:printcolumn:name="Display Name",type="string",JSONPath=".spec.displayName"
// +kubebuilder:printcolumn:name="State",type="string",JSONPath=".spec.desiredState"
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Revision",type="string",JSONPath=`.metadata.annotations.korifi\.cloudfoundry\.org/app-rev`
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.instances.ready"
// +kubebuilder:printcolumn:name="Desired",type="integer",JSONPath=".status.instances.desired"
// +kubebuilder:printcolumn:name="Draining",type="integer",JSONPath=".status.instances.draining"
// +kubebuilder:printcolumn:name="Restarted",type="date",JSONPath=".status.lastRestart.at"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Actual",type="string",JSONPath=".status.actualState",priority=1
// +kubebuilder:printcolumn:name="Cause",type="string",JSONPath=".status.lastRestart.cause",priority=1
// +kubebuilder:printcolumn:name="By",type="string",JSONPath=".status.lastRestart.by",priority=1
// +kubebuilder:printcolumn:name="Until",type="string",JSONPath=".status.stops[?(@.requested==true)].until",priority=1
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",priority=1
// +kubebuilder:validation:XValidation:rule=`size(self.metadata.name) <= 63`,messageExpression=`'metadata.name: expected at most 63 characters, because the name is a label value of other objects; found %d; choose a shorter one'.format([size(self.metadata.name)])`
type CFApp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CFAppSpec `json:"spec"`
	// +optional
	Status CFAppStatus `json:"status,omitempty"`
}

// CFAppList is a list of CFApps.
//
// +kubebuilder:object:root=true
type CFAppList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CFApp `json:"items"`
}

// AppState is STARTED or STOPPED.
//
// +kubebuilder:validation:Enum=STOPPED;STARTED
type AppState string

const (
	// StoppedState means that the app does not run.
	StoppedState AppState = "STOPPED"
	// StartedState means that the app runs.
	StartedState AppState = "STARTED"
)

// CFAppSpec is the desired state of an app.
type CFAppSpec struct {
	// DisplayName is the name of the app that users see. The CF API keeps it unique in its space.
	// +kubebuilder:validation:Pattern=`^[-\w]+$`
	// +kubebuilder:validation:MaxLength=250
	DisplayName string `json:"displayName"`
	// DesiredState is STARTED or STOPPED. A change from STARTED to STOPPED begins a new revision.
	DesiredState AppState `json:"desiredState"`
	// Lifecycle defines how droplets are built.
	Lifecycle Lifecycle `json:"lifecycle"`
	// EnvSecretName is the name of the Secret with the app's environment variables.
	// +optional
	EnvSecretName string `json:"envSecretName,omitempty"`
	// CurrentDropletRef references the CFBuild whose droplet the next start, restart or deployment uses. A change does
	// not affect running instances.
	// +optional
	CurrentDropletRef *Reference `json:"currentDropletRef,omitempty"`
	// Drain defines how an old revision is replaced after a stop or a restart. Torpor has added this field.
	// +optional
	// +kubebuilder:default={}
	Drain Drain `json:"drain,omitzero"`
}

// DrainPolicy defines whether two revisions may run at the same time after a stop or a restart.
//
// +kubebuilder:validation:Enum=Strict;Overlap
type DrainPolicy string

const (
	// DrainStrict means that the new revision starts after all Pods of the old revision are gone, or after the timeout.
	DrainStrict DrainPolicy = "Strict"
	// DrainOverlap means that the new revision starts while the old revision stops.
	DrainOverlap DrainPolicy = "Overlap"
)

// Drain defines how an old revision is replaced after a stop or a restart. The revisions of a deployment overlap; only
// its end waits for the old Pods.
type Drain struct {
	// Policy is Strict or Overlap.
	// +optional
	// +kubebuilder:default=Strict
	Policy DrainPolicy `json:"policy,omitempty"`
	// TimeoutSeconds limits how long the new revision waits for the Pods of the old revision. 0 means no limit.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// LifecycleType is buildpack or docker.
//
// +kubebuilder:validation:Enum=buildpack;docker
type LifecycleType string

const (
	// BuildpackLifecycle means that droplets are built from source code. Torpor builds no code; it runs images that an external builder has
	// built.
	BuildpackLifecycle LifecycleType = "buildpack"
	// DockerLifecycle means that droplets are container images.
	DockerLifecycle LifecycleType = "docker"
)

// Lifecycle defines how droplets are built.
type Lifecycle struct {
	// Type is buildpack or docker.
	Type LifecycleType `json:"type"`
	// Data configures buildpacks.
	// +optional
	Data LifecycleData `json:"data"`
}

// LifecycleData configures buildpacks.
type LifecycleData struct {
	// Buildpacks are the names of the buildpacks.
	// +optional
	// +listType=atomic
	Buildpacks []string `json:"buildpacks,omitempty"`
	// Stack is the name of the stack.
	// +optional
	Stack string `json:"stack"`
}

// Reference is a reference to an object in the same namespace.
type Reference struct {
	// Name is the name of the object.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// CFAppStatus is the observed state of an app. Korifi does not have the fields Instances, ObservedRevision,
// LastRestart, Restarts, Stops, ScheduledStops and Savings.
//
// +kubebuilder:validation:XValidation:fieldPath=`.observedRevision`,rule=`!has(oldSelf.observedRevision) || (has(self.observedRevision) && self.observedRevision >= oldSelf.observedRevision)`,messageExpression=`'expected at least %d, because revision numbers never decrease'.format([oldSelf.observedRevision])`
type CFAppStatus struct {
	// Conditions are the conditions of the app.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that the controller acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ObservedDesiredState is the desired state that the controller acted on last.
	// +optional
	ObservedDesiredState AppState `json:"observedDesiredState,omitempty"`
	// ActualState is STARTED while an instance is ready, or while the app is started with 0 instances. During a
	// deployment, this can be an instance of the revision that the deployment replaces.
	// +optional
	ActualState AppState `json:"actualState,omitempty"`
	// ObservedRevision is the highest revision that the controller has observed. Admission never assigns a lower one.
	// +optional
	ObservedRevision int64 `json:"observedRevision,omitempty"`
	// Instances counts the instances of all processes.
	// +optional
	Instances *InstanceCounts `json:"instances,omitempty"`
	// LastRestart is the newest entry of Restarts. It is unset while the app runs the revision with which it was
	// created.
	// +optional
	LastRestart *Restart `json:"lastRestart,omitempty"`
	// Restarts records how the last revisions of the app began, newest first.
	// +optional
	// +listType=map
	// +listMapKey=revision
	// +kubebuilder:validation:MaxItems=20
	Restarts []Restart `json:"restarts,omitempty"`
	// Stops are the last stops through spec.desiredState, newest first: requester, reason, end, and the user who
	// started the app again.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Stops []torporv1alpha1.StopRecord `json:"stops,omitempty"`
	// ScheduledStops holds one entry for each Slumber that has stopped the app. No instance runs while at least one of
	// these Slumbers stops the app, regardless of spec.desiredState.
	// +optional
	// +listType=map
	// +listMapKey=slumber
	// +kubebuilder:validation:MaxItems=20
	ScheduledStops []torporv1alpha1.ScheduledStop `json:"scheduledStops,omitempty"`
	// Savings holds the resources that the stops of the app have saved.
	// +optional
	Savings *torporv1alpha1.Savings `json:"savings,omitempty"`
	// VCAPServicesSecretName is a field of Korifi, which Torpor preserves and does not use.
	// +optional
	VCAPServicesSecretName string `json:"vcapServicesSecretName,omitempty"`
	// VCAPApplicationSecretName is a field of Korifi, which Torpor preserves and does not use.
	// +optional
	VCAPApplicationSecretName string `json:"vcapApplicationSecretName,omitempty"`
	// ServiceBindings is a field of Korifi, which Torpor preserves and does not use.
	// +optional
	// +listType=atomic
	ServiceBindings []ServiceBinding `json:"serviceBindings,omitempty"`
}

// InstanceCounts is the number of instances of an app, by state.
type InstanceCounts struct {
	// Desired is the number of instances that should run while the app is started.
	Desired int32 `json:"desired"`
	// Ready is the number of ready instances of the current revision.
	Ready int32 `json:"ready"`
	// Draining is the number of ending instances, of all revisions.
	Draining int32 `json:"draining"`
	// ReadyOlder is the number of ready instances of other revisions, which still serve while a deployment or its
	// cancellation replaces them.
	// +optional
	ReadyOlder int32 `json:"readyOlder,omitempty"`
}

// RestartCause is the cause of a revision.
//
// +kubebuilder:validation:Enum=Creation;Stop;Restart;Deployment;Repair
type RestartCause string

// These are the causes of a revision.
const (
	// CausedByCreation means that the revision began with the creation of the app.
	CausedByCreation RestartCause = "Creation"
	// CausedByStop means that the app was stopped. The next start of the app runs the revision.
	CausedByStop RestartCause = "Stop"
	// CausedByRestart means that a restart was requested.
	CausedByRestart RestartCause = "Restart"
	// CausedByDeployment means that a deployment was requested.
	CausedByDeployment RestartCause = "Deployment"
	// CausedByRepair means that the annotation with the app's revision was unreadable or below the observed revision,
	// and was replaced by a higher number.
	CausedByRepair RestartCause = "Repair"
)

// Restart records how a revision of an app began: the cause, the requester and the time. A restart is only one of the
// causes.
type Restart struct {
	// Revision is the number of the revision.
	Revision int64 `json:"revision"`
	// Cause is the cause of the revision.
	Cause RestartCause `json:"cause"`
	// By is the requester.
	// +optional
	By string `json:"by,omitempty"`
	// At is the time of the request.
	At metav1.Time `json:"at"`
	// Droplet is the name of the droplet that the revision runs.
	// +optional
	Droplet string `json:"droplet,omitempty"`
	// StartedBy is the user who started the stopped app in this revision. It is empty if the revision began while the
	// app was started.
	// +optional
	StartedBy string `json:"startedBy,omitempty"`
	// StartedAt is the time at which this user started the app.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// Settings maps a process type to the name of the Secret with its environment, command, ports and health check in
	// this revision.
	// +optional
	Settings map[string]string `json:"settings,omitempty"`
}

// ServiceBinding is a type of the API of Korifi.
type ServiceBinding struct {
	// GUID is the name of the CFServiceBinding.
	GUID string `json:"guid"`
	// Name is the name of the binding for the app. Null means that the binding has no name.
	// +optional
	// +nullable
	Name *string `json:"name,omitempty"`
	// Secret is the name of the Secret with the credentials of the binding.
	Secret string `json:"secret"`
}
