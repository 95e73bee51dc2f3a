// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CancelledByAnnotation is the user who cancelled a CFDeployment. Admission sets it and overwrites any other value.
const CancelledByAnnotation = "torpor.dev/cancelled-by"

// CFDeployment replaces the running revision of an app with a new revision, step by step, while the old revision still
// serves. Creating a CFDeployment requests the new revision. A CFDeployment is in the namespace of its app. The CFApp
// owns a CFDeployment that the CF API created.
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

// DeploymentStrategy defines how a deployment proceeds.
//
// +kubebuilder:validation:Enum=rolling;canary
type DeploymentStrategy string

const (
	// RollingDeployment replaces all instances without a pause.
	RollingDeployment DeploymentStrategy = "rolling"
	// CanaryDeployment pauses after each step until a user continues the deployment.
	CanaryDeployment DeploymentStrategy = "canary"
)

// CFDeploymentSpec is the desired state of a deployment.
//
// +kubebuilder:validation:XValidation:fieldPath=`.cancelled`,rule=`!has(oldSelf.cancelled) || !oldSelf.cancelled || has(self.cancelled) && self.cancelled`,message=`expected a cancelled deployment to stay cancelled; found the cancellation removed; create a new CFDeployment`
type CFDeploymentSpec struct {
	// AppRef references the CFApp.
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected no change, because a deployment belongs to one app; found one; create a new CFDeployment`
	AppRef AppReference `json:"appRef"`
	// Strategy is rolling or canary.
	// +optional
	// +kubebuilder:default=rolling
	Strategy DeploymentStrategy `json:"strategy,omitempty"`
	// MaxInFlight is the maximum number of new instances of a process that may be starting at the same time.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	MaxInFlight int32 `json:"maxInFlight,omitempty"`
	// Steps are the steps of a canary deployment. The default is one step, which pauses when one new instance runs.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Steps []CanaryStep `json:"steps,omitempty"`
	// ContinuedSteps is the number of steps after which a user has continued the deployment.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ContinuedSteps int32 `json:"continuedSteps,omitempty"`
	// DropletRef references the CFBuild whose droplet is deployed. It defaults to the app's current droplet.
	// +optional
	DropletRef *AppReference `json:"dropletRef,omitempty"`
	// Cancelled restores the earlier revision if the deployment has not completed.
	// +optional
	Cancelled bool `json:"cancelled,omitempty"`
}

// AppReference is a reference to an object in the same namespace.
type AppReference struct {
	// Name is the name of the object.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// CanaryStep is a step at which a canary deployment pauses.
type CanaryStep struct {
	// InstanceWeight is the percentage of instances that run the new revision.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	InstanceWeight int32 `json:"instanceWeight"`
}

// DeploymentValue is ACTIVE or FINALIZED.
//
// +kubebuilder:validation:Enum=ACTIVE;FINALIZED
type DeploymentValue string

const (
	// ActiveDeployment means that the deployment is in progress.
	ActiveDeployment DeploymentValue = "ACTIVE"
	// FinalizedDeployment means that the deployment has ended.
	FinalizedDeployment DeploymentValue = "FINALIZED"
)

// DeploymentState is the progress of a deployment, in Cloud Foundry's terms.
//
// +kubebuilder:validation:Enum=DEPLOYING;PAUSED;CANCELING;DEPLOYED;CANCELED;SUPERSEDED
type DeploymentState string

// These are the states of a deployment.
const (
	DeployingState  DeploymentState = "DEPLOYING"
	PausedState     DeploymentState = "PAUSED"
	CancelingState  DeploymentState = "CANCELING"
	DeployedState   DeploymentState = "DEPLOYED"
	CanceledState   DeploymentState = "CANCELED"
	SupersededState DeploymentState = "SUPERSEDED"
)

// CFDeploymentStatus is the observed state of a deployment.
type CFDeploymentStatus struct {
	// ObservedGeneration is the generation that the controller acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Value is ACTIVE while the deployment is in progress, and FINALIZED when it has ended.
	// +optional
	Value DeploymentValue `json:"value,omitempty"`
	// Reason is the progress of the deployment.
	// +optional
	Reason DeploymentState `json:"reason,omitempty"`
	// LastChange is the time at which Reason last changed.
	// +optional
	LastChange *metav1.Time `json:"lastChange,omitempty"`
	// Revision is the revision that the deployment has begun; unset until then.
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// Prepared is true once FormerDroplet is recorded. The new revision is requested only after that.
	// +optional
	Prepared bool `json:"prepared,omitempty"`
	// FormerDroplet is the droplet that the app ran before the deployment. A cancellation restores it if the app has
	// not recorded the droplet of the earlier revision.
	// +optional
	FormerDroplet string `json:"formerDroplet,omitempty"`
	// CurrentStep is the number of the current canary step, counted from 1.
	// +optional
	CurrentStep int32 `json:"currentStep,omitempty"`
	// TotalSteps is the number of canary steps.
	// +optional
	TotalSteps int32 `json:"totalSteps,omitempty"`
	// Message describes the progress to users in one sentence.
	// +optional
	Message string `json:"message,omitempty"`
}
