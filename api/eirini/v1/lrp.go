// SPDX-License-Identifier: Apache-2.0

package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LRPFinalizer delays the deletion of an LRP until its Pods are gone.
const LRPFinalizer = "eirini.cloudfoundry.org/lrp"

// ApplicationContainer is the name of the container that runs the app in the Pods of an LRP.
const ApplicationContainer = "application"

// LRP is a long-running process: one process of an app in one revision.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=lrps,singular=lrp,shortName=lrp,scope=Namespaced
// +kubebuilder:printcolumn:name="App",type="string",JSONPath=".spec.appName"
// +kubebuilder:printcolumn:name="Replicas",type="integer",JSONPath=".spec.instances"
// +kubebuilder:printcolumn:name="Ready",type="integer",JSONPath=".status.replicas"
// +kubebuilder:printcolumn:name="Draining",type="integer",JSONPath=".status.drainingReplicas"
// +kubebuilder:printcolumn:name="Revision",type="string",JSONPath=".spec.version"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Process",type="string",JSONPath=".spec.processType",priority=1
// +kubebuilder:printcolumn:name="App GUID",type="string",JSONPath=".spec.appGUID",priority=1
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",priority=1
type LRP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec LRPSpec `json:"spec"`
	// +optional
	Status LRPStatus `json:"status,omitempty"`
}

// LRPList is a list of LRPs.
//
// +kubebuilder:object:root=true
type LRPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LRP `json:"items"`
}

// LRPSpec is the desired state of an LRP. Only changes to Instances have an effect. Torpor preserves PrivateRegistry,
// Sidecars and VolumeMounts, and does not use them.
//
// +kubebuilder:validation:XValidation:fieldPath=`.image`,rule=`self.image == oldSelf.image`,message=`expected no change, because an LRP runs one revision of an app; found one; restart or deploy the app`
// +kubebuilder:validation:XValidation:fieldPath=`.GUID`,rule=`self.GUID == oldSelf.GUID`,message=`expected no change, because the StatefulSet selects Pods by the GUID; found one; create a new LRP`
// +kubebuilder:validation:XValidation:fieldPath=`.version`,rule=`has(self.version) == has(oldSelf.version) && (!has(self.version) || self.version == oldSelf.version)`,message=`expected no change, because an LRP runs one revision of an app; found one; create a new LRP`
type LRPSpec struct {
	// GUID is the GUID of the process.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
	GUID string `json:"GUID"`
	// Version is the revision of the app.
	// +optional
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`
	Version string `json:"version,omitempty"`
	// ProcessType is the type of the process, such as web.
	// +optional
	ProcessType string `json:"processType,omitempty"`
	// AppName is the name of the app that users see.
	// +optional
	AppName string `json:"appName,omitempty"`
	// AppGUID is the name of the CFApp.
	// +optional
	AppGUID string `json:"appGUID,omitempty"`
	// OrgName is the name of the org that users see. Empty means that it is unknown.
	// +optional
	OrgName string `json:"orgName,omitempty"`
	// OrgGUID is the name of the CFOrg. Empty means that it is unknown.
	// +optional
	OrgGUID string `json:"orgGUID,omitempty"`
	// SpaceName is the name of the space that users see.
	// +optional
	SpaceName string `json:"spaceName,omitempty"`
	// SpaceGUID is the name of the CFSpace.
	// +optional
	SpaceGUID string `json:"spaceGUID,omitempty"`
	// Image is the container image of the revision. It is immutable.
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`
	// ImagePullSecrets reference Secrets with credentials for the image's registry. Torpor has added this field.
	// +optional
	// +listType=atomic
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// Command replaces the command of the image. Empty means the image's own command.
	// +optional
	// +listType=atomic
	Command []string `json:"command,omitempty"`
	// Sidecars is a field of eirini-controller, which Torpor preserves and does not use.
	// +optional
	// +listType=atomic
	Sidecars []Sidecar `json:"sidecars,omitempty"`
	// PrivateRegistry is a field of eirini-controller. Torpor preserves it, and uses ImagePullSecrets instead.
	// +optional
	PrivateRegistry *PrivateRegistry `json:"privateRegistry,omitempty"`
	// Env is deprecated. Environment takes precedence.
	// +optional
	Env map[string]string `json:"env,omitempty"`
	// Environment holds the environment variables of the application container.
	// +optional
	// +listType=map
	// +listMapKey=name
	Environment []corev1.EnvVar `json:"environment,omitempty"`
	// Health defines how the health of an instance is checked.
	// +optional
	Health Healthcheck `json:"health,omitzero"`
	// Ports are the ports that an instance listens on. The environment variable PORT holds the first port.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	Ports []int32 `json:"ports,omitempty"`
	// Instances is the desired number of instances.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	Instances int32 `json:"instances"`
	// MemoryMB is the memory limit in MiB. 0 means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1048576
	MemoryMB int64 `json:"memoryMB,omitempty"`
	// DiskMB is the disk limit in MiB.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	DiskMB int64 `json:"diskMB"`
	// CPUWeight is the CPU request, in thousandths of a CPU. 0 means a request in proportion to MemoryMB.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	CPUWeight uint8 `json:"cpuWeight,omitempty"`
	// VolumeMounts is a field of eirini-controller, which Torpor preserves and does not use.
	// +optional
	// +listType=atomic
	VolumeMounts []VolumeMount `json:"volumeMounts,omitempty"`
	// UserDefinedAnnotations are annotations of the Pods.
	// +optional
	UserDefinedAnnotations map[string]string `json:"userDefinedAnnotations,omitempty"`
}

