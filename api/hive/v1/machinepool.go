// SPDX-License-Identifier: Apache-2.0

package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MachinePool defines the number of machines in the MachineSets of an OpenShift cluster, and the labels and taints of
// their new nodes.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=machinepools,scope=Namespaced
// +kubebuilder:printcolumn:name="PoolName",type="string",JSONPath=".spec.name"
// +kubebuilder:printcolumn:name="ClusterDeployment",type="string",JSONPath=".spec.clusterDeploymentRef.name"
// +kubebuilder:printcolumn:name="Replicas",type="integer",JSONPath=".spec.replicas"
// +kubebuilder:printcolumn:name="Found",type="integer",JSONPath=".status.replicas"
// +kubebuilder:printcolumn:name="Synced",type="string",JSONPath=".status.conditions[?(@.type=='Synced')].status"
// +kubebuilder:printcolumn:name="Why",type="string",priority=1,JSONPath=".status.conditions[?(@.type=='Synced')].message"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type MachinePool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec MachinePoolSpec `json:"spec"`
	// +optional
	Status MachinePoolStatus `json:"status,omitempty"`
}

// MachinePoolList is a list of MachinePools.
//
// +kubebuilder:object:root=true
type MachinePoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachinePool `json:"items"`
}

// MachinePoolSpec is the desired state of a MachinePool. Fields of Hive's schema that Torpor does not use are
// preserved.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="!(has(self.replicas) && has(self.autoscaling))",message="expected spec.replicas or spec.autoscaling, found both"
type MachinePoolSpec struct {
	// ClusterDeploymentRef references the ClusterDeployment, in the namespace of the MachinePool.
	ClusterDeploymentRef LocalObjectReference `json:"clusterDeploymentRef"`
	// Name is the name of the pool in the cluster, such as worker. The MachineSets of the pool have the label
	// hive.openshift.io/machine-pool with this value. MachineSets without this label belong to the pool if they are named
	// INFRAID-NAME or INFRAID-NAME-ZONE.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Replicas is the number of machines, which Torpor distributes among the MachineSets of the pool. It defaults to 1
	// without autoscaling.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5000
	Replicas *int64 `json:"replicas,omitempty"`
	// Autoscaling lets the autoscaler of the cluster choose the number of machines.
	// +optional
	Autoscaling *MachinePoolAutoscaling `json:"autoscaling,omitempty"`
	// Platform is preserved. Torpor does not create MachineSets, and uses only the platform's name, to check
	// minReplicas.
	// +kubebuilder:pruning:PreserveUnknownFields
	Platform runtime.RawExtension `json:"platform"`
	// Labels are added to new nodes. Other labels in the MachineSets are preserved.
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	Labels map[string]string `json:"labels,omitempty"`
	// Taints are the taints of new nodes. A list that is not empty replaces all taints of the MachineSets.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	Taints []corev1.Taint `json:"taints,omitempty"`
}

// MachinePoolAutoscaling limits the number of machines that the autoscaler of a cluster chooses.
//
// +kubebuilder:validation:XValidation:rule="self.minReplicas <= self.maxReplicas",message="expected minReplicas to be at most maxReplicas"
type MachinePoolAutoscaling struct {
	// MinReplicas is the minimum number of machines.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5000
	MinReplicas int32 `json:"minReplicas"`
	// MaxReplicas is the maximum number of machines.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	MaxReplicas int32 `json:"maxReplicas"`
}

// MachinePoolStatus is the state of the pool when Torpor last read the cluster.
//
// +kubebuilder:pruning:PreserveUnknownFields
type MachinePoolStatus struct {
	// Replicas is the number of machines that the MachineSets of the pool request.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// MachineSets are the MachineSets of the pool.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	MachineSets []MachineSetStatus `json:"machineSets,omitempty"`
	// Conditions hold Torpor's NotEnoughReplicas, Synced and UnsupportedConfiguration, and conditions of other controllers.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation of the pool that was last applied to the cluster.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// LastSyncTime is the time at which the cluster last matched the pool.
	// +optional
	LastSyncTime *metav1.Time `json:"lastSyncTime,omitempty"`
	// SyncedResume is the start time of the last resume after which the pool was applied. Torpor applies the pool again
	// after each resume.
	// +optional
	SyncedResume *metav1.Time `json:"syncedResume,omitempty"`
}

