// SPDX-License-Identifier: Apache-2.0

package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MachinePool says how many machines of a kind an OpenShift cluster has, and with which labels and taints their nodes come.
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

// MachinePoolSpec says which machines, and how many. Fields of upstream that Torpor does not act on are kept.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="!(has(self.replicas) && has(self.autoscaling))",message="expected spec.replicas or spec.autoscaling, found both"
type MachinePoolSpec struct {
	// ClusterDeploymentRef names the ClusterDeployment, in the namespace of the MachinePool.
	ClusterDeploymentRef LocalObjectReference `json:"clusterDeploymentRef"`
	// Name of the pool in the cluster, such as worker. Its MachineSets have it as a label, or after the infraID in their names.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Replicas is how many machines there are, spread over the MachineSets of the pool. Without it and without autoscaling there is 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5000
	Replicas *int64 `json:"replicas,omitempty"`
	// Autoscaling leaves the number to the autoscaler of the cluster.
	// +optional
	Autoscaling *MachinePoolAutoscaling `json:"autoscaling,omitempty"`
	// Platform is kept as it is: Torpor makes no MachineSets.
	// +kubebuilder:pruning:PreserveUnknownFields
	Platform runtime.RawExtension `json:"platform"`
	// Labels are those of the nodes. Others' labels stay.
	// +optional
	// +kubebuilder:validation:MaxProperties=100
	Labels map[string]string `json:"labels,omitempty"`
	// Taints are those of the nodes. If there are any, they are all that the MachineSets have.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	Taints []corev1.Taint `json:"taints,omitempty"`
}

// MachinePoolAutoscaling bounds what the autoscaler of a cluster may do.
//
// +kubebuilder:validation:XValidation:rule="self.minReplicas <= self.maxReplicas",message="expected minReplicas to be at most maxReplicas"
type MachinePoolAutoscaling struct {
	// MinReplicas is the least number of machines.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=5000
	MinReplicas int32 `json:"minReplicas"`
	// MaxReplicas is the greatest number of machines.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	MaxReplicas int32 `json:"maxReplicas"`
}

// MachinePoolStatus is what the cluster had when it was last looked at.
//
// +kubebuilder:pruning:PreserveUnknownFields
type MachinePoolStatus struct {
	// Replicas is how many machines the MachineSets of the pool were to have.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// MachineSets are those of the pool.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	MachineSets []MachineSetStatus `json:"machineSets,omitempty"`
	// Conditions are NotEnoughReplicas, Synced and UnsupportedConfiguration of Torpor, and those of others.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation of the pool that the cluster has.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// LastSyncTime is when the cluster last was, or was made, as the pool says.
	// +optional
	LastSyncTime *metav1.Time `json:"lastSyncTime,omitempty"`
	// SyncedResume is the resume of the cluster, by the time at which it began, after which that was: each is followed by one.
	// +optional
	SyncedResume *metav1.Time `json:"syncedResume,omitempty"`
}

// MachineSetStatus is one MachineSet of the cluster.
type MachineSetStatus struct {
	// Name of the MachineSet.
	Name string `json:"name"`
	// Replicas is how many machines it is to have.
	Replicas int32 `json:"replicas"`
	// ReadyReplicas is how many of them have a node that is ready, as the cluster says.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`
	// MinReplicas is the least number that the pool allows it.
	MinReplicas int32 `json:"minReplicas"`
	// MaxReplicas is the greatest.
	MaxReplicas int32 `json:"maxReplicas"`
	// ErrorReason is a word of the cluster for what is wrong with it.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	ErrorReason *string `json:"errorReason,omitempty"`
	// ErrorMessage is what the cluster says of it.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ErrorMessage *string `json:"errorMessage,omitempty"`
}

// MachinePoolNameLabel is on the MachineSets and MachineAutoscalers of a cluster that belong to the pool of this name.
const MachinePoolNameLabel = "hive.openshift.io/machine-pool"

// Condition types of a MachinePool.
const (
	// MachinePoolSyncedCondition is True when the MachineSets of a cluster were as the pool says when they were last looked at.
	MachinePoolSyncedCondition = "Synced"
	// NotEnoughReplicasCondition is True when spec.autoscaling.minReplicas is less than there are MachineSets, on a platform on which each has
	// to have a machine.
	NotEnoughReplicasCondition = "NotEnoughReplicas"
	// UnsupportedConfigurationCondition is True when the pool asks for what its cluster or Torpor cannot do.
	UnsupportedConfigurationCondition = "UnsupportedConfiguration"
)

// Reasons of Synced, NotEnoughReplicas and UnsupportedConfiguration.
const (
	// MachineSetsAsWishedReason means that the MachineSets were as the pool says.
	MachineSetsAsWishedReason = "MachineSetsAsWished"
	// MachineSetsApplyingReason means that the cluster is being looked at, and MachineSets changed.
	MachineSetsApplyingReason = "Applying"
	// MachinePoolWaitingReason means that the cluster of a pool hibernates or does not answer, so it is not dialled.
	MachinePoolWaitingReason = "WaitingForCluster"
	// MachinePoolPausedReason means that an annotation of the ClusterDeployment keeps MachineSets from being changed.
	MachinePoolPausedReason = "Paused"
	// MachinePoolNoAnswerReason means that the cluster did not answer while its MachineSets were looked at.
	MachinePoolNoAnswerReason = "NoAnswer"
	// MachinePoolRefusedReason means that the cluster refuses what the pool says.
	MachinePoolRefusedReason = "Refused"
	// MachinePoolDeletingReason means that the pool is being deleted; its MachineSets stay as they are.
	MachinePoolDeletingReason = "Deleting"
	// ClusterDeploymentMissingReason means that there is no ClusterDeployment of the name that the pool has.
	ClusterDeploymentMissingReason = "ClusterDeploymentMissing"
	// NoMachineSetsReason means that the cluster has no MachineSets of the pool; Torpor makes none.
	NoMachineSetsReason = "NoMachineSets"
	// NoMachineAPIReason means that the cluster serves no MachineSets at all, or no MachineAutoscalers where they are needed.
	NoMachineAPIReason = "NoMachineAPI"
	// TooManyMachineSetsReason means that the cluster has more MachineSets of the pool than Torpor handles.
	TooManyMachineSetsReason = "TooManyMachineSets"
	// AmbiguousPoolReason means that an older pool of the cluster has the same name.
	AmbiguousPoolReason = "AmbiguousPool"
	// InvalidReplicasReason means that the numbers of the pool contradict each other.
	InvalidReplicasReason = "InvalidReplicas"
	// ConfigurationSupportedReason means that nothing is known that the cluster or Torpor cannot do.
	ConfigurationSupportedReason = "ConfigurationSupported"
	// MinReplicasTooSmallReason means that some MachineSets would have no machine.
	MinReplicasTooSmallReason = "MinReplicasTooSmall"
	// EnoughReplicasReason means that there are enough machines for all MachineSets.
	EnoughReplicasReason = "EnoughReplicas"
)
