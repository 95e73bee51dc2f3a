// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// ClusterDeployment is one cluster at one cloud.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=clusterdeployments,shortName=cd,scope=Namespaced
// +kubebuilder:printcolumn:name="InfraID",type="string",JSONPath=".spec.clusterMetadata.infraID"
// +kubebuilder:printcolumn:name="Platform",type="string",JSONPath=".metadata.labels.hive\\.openshift\\.io/cluster-platform"
// +kubebuilder:printcolumn:name="Region",type="string",JSONPath=".metadata.labels.hive\\.openshift\\.io/cluster-region"
// +kubebuilder:printcolumn:name="Version",type="string",JSONPath=".metadata.labels.hive\\.openshift\\.io/version"
// +kubebuilder:printcolumn:name="ClusterType",type="string",JSONPath=".metadata.labels.hive\\.openshift\\.io/cluster-type"
// +kubebuilder:printcolumn:name="ProvisionStatus",type="string",JSONPath=".status.conditions[?(@.type=='Provisioned')].reason"
// +kubebuilder:printcolumn:name="PowerState",type="string",JSONPath=".status.powerState"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Since",type="date",JSONPath=".status.conditions[?(@.type=='Ready')].lastTransitionTime",priority=1
// +kubebuilder:printcolumn:name="By",type="string",JSONPath=".status.stops[?(@.requested==true)].by",priority=1
// +kubebuilder:printcolumn:name="Until",type="date",JSONPath=".status.stops[?(@.requested==true)].until",priority=1
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",priority=1
type ClusterDeployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterDeploymentSpec `json:"spec"`
	// +optional
	Status ClusterDeploymentStatus `json:"status,omitempty"`
}

// ClusterDeploymentList is a list of ClusterDeployments.
//
// +kubebuilder:object:root=true
type ClusterDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterDeployment `json:"items"`
}

// PowerState is the wanted state of a cluster's machines.
//
// +kubebuilder:validation:Enum="";Running;Hibernating
type PowerState string

const (
	// PowerStateRunning is the state of a cluster after its installation: all its machines run.
	PowerStateRunning PowerState = "Running"
	// PowerStateHibernating stops the machines of the cluster.
	PowerStateHibernating PowerState = "Hibernating"
)

// ClusterDeploymentSpec says what the cluster is and what it should do.
// Fields of upstream that Torpor does not act on are kept.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterDeploymentSpec struct {
	// ClusterName is the friendly name of the cluster.
	ClusterName string `json:"clusterName"`
	// BaseDomain is the base domain of the cluster.
	BaseDomain string `json:"baseDomain"`
	// Platform is the cloud that the cluster runs on; exactly one field of it is set.
	Platform Platform `json:"platform"`
	// Installed is true once the cluster exists. Nothing is stopped or started before.
	// +optional
	Installed bool `json:"installed,omitempty"`
	// PowerState is Running or Hibernating; empty means Running.
	// +optional
	PowerState PowerState `json:"powerState,omitempty"`
	// HibernateAfter is a duration such as 8h. A cluster that runs for so long, since it was installed, claimed or last resumed, hibernates
	// although PowerState says nothing of it; PowerState is never written. A cluster of a pool that nobody has claimed is left to its pool.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	HibernateAfter string `json:"hibernateAfter,omitempty"`
	// ClusterPoolRef is the pool that the cluster comes from.
	// +optional
	ClusterPoolRef *ClusterPoolReference `json:"clusterPoolRef,omitempty"`
	// ClusterMetadata identifies the installed cluster.
	// +optional
	ClusterMetadata *ClusterMetadata `json:"clusterMetadata,omitempty"`
}

// ClusterPoolReference names the pool of a cluster, and who has claimed it.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterPoolReference struct {
	// Namespace of the ClusterPool.
	Namespace string `json:"namespace"`
	// PoolName is the name of the ClusterPool.
	PoolName string `json:"poolName"`
	// ClaimName is the name of the ClusterClaim; empty while nobody has claimed the cluster.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// ClaimedTimestamp is when the cluster was claimed.
	// +optional
	ClaimedTimestamp *metav1.Time `json:"claimedTimestamp,omitempty"`
}

// ClusterMetadata identifies an installed cluster.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterMetadata struct {
	// ClusterID is the globally unique id of the cluster.
	ClusterID string `json:"clusterID"`
	// InfraID is what the cluster's machines are tagged with at the cloud.
	InfraID string `json:"infraID"`
	// AdminKubeconfigSecretRef names the Secret with the key "kubeconfig".
	AdminKubeconfigSecretRef LocalObjectReference `json:"adminKubeconfigSecretRef"`
	// Platform is what only some platforms need to know.
	// +optional
	Platform *ClusterPlatformMetadata `json:"platform,omitempty"`
}

// LocalObjectReference names an object in the same namespace.
type LocalObjectReference struct {
	// Name of the object.
	// +optional
	Name string `json:"name,omitempty"`
}

// ClusterDeploymentStatus is what is known of the cluster.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterDeploymentStatus struct {
	// ObservedGeneration is the generation that the conditions are about, for those who wait for them.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Hibernating, Ready, Unreachable and HibernationPossible of Torpor, and those of others.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// PowerState follows from the conditions, for people who read or wait.
	// +optional
	PowerState string `json:"powerState,omitempty"`
	// InstalledTimestamp is when the installation was over.
	// +optional
	InstalledTimestamp *metav1.Time `json:"installedTimestamp,omitempty"`
	// InstallVersion is the version that the cluster was installed with.
	// +optional
	InstallVersion *string `json:"installVersion,omitempty"`
	// ClusterVersionStatus is the version that the cluster runs.
	// +optional
	ClusterVersionStatus *ClusterVersionStatus `json:"clusterVersionStatus,omitempty"`
	// Hibernation is the record of the last hibernation: its nodes, when it began, and who asked.
	// +optional
	Hibernation *HibernationRecord `json:"hibernation,omitempty"`
	// HibernationCheck is what a hibernation or the resume after it may run into, as the cluster was last looked at for that: about once an hour while it runs.
	// +optional
	HibernationCheck *HibernationCheck `json:"hibernationCheck,omitempty"`
	// Stops are the last times that spec.powerState said Hibernating, the newest first: who asked, why, until when, and who ended it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Stops []torporv1alpha1.StopRecord `json:"stops,omitempty"`
	// ScheduledStops are those of Slumbers, one entry each. The cluster hibernates while one of them stops it, whatever spec.powerState says.
	// +optional
	// +listType=map
	// +listMapKey=slumber
	// +kubebuilder:validation:MaxItems=20
	ScheduledStops []torporv1alpha1.ScheduledStop `json:"scheduledStops,omitempty"`
}

// ClusterVersionStatus is the part of OpenShift's ClusterVersion that Torpor reads.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterVersionStatus struct {
	// Desired is the version that the cluster is at or goes to.
	// +optional
	Desired Release `json:"desired,omitempty"`
}

// Release is one OpenShift release.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Release struct {
	// Version is a semantic version such as 4.16.3.
	// +optional
	Version string `json:"version,omitempty"`
}