// Sidecar is a type of the API of eirini-controller.
type Sidecar struct {
	// Name is the name of the sidecar.
	Name string `json:"name"`
	// Command is the command of the sidecar.
	// +listType=atomic
	Command []string `json:"command"`
	// MemoryMB is the memory limit of the sidecar in MiB.
	// +optional
	MemoryMB int64 `json:"memoryMB,omitempty"`
	// Env holds the environment variables of the sidecar.
	// +optional
	Env map[string]string `json:"env,omitempty"`
}

// PrivateRegistry is a type of the API of eirini-controller. Torpor uses ImagePullSecrets instead.
type PrivateRegistry struct {
	// Username is the user of the registry.
	// +optional
	Username string `json:"username,omitempty"`
	// Password is the password of the user.
	// +optional
	Password string `json:"password,omitempty"`
}

// VolumeMount is a type of the API of eirini-controller.
type VolumeMount struct {
	// MountPath is the path in the container at which the volume is mounted.
	MountPath string `json:"mountPath"`
	// ClaimName is the name of a PersistentVolumeClaim.
	ClaimName string `json:"claimName"`
}

// Healthcheck defines how the health of an instance is checked.
type Healthcheck struct {
	// Type is http, port or process. Empty means process.
	// +optional
	// +kubebuilder:validation:Enum=http;port;process;""
	Type string `json:"type,omitempty"`
	// Port is the port for health checks of the types http and port. 0 disables these checks.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Endpoint is the path of HTTP health checks.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
	// TimeoutMs limits how long an instance may take to start, in milliseconds. 0 means one minute.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TimeoutMs int64 `json:"timeoutMs,omitempty"`
	// InvocationTimeoutMs limits how long one check may take, in milliseconds. 0 means one second. Torpor has added
	// this field.
	// +optional
	// +kubebuilder:validation:Minimum=0
	InvocationTimeoutMs int64 `json:"invocationTimeoutMs,omitempty"`
}

// LRPStatus is the observed state of an LRP. The LRPStatus of eirini-controller has only the field Replicas.
type LRPStatus struct {
	// Replicas is the number of ready instances.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// DrainingReplicas is the number of ending instances.
	// +optional
	DrainingReplicas int32 `json:"drainingReplicas,omitempty"`
	// ObservedGeneration is the generation that the controller acted on last.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are the conditions of the LRP.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Instances holds the instances by index. Ending Pods are not included.
	// +optional
	Instances map[string]InstanceStatus `json:"instances,omitempty"`
}

// InstanceStatus is the observed state of an instance.
type InstanceStatus struct {
	// State is the state of the instance, in Cloud Foundry's terms.
	// +kubebuilder:validation:Enum=DOWN;CRASHED;STARTING;RUNNING
	State string `json:"state"`
	// Since is the time since which the Pod has been ready, not ready or not scheduled.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Details explains why the instance does not run.
	// +optional
	Details string `json:"details,omitempty"`
}
