// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// CFApp is an app that somebody wants started or stopped. Its namespace is its space.
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
// +kubebuilder:printcolumn:name="Until",type="date",JSONPath=".status.stops[?(@.requested==true)].until",priority=1
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",priority=1
// +kubebuilder:validation:XValidation:rule=`size(self.metadata.name) <= 63`,messageExpression=`'metadata.name: expected at most 63 characters, because it is a label of other objects; found %d; choose a shorter one'.format([size(self.metadata.name)])`
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

// AppState is whether an app runs.
//
// +kubebuilder:validation:Enum=STOPPED;STARTED
type AppState string

const (
	// StoppedState: the app does not run.
	StoppedState AppState = "STOPPED"
	// StartedState: the app runs.
	StartedState AppState = "STARTED"
)

// CFAppSpec is what somebody wants of an app.
type CFAppSpec struct {
	// DisplayName is the name that people see, unique in its space.
	// +kubebuilder:validation:Pattern=`^[-\w]+$`
	// +kubebuilder:validation:MaxLength=250
	DisplayName string `json:"displayName"`
	// DesiredState is whether the app runs. A change from STARTED to STOPPED begins a new revision.
	DesiredState AppState `json:"desiredState"`
	// Lifecycle is how droplets are made.
	Lifecycle Lifecycle `json:"lifecycle"`
	// EnvSecretName names the Secret with the app's environment.
	// +optional
	EnvSecretName string `json:"envSecretName,omitempty"`
	// CurrentDropletRef names the CFBuild whose droplet the next revision runs; a running revision keeps its own.
	// +optional
	CurrentDropletRef *Reference `json:"currentDropletRef,omitempty"`
	// Drain says how an old revision makes room for a new one; Torpor's own.
	// +optional
	// +kubebuilder:default={}
	Drain Drain `json:"drain,omitzero"`
}

// DrainPolicy is whether two revisions may run at once around a stop or a restart.
//
// +kubebuilder:validation:Enum=Strict;Overlap
type DrainPolicy string

const (
	// DrainStrict: the new revision waits until the old one's Pods are gone.
	DrainStrict DrainPolicy = "Strict"
	// DrainOverlap: the new revision starts while the old one stops.
	DrainOverlap DrainPolicy = "Overlap"
)

