// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CFProcess is one of the things that an app runs, such as web or worker.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=cfprocesses,singular=cfprocess,scope=Namespaced
// +kubebuilder:printcolumn:name="Type",type="string",JSONPath=".spec.processType"
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].reason"
// +kubebuilder:printcolumn:name="Revision",type="integer",JSONPath=".status.observedRevision"
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.actualInstances"
// +kubebuilder:printcolumn:name="Desired",type="integer",JSONPath=".spec.desiredInstances"
// +kubebuilder:printcolumn:name="Draining",type="integer",JSONPath=".status.drainingInstances"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="App",type="string",JSONPath=".spec.appRef.name",priority=1
// +kubebuilder:printcolumn:name="Since",type="date",JSONPath=".status.conditions[?(@.type=='Ready')].lastTransitionTime",priority=1
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",priority=1
// +kubebuilder:validation:XValidation:rule=`size(self.metadata.name) <= 63`,messageExpression=`'metadata.name: expected at most 63 characters, because it is a label of other objects; found %d; choose a shorter one'.format([size(self.metadata.name)])`
type CFProcess struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec CFProcessSpec `json:"spec"`
	// +optional
	Status CFProcessStatus `json:"status,omitempty"`
}

// CFProcessList is a list of CFProcesses.
//
// +kubebuilder:object:root=true
type CFProcessList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CFProcess `json:"items"`
}

// What a process may ask for. The schema refuses more; where upstream's is served instead, Torpor runs no more than this:
// Kubernetes' controller of StatefulSets holds every missing Pod in memory at once, and a quantity that overflows is no limit.
const (
	MaxInstances = 10_000
	MaxMegabytes = 1 << 20
)

// CFProcessSpec is what somebody wants of a process. What is changed reaches the next revision, but instances at once.
type CFProcessSpec struct {
	// AppRef names the CFApp.
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected it to stay, because a process belongs to one app; found it changed; make a new CFProcess`
	AppRef Reference `json:"appRef"`
	// ProcessType is web, worker or the like.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')`,message=`expected letters, digits, '-', '_' and '.' with a letter or digit at both ends, because it is a label of Pods; choose a name such as worker`
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected it to stay, because a process has one type; found it changed; make a new CFProcess`
	ProcessType string `json:"processType"`
	// Command replaces what the image runs; empty keeps that.
	// +optional
	Command string `json:"command,omitempty"`
	// DetectedCommand is what the droplet says it runs.
	// +optional
	DetectedCommand string `json:"detectedCommand,omitempty"`
	// HealthCheck tells whether an instance is well.
	HealthCheck HealthCheck `json:"healthCheck"`
	// DesiredInstances is how many run while the app is started, at most 10000; unset means 1 for web and 0 for others.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	DesiredInstances *int32 `json:"desiredInstances,omitempty"`
	// MemoryMB is the memory of an instance in MiB, at most 1 TiB.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	MemoryMB int64 `json:"memoryMB"`
	// DiskQuotaMB is the disk of an instance in MiB, at most 1 TiB.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	DiskQuotaMB int64 `json:"diskQuotaMB"`
	// Ports the process listens on; deprecated upstream.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	Ports []int32 `json:"ports,omitempty"`
}

// HealthCheckType is how it is found out whether an instance is well; empty means port for web and process for others.
//
// +kubebuilder:validation:Enum=http;port;process;""
type HealthCheckType string

// The types.
const (
	HTTPHealthCheck    HealthCheckType = "http"
	PortHealthCheck    HealthCheckType = "port"
	ProcessHealthCheck HealthCheckType = "process"
)

// HealthCheck tells whether an instance is well.
type HealthCheck struct {
	Type HealthCheckType `json:"type"`
	// +optional
	Data HealthCheckData `json:"data"`
}

// HealthCheckData are the figures of a health check.
type HealthCheckData struct {
	// HTTPEndpoint is the path that http asks for.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`size(self) == 0 || self.startsWith('/')`,message=`expected a path such as /healthz; put a slash first`
	HTTPEndpoint string `json:"httpEndpoint,omitempty"`
	// InvocationTimeoutSeconds is how long one check may take; 0 means 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	InvocationTimeoutSeconds int32 `json:"invocationTimeoutSeconds"`
	// TimeoutSeconds is how long an instance may take to start; 0 means 60.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TimeoutSeconds int32 `json:"timeoutSeconds"`
}

// CFProcessStatus is what is known of a process. The API server adds zeros where columns show numbers: a controller that wrote them could
// not tell what another schema drops. What upstream has not is ObservedRevision, DrainingInstances and Revisions.
type CFProcessStatus struct {
	// Conditions of the process.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that was acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ObservedRevision is the app's revision that was acted on last.
	// +optional
	// +kubebuilder:default=0
	ObservedRevision int64 `json:"observedRevision,omitempty"`
	// ActualInstances is how many of the current revision are ready.
	// +optional
	// +kubebuilder:default=0
	ActualInstances int32 `json:"actualInstances,omitempty"`
	// DrainingInstances is how many of any revision are on their way out.
	// +optional
	// +kubebuilder:default=0
	DrainingInstances int32 `json:"drainingInstances,omitempty"`
	// Revisions are those that have Pods or an LRP, the oldest first.
	// +optional
	// +listType=map
	// +listMapKey=revision
	Revisions []RevisionStatus `json:"revisions,omitempty"`
	// InstancesStatus are the instances of the current revision by index; a Pod that is terminating is none.
	// +optional
	InstancesStatus map[string]InstanceStatus `json:"instancesStatus,omitempty"`
}

// RevisionStatus counts the instances of one revision.
type RevisionStatus struct {
	Revision int64 `json:"revision"`
	// Desired is what its LRP asks for.
	Desired int32 `json:"desired"`
	// Ready is how many are ready.
	Ready int32 `json:"ready"`
	// Draining is how many are on their way out.
	Draining int32 `json:"draining"`
	// FirstReadyAt is when its first instance was seen to be ready; it stays while the revision has Pods or an LRP.
	// +optional
	FirstReadyAt *metav1.Time `json:"firstReadyAt,omitempty"`
}

// InstanceState is what an instance does.
//
// +kubebuilder:validation:Enum=DOWN;CRASHED;STARTING;RUNNING
type InstanceState string

// The states.
const (
	// DownInstance: nothing runs.
	DownInstance InstanceState = "DOWN"
	// CrashedInstance: it ended and is not started again soon.
	CrashedInstance InstanceState = "CRASHED"
	// StartingInstance: it runs and is not ready.
	StartingInstance InstanceState = "STARTING"
	// RunningInstance: it is ready.
	RunningInstance InstanceState = "RUNNING"
)

// InstanceStatus is what an instance does.
type InstanceStatus struct {
	State InstanceState `json:"state"`
	// Timestamp is since when.
	// +optional
	Timestamp *metav1.Time `json:"timestamp,omitempty"`
	// Details say why it does not run; Torpor's own.
	// +optional
	Details string `json:"details,omitempty"`
}