// MachineSetStatus is the observed state of a MachineSet of the cluster.
type MachineSetStatus struct {
	// Name is the name of the MachineSet.
	Name string `json:"name"`
	// Replicas is the number of machines that the MachineSet requests.
	Replicas int32 `json:"replicas"`
	// ReadyReplicas is the number of machines with a ready node, as the MachineSet reports it.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// MinReplicas is the minimum number of machines that the pool allows the MachineSet.
	MinReplicas int32 `json:"minReplicas"`
	// MaxReplicas is the maximum number of machines that the pool allows the MachineSet.
	MaxReplicas int32 `json:"maxReplicas"`
	// ErrorReason is the error reason that the MachineSet reports.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ErrorReason *string `json:"errorReason,omitempty"`
	// ErrorMessage is the error message that the MachineSet reports.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ErrorMessage *string `json:"errorMessage,omitempty"`
}

// MachinePoolNameLabel holds the name of the pool, on the MachineSets and MachineAutoscalers of a cluster.
const MachinePoolNameLabel = "hive.openshift.io/machine-pool"

// These are the condition types of a MachinePool.
const (
	// MachinePoolSyncedCondition is True if the MachineSets of the cluster matched the pool when Torpor last read them.
	MachinePoolSyncedCondition = "Synced"
	// NotEnoughReplicasCondition is True if spec.autoscaling.minReplicas is less than the number of MachineSets, on a platform on which
	// each MachineSet needs a machine.
	NotEnoughReplicasCondition = "NotEnoughReplicas"
	// UnsupportedConfigurationCondition is True if the pool has an unsupported setting, the name of an older pool, no
	// MachineSets, or too many.
	UnsupportedConfigurationCondition = "UnsupportedConfiguration"
)

// These are the reasons of Synced, NotEnoughReplicas and UnsupportedConfiguration.
const (
	// MachineSetsAsWishedReason means that the MachineSets match the pool.
	MachineSetsAsWishedReason = "MachineSetsAsWished"
	// MachineSetsApplyingReason means that Torpor is reading and changing the MachineSets.
	MachineSetsApplyingReason = "Applying"
	// MachinePoolWaitingReason means that the cluster hibernates or does not answer. Torpor does not connect to it.
	MachinePoolWaitingReason = "WaitingForCluster"
	// MachinePoolPausedReason means that an annotation of the ClusterDeployment pauses changes to the cluster.
	MachinePoolPausedReason = "Paused"
	// MachinePoolNoAnswerReason means that the cluster's API server did not answer while Torpor read or changed the
	// MachineSets.
	MachinePoolNoAnswerReason = "NoAnswer"
	// MachinePoolRefusedReason means that the cluster rejects a read or a change of its MachineSets.
	MachinePoolRefusedReason = "Refused"
	// MachinePoolDeletingReason means that the pool is being deleted. Its MachineSets are not changed.
	MachinePoolDeletingReason = "Deleting"
	// ClusterDeploymentMissingReason means that the ClusterDeployment that the pool references does not exist.
	ClusterDeploymentMissingReason = "ClusterDeploymentMissing"
	// NoMachineSetsReason means that the cluster has no MachineSets of the pool. Torpor does not create them.
	NoMachineSetsReason = "NoMachineSets"
	// NoMachineAPIReason means that the cluster does not serve MachineSets, or MachineAutoscalers where they are needed.
	NoMachineAPIReason = "NoMachineAPI"
	// TooManyMachineSetsReason means that the cluster has more MachineSets of the pool than Torpor handles.
	TooManyMachineSetsReason = "TooManyMachineSets"
	// AmbiguousPoolReason means that an older pool of the cluster has the same name.
	AmbiguousPoolReason = "AmbiguousPool"
	// InvalidReplicasReason means that spec.replicas and spec.autoscaling contradict each other, or are out of range.
	InvalidReplicasReason = "InvalidReplicas"
	// ConfigurationSupportedReason means that the pool requests only what is supported.
	ConfigurationSupportedReason = "ConfigurationSupported"
	// MinReplicasTooSmallReason means that minReplicas would leave some MachineSets without a machine.
	MinReplicasTooSmallReason = "MinReplicasTooSmall"
	// EnoughReplicasReason means that minReplicas is unset or large enough.
	EnoughReplicasReason = "EnoughReplicas"
)
