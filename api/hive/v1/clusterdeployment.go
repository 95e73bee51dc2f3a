// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// ClusterDeployment describes a cluster whose machines run in a cloud, or can be powered off and on remotely.
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
// +kubebuilder:printcolumn:name="Until",type="string",JSONPath=".status.stops[?(@.requested==true)].until",priority=1
// +kubebuilder:printcolumn:name="Why",type="string",JSONPath=".status.conditions[?(@.type=='Ready')].message",priority=1
type ClusterDeployment struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ClusterDeploymentSpec `json:"spec"`
	// +optional
	Status ClusterDeploymentStatus `json:"status,omitempty"`
}

// HasTrueAnnotation reports whether the value of an annotation parses as true.
func (cd *ClusterDeployment) HasTrueAnnotation(name string) bool {
	is, err := strconv.ParseBool(cd.Annotations[name])
	return err == nil && is
}

// ClusterDeploymentList is a list of ClusterDeployments.
//
// +kubebuilder:object:root=true
type ClusterDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterDeployment `json:"items"`
}

// PowerState is the desired power state of a cluster's machines.
//
// +kubebuilder:validation:Enum="";Running;Hibernating
type PowerState string

const (
	// PowerStateRunning requests that all machines of the cluster run. It is the default.
	PowerStateRunning PowerState = "Running"
	// PowerStateHibernating requests that all machines of the cluster are stopped.
	PowerStateHibernating PowerState = "Hibernating"
)

// ClusterDeploymentSpec is the desired state of a cluster. Fields of Hive's schema that Torpor does not use are
// preserved.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterDeploymentSpec struct {
	// ClusterName is the friendly name of the cluster.
	ClusterName string `json:"clusterName"`
	// BaseDomain is the base domain of the cluster.
	BaseDomain string `json:"baseDomain"`
	// Platform is the cloud that the cluster runs on. Exactly one of its fields is set.
	Platform Platform `json:"platform"`
	// Installed is true once the cluster is installed. Until then, Torpor neither stops nor starts machines.
	// +optional
	Installed bool `json:"installed,omitempty"`
	// PowerState is Running or Hibernating. Empty means Running.
	// +optional
	PowerState PowerState `json:"powerState,omitempty"`
	// HibernateAfter is a duration such as 8h. Torpor hibernates the cluster, without changing PowerState, when it has
	// run for this time since its installation, claim or last resume. HibernateAfter does not apply to an unclaimed
	// cluster of a pool.
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
	// ControlPlaneConfig defines how the API server of the cluster is reached.
	// +optional
	ControlPlaneConfig *ControlPlaneConfig `json:"controlPlaneConfig,omitempty"`
}

// ControlPlaneConfig defines how the API server of a cluster is reached if the URL in its kubeconfig is not reachable.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ControlPlaneConfig struct {
	// APIURLOverride is the URL of the API server, which replaces the URL in the kubeconfig: https://HOST:PORT, or
	// HOST:PORT. It requires a kubeconfig with certificate-authority-data or tls-server-name.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	APIURLOverride string `json:"apiURLOverride,omitempty"`
	// APIServerIPOverride is the IP address to connect to, without a proxy. The port, the TLS server name and the Host
	// header remain those of the URL.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	APIServerIPOverride string `json:"apiServerIPOverride,omitempty"`
}

// ClusterPoolReference identifies the pool of a cluster, and its claim.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterPoolReference struct {
	// Namespace is the namespace of the ClusterPool.
	Namespace string `json:"namespace"`
	// PoolName is the name of the ClusterPool.
	PoolName string `json:"poolName"`
	// ClaimName is the name of the ClusterClaim. It is empty while the cluster is not claimed.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// ClaimedTimestamp is the time at which the cluster was claimed.
	// +optional
	ClaimedTimestamp *metav1.Time `json:"claimedTimestamp,omitempty"`
}

// ClusterMetadata identifies an installed cluster.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterMetadata struct {
	// ClusterID is the globally unique id of the cluster.
	ClusterID string `json:"clusterID"`
	// InfraID is the tag or name prefix of the cluster's machines in the cloud.
	InfraID string `json:"infraID"`
	// AdminKubeconfigSecretRef references the Secret whose key "kubeconfig" holds the administrator's kubeconfig.
	AdminKubeconfigSecretRef LocalObjectReference `json:"adminKubeconfigSecretRef"`
	// Platform holds metadata that only some platforms need.
	// +optional
	Platform *ClusterPlatformMetadata `json:"platform,omitempty"`
}

// LocalObjectReference is a reference to an object in the same namespace.
type LocalObjectReference struct {
	// Name is the name of the object.
	// +optional
	Name string `json:"name,omitempty"`
}

// ClusterDeploymentStatus is the observed state of a cluster.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterDeploymentStatus struct {
	// ObservedGeneration is the generation of the ClusterDeployment that the conditions describe.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions hold Torpor's conditions, such as Hibernating, Ready and HibernationPossible, and conditions of other
	// controllers.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// PowerState is the reason of the condition Hibernating, such as Running, or Unknown.
	// +optional
	PowerState string `json:"powerState,omitempty"`
	// InstalledTimestamp is the time at which the installation ended.
	// +optional
	InstalledTimestamp *metav1.Time `json:"installedTimestamp,omitempty"`
	// InstallVersion is the version that the cluster was installed with.
	// +optional
	InstallVersion *string `json:"installVersion,omitempty"`
	// ClusterVersionStatus is the version that the cluster runs.
	// +optional
	ClusterVersionStatus *ClusterVersionStatus `json:"clusterVersionStatus,omitempty"`
	// Hibernation records the last hibernation: its requester, its times, and the nodes of the cluster.
	// +optional
	Hibernation *HibernationRecord `json:"hibernation,omitempty"`
	// HibernationCheck holds problems that may affect a hibernation, or the resume after the hibernation. Torpor checks
	// a running cluster about once an hour.
	// +optional
	HibernationCheck *HibernationCheck `json:"hibernationCheck,omitempty"`
	// Stops are the last stops that spec.powerState requested, newest first: requester, reason, end, and the user who ended each stop.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Stops []torporv1alpha1.StopRecord `json:"stops,omitempty"`
	// ScheduledStops holds one entry for each Slumber that has stopped the cluster. The cluster hibernates while at
	// least one of these Slumbers stops it, regardless of spec.powerState.
	// +optional
	// +listType=map
	// +listMapKey=slumber
	// +kubebuilder:validation:MaxItems=20
	ScheduledStops []torporv1alpha1.ScheduledStop `json:"scheduledStops,omitempty"`
	// Savings holds the resources that the hibernations of the cluster have saved.
	// +optional
	Savings *torporv1alpha1.Savings `json:"savings,omitempty"`
}

// ClusterVersionStatus is the part of OpenShift's ClusterVersion that Torpor reads.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterVersionStatus struct {
	// Desired is the version that the cluster runs, or the target version of an upgrade in progress.
	// +optional
	Desired Release `json:"desired,omitempty"`
}

// Release is an OpenShift release.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Release struct {
	// Version is a semantic version such as 4.16.3.
	// +optional
	Version string `json:"version,omitempty"`
}
