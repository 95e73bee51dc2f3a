// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CFProcess is a process of an app, such as web or worker.
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
// +kubebuilder:validation:XValidation:rule=`size(self.metadata.name) <= 63`,messageExpression=`'metadata.name: expected at most 63 characters, because the name is a label value of other objects; found %d; choose a shorter one'.format([size(self.metadata.name)])`
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

// These are the maximum values of a process. Torpor's schema rejects larger values. If Korifi's schema is served,
// Torpor reduces larger values to these: the StatefulSet controller of Kubernetes holds all missing Pods in memory, and
// a quantity that overflows limits nothing.
const (
	MaxInstances = 10_000
	MaxMegabytes = 1 << 20
)

// CFProcessSpec is the desired state of a process. A change to desiredInstances takes effect immediately, and other
// changes take effect with the next start, restart or deployment.
type CFProcessSpec struct {
	// AppRef references the CFApp.
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected no change, because a process belongs to one app; found one; create a new CFProcess`
	AppRef Reference `json:"appRef"`
	// ProcessType is the type of the process, such as web or worker.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')`,message=`expected letters, digits, '-', '_' and '.' with a letter or digit at both ends, because the type is a label value of Pods; choose a type such as worker`
	// +kubebuilder:validation:XValidation:rule=`self == oldSelf`,message=`expected no change, because a process has one type; found one; create a new CFProcess`
	ProcessType string `json:"processType"`
	// Command is the command of the instances. Empty means the command of the droplet or the image.
	// +optional
	Command string `json:"command,omitempty"`
	// DetectedCommand is the command if neither Command nor the droplet has one. Torpor does not set it.
	// +optional
	DetectedCommand string `json:"detectedCommand,omitempty"`
	// HealthCheck defines how the health of an instance is checked.
	HealthCheck HealthCheck `json:"healthCheck"`
	// DesiredInstances is the number of instances while the app is started, at most 10000. It defaults to 1 for web, and to 0 for other
	// types.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	DesiredInstances *int32 `json:"desiredInstances,omitempty"`
	// MemoryMB is the memory limit of an instance in MiB, at most 1 TiB.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	MemoryMB int64 `json:"memoryMB"`
	// DiskQuotaMB is the disk limit of an instance in MiB, at most 1 TiB.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	DiskQuotaMB int64 `json:"diskQuotaMB"`
	// Ports are the ports that the process listens on. Korifi has deprecated this field.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	Ports []int32 `json:"ports,omitempty"`
}

// HealthCheckType is http, port or process. Empty means port for web, and process for other types. Without ports,
// process is used.
//
// +kubebuilder:validation:Enum=http;port;process;""
type HealthCheckType string

// These are the types of health checks.
const (
	HTTPHealthCheck    HealthCheckType = "http"
	PortHealthCheck    HealthCheckType = "port"
	ProcessHealthCheck HealthCheckType = "process"
)

// HealthCheck defines how the health of an instance is checked.
type HealthCheck struct {
	// Type is http, port or process.
	Type HealthCheckType `json:"type"`
	// Data holds the parameters of the check.
	// +optional
	Data HealthCheckData `json:"data"`
}

// HealthCheckData holds the parameters of a health check.
type HealthCheckData struct {
	// HTTPEndpoint is the path of HTTP health checks.
	// +optional
	// +kubebuilder:validation:XValidation:rule=`size(self) == 0 || self.startsWith('/')`,message=`expected a path such as /healthz; put a slash first`
	HTTPEndpoint string `json:"httpEndpoint,omitempty"`
	// InvocationTimeoutSeconds limits how long one check may take. 0 means 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	InvocationTimeoutSeconds int32 `json:"invocationTimeoutSeconds"`
	// TimeoutSeconds limits how long an instance may take to start. 0 means 60.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TimeoutSeconds int32 `json:"timeoutSeconds"`
}

// CFProcessStatus is the observed state of a process. The schema defaults the numbers in columns to 0: if the
// controller wrote zeros, it could not detect which fields the schema of Korifi drops. Korifi does not have the fields
// ObservedRevision, DrainingInstances and Revisions.
type CFProcessStatus struct {
	// Conditions are the conditions of the process.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that the controller acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ObservedRevision is the revision of the app that the controller acted on last.
	// +optional
	// +kubebuilder:default=0
	ObservedRevision int64 `json:"observedRevision,omitempty"`
	// ActualInstances is the number of ready instances of the current revision.
	// +optional
	// +kubebuilder:default=0
	ActualInstances int32 `json:"actualInstances,omitempty"`
	// DrainingInstances is the number of ending instances, of all revisions.
	// +optional
	// +kubebuilder:default=0
	DrainingInstances int32 `json:"drainingInstances,omitempty"`
	// Revisions are the revisions that have Pods or an LRP, oldest first.
	// +optional
	// +listType=map
	// +listMapKey=revision
	Revisions []RevisionStatus `json:"revisions,omitempty"`
	// InstancesStatus holds the instances of the current revision by index. Ending Pods are not included.
	// +optional
	InstancesStatus map[string]InstanceStatus `json:"instancesStatus,omitempty"`
}

// RevisionStatus counts the instances of one revision.
type RevisionStatus struct {
	// Revision is the number of the revision.
	Revision int64 `json:"revision"`
	// Desired is the number of instances that the revision's LRP requests.
	Desired int32 `json:"desired"`
	// Ready is the number of ready instances.
	Ready int32 `json:"ready"`
	// Draining is the number of ending instances.
	Draining int32 `json:"draining"`
	// Restorable is true if a cancelled deployment can restore the revision: its LRP exists and is not being deleted.
	// +optional
	Restorable bool `json:"restorable,omitempty"`
	// FirstReadyAt is the time at which Torpor first observed a ready instance of the revision.
	// +optional
	FirstReadyAt *metav1.Time `json:"firstReadyAt,omitempty"`
}

// InstanceState is the state of an instance.
//
// +kubebuilder:validation:Enum=DOWN;CRASHED;STARTING;RUNNING
type InstanceState string

// These are the states of an instance.
const (
	// DownInstance means that the instance has no scheduled Pod.
	DownInstance InstanceState = "DOWN"
	// CrashedInstance means that the instance has ended or cannot start, and is being retried.
	CrashedInstance InstanceState = "CRASHED"
	// StartingInstance means that the Pod is scheduled and not ready.
	StartingInstance InstanceState = "STARTING"
	// RunningInstance means that the instance is ready.
	RunningInstance InstanceState = "RUNNING"
)

// InstanceStatus is the observed state of an instance.
type InstanceStatus struct {
	// State is DOWN, CRASHED, STARTING or RUNNING.
	State InstanceState `json:"state"`
	// Timestamp is the time since which the Pod has been ready, not ready or not scheduled.
	// +optional
	Timestamp *metav1.Time `json:"timestamp,omitempty"`
	// Details explains why the instance does not run. Torpor has added this field.
	// +optional
	Details string `json:"details,omitempty"`
}