// Drain says how an old revision makes room for a new one after a stop or a restart. Deployments overlap by nature.
type Drain struct {
	// Policy is whether the new revision waits.
	// +optional
	// +kubebuilder:default=Strict
	Policy DrainPolicy `json:"policy,omitempty"`
	// TimeoutSeconds is after how long the new revision starts although Pods of the old one are left; 0 means never.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// LifecycleType is how droplets are made.
//
// +kubebuilder:validation:Enum=buildpack;docker
type LifecycleType string

const (
	// BuildpackLifecycle: droplets are made from code; Torpor keeps such apps, and runs images that others have built.
	BuildpackLifecycle LifecycleType = "buildpack"
	// DockerLifecycle: droplets are images.
	DockerLifecycle LifecycleType = "docker"
)

// Lifecycle is how droplets are made.
type Lifecycle struct {
	Type LifecycleType `json:"type"`
	// +optional
	Data LifecycleData `json:"data"`
}

// LifecycleData is for buildpacks.
type LifecycleData struct {
	// +optional
	// +listType=atomic
	Buildpacks []string `json:"buildpacks,omitempty"`
	// +optional
	Stack string `json:"stack"`
}

// Reference names an object in the same namespace.
type Reference struct {
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// CFAppStatus is what is known of an app. Instances, ObservedRevision, Restarts and Stops are Torpor's own, the rest is upstream's.
//
// +kubebuilder:validation:XValidation:fieldPath=`.observedRevision`,rule=`!has(oldSelf.observedRevision) || (has(self.observedRevision) && self.observedRevision >= oldSelf.observedRevision)`,messageExpression=`'expected at least %d, because revisions never fall'.format([oldSelf.observedRevision])`
type CFAppStatus struct {
	// Conditions of the app.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that was acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ObservedDesiredState is the desired state that was acted on last.
	// +optional
	ObservedDesiredState AppState `json:"observedDesiredState,omitempty"`
	// ActualState is STARTED while an instance is ready, or none is wanted of a started app.
	// +optional
	ActualState AppState `json:"actualState,omitempty"`
	// ObservedRevision is the highest revision that was acted on; admission never counts below it.
	// +optional
	ObservedRevision int64 `json:"observedRevision,omitempty"`
	// Instances are counted over all processes.
	// +optional
	Instances *InstanceCounts `json:"instances,omitempty"`
	// LastRestart is the newest of Restarts; nil until there was one after the creation.
	// +optional
	LastRestart *Restart `json:"lastRestart,omitempty"`
	// Restarts are the last revisions, the newest first.
	// +optional
	// +listType=map
	// +listMapKey=revision
	// +kubebuilder:validation:MaxItems=20
	Restarts []Restart `json:"restarts,omitempty"`
	// Stops are the last times that the app was stopped, the newest first: who asked, why, until when, and who started it again.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Stops []torporv1alpha1.StopRecord `json:"stops,omitempty"`
	// ScheduledStops are those of Slumbers, one entry each. Nothing of the app runs while one of them stops it, whatever spec.desiredState says.
	// +optional
	// +listType=map
	// +listMapKey=slumber
	// +kubebuilder:validation:MaxItems=20
	ScheduledStops []torporv1alpha1.ScheduledStop `json:"scheduledStops,omitempty"`
	// VCAPServicesSecretName names the Secret with VCAP_SERVICES.
	// +optional
	VCAPServicesSecretName string `json:"vcapServicesSecretName,omitempty"`
	// VCAPApplicationSecretName names the Secret with VCAP_APPLICATION.
	// +optional
	VCAPApplicationSecretName string `json:"vcapApplicationSecretName,omitempty"`
	// ServiceBindings are upstream's.
	// +optional
	// +listType=atomic
	ServiceBindings []ServiceBinding `json:"serviceBindings,omitempty"`
}

// InstanceCounts counts instances.
type InstanceCounts struct {
	// Desired is how many are wanted while the app is started.
	Desired int32 `json:"desired"`
	// Ready is how many of the current revision are ready.
	Ready int32 `json:"ready"`
	// Draining is how many of any revision are on their way out.
	Draining int32 `json:"draining"`
	// ReadyOlder is how many of older revisions are ready that a deployment lets serve.
	// +optional
	ReadyOlder int32 `json:"readyOlder,omitempty"`
}

// RestartCause is why a revision began.
//
// +kubebuilder:validation:Enum=Creation;Stop;Restart;Deployment;Repair
type RestartCause string

// The causes.
const (
	// CausedByCreation: the app was made, and nothing has restarted it since.
	CausedByCreation RestartCause = "Creation"
	// CausedByStop: the app was stopped, and its next start runs the revision.
	CausedByStop RestartCause = "Stop"
	// CausedByRestart: a restart was asked for.
	CausedByRestart RestartCause = "Restart"
	// CausedByDeployment: a deployment was asked for.
	CausedByDeployment RestartCause = "Deployment"
	// CausedByRepair: the revision could not be read, and was counted on.
	CausedByRepair RestartCause = "Repair"
)

// Restart is how a revision began.
type Restart struct {
	// Revision is the one that began.
	Revision int64 `json:"revision"`
	// Cause is what began it.
	Cause RestartCause `json:"cause"`
	// By is who asked for it.
	// +optional
	By string `json:"by,omitempty"`
	// At is when.
	At metav1.Time `json:"at"`
	// Droplet is what it runs.
	// +optional
	Droplet string `json:"droplet,omitempty"`
	// StartedBy is who started the app in this revision; empty if it began while the app ran.
	// +optional
	StartedBy string `json:"startedBy,omitempty"`
	// StartedAt is when.
	// +optional
	StartedAt *metav1.Time `json:"startedAt,omitempty"`
	// Settings are the Secrets with the environment, the command and the health check of each process, by its type.
	// +optional
	Settings map[string]string `json:"settings,omitempty"`
}

// ServiceBinding is upstream's.
type ServiceBinding struct {
	GUID string `json:"guid"`
	// +optional
	// +nullable
	Name   *string `json:"name,omitempty"`
	Secret string  `json:"secret"`
}
