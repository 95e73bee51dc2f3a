// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CancelledByAnnotation is who cancelled a CFDeployment, written by Torpor's admission, whatever it is said to be.
const CancelledByAnnotation = "torpor.dev/cancelled-by"

// CFDeployment replaces the running revision of an app by a new one beside it, little by little. Creating it is what asks
// for the new revision. It belongs to its app and lives in the app's namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=cfdeployments,singular=cfdeployment,scope=Namespaced
// +kubebuilder:printcolumn:name="App",type="string",JSONPath=".spec.appRef.name"
// +kubebuilder:printcolumn:name="Strategy",type="string",JSONPath=".spec.strategy"
// +kubebuilder:printcolumn:name="Revision",type="integer",JSONPath=".status.revision"
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=".status.reason"
// +kubebuilder:printcolumn:name="Since",type="date",JSONPath=".status.lastChange"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Step",type="integer",JSONPath=".status.currentStep",priority=1
// +kubebuilder:printcolumn:name="Steps",type="integer",JSONPath=".status.totalSteps",priority=1
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=".status.message",priority=1
type CFDeployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CFDeploymentSpec `json:"spec"`
	// +optional
	Status CFDeploymentStatus `json:"status,omitempty"`
}

// CFDeploymentList is a list of CFDeployments.
//
// +kubebuilder:object:root=true
type CFDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CFDeployment `json:"items"`
}

// DeploymentStrategy is how a deployment goes on.
//
// +kubebuilder:validation:Enum=rolling;canary
type DeploymentStrategy string

const (
	// RollingDeployment replaces all instances.
	RollingDeployment DeploymentStrategy = "rolling"
	// CanaryDeployment stops at each of its steps until it is continued.
	CanaryDeployment DeploymentStrategy = "canary"
)

// CFDeploymentSpec is what somebody wants of a deployment.
//
// +kubebuilder:validation:XValidation:fieldPath=`.cancelled`,rule=`!has(oldSelf.cancelled) || !oldSelf.cancelled || has(self.cancelled) && self.cancelled`,message=`expected a cancelled deployment to stay cancelled; found it changed; make a new CFDeployment`
type CFDeploymentSpec struct {
	// AppRef names the CFApp.
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected it to stay, because a deployment belongs to one app; found it changed; make a new CFDeployment`
	AppRef AppReference `json:"appRef"`
	// Strategy is how it goes on.
	// +optional
	// +kubebuilder:default=rolling
	Strategy DeploymentStrategy `json:"strategy,omitempty"`
	// MaxInFlight is how many instances may be started before others are stopped.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	MaxInFlight int32 `json:"maxInFlight,omitempty"`
	// Steps of a canary; none means one step of one instance.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Steps []CanaryStep `json:"steps,omitempty"`
	// ContinuedSteps is how many steps somebody has let pass.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ContinuedSteps int32 `json:"continuedSteps,omitempty"`
	// DropletRef names the CFBuild whose droplet is deployed; unset means the app's current one.
	// +optional
	DropletRef *AppReference `json:"dropletRef,omitempty"`
	// Cancelled takes the deployment back, if it is not through.
	// +optional
	Cancelled bool `json:"cancelled,omitempty"`
}

// AppReference names an object in the same namespace.
type AppReference struct {
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// CanaryStep is where a canary waits.
type CanaryStep struct {
	// InstanceWeight is how much of the instances run the new revision, in percent.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	InstanceWeight int32 `json:"instanceWeight"`
}

// DeploymentValue is whether a deployment goes on.
//
// +kubebuilder:validation:Enum=ACTIVE;FINALIZED
type DeploymentValue string

const (
	// ActiveDeployment goes on.
	ActiveDeployment DeploymentValue = "ACTIVE"
	// FinalizedDeployment is over.
	FinalizedDeployment DeploymentValue = "FINALIZED"
)

// DeploymentState is how far a deployment is, in the words of Cloud Foundry.
//
// +kubebuilder:validation:Enum=DEPLOYING;PAUSED;CANCELING;DEPLOYED;CANCELED;SUPERSEDED
type DeploymentState string

// The states.
const (
	DeployingState  DeploymentState = "DEPLOYING"
	PausedState     DeploymentState = "PAUSED"
	CancelingState  DeploymentState = "CANCELING"
	DeployedState   DeploymentState = "DEPLOYED"
	CanceledState   DeploymentState = "CANCELED"
	SupersededState DeploymentState = "SUPERSEDED"
)

// CFDeploymentStatus is what is known of a deployment.
type CFDeploymentStatus struct {
	// ObservedGeneration is the generation that was acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Value is whether it goes on; Reason how far it is; LastChange since when.
	// +optional
	Value DeploymentValue `json:"value,omitempty"`
	// +optional
	Reason DeploymentState `json:"reason,omitempty"`
	// +optional
	LastChange *metav1.Time `json:"lastChange,omitempty"`
	// Revision is the one that it began; unset before.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// Prepared is noted before the revision is asked for, with what ran then: to cancel is to run that again.
	// +optional
	Prepared bool `json:"prepared,omitempty"`
	// +optional
	FormerDroplet string `json:"formerDroplet,omitempty"`
	// CurrentStep of TotalSteps is where a canary is, from 1.
	// +optional
	CurrentStep int32 `json:"currentStep,omitempty"`
	// +optional
	TotalSteps int32 `json:"totalSteps,omitempty"`
	// Message is for people.
	// +optional
	Message string `json:"message,omitempty"`
}
