// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// SyncSet is a list of objects that are applied to clusters whose ClusterDeployments are in its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=syncsets,shortName=ss,scope=Namespaced
// +kubebuilder:printcolumn:name="Mode",type="string",JSONPath=".spec.resourceApplyMode"
// +kubebuilder:printcolumn:name="Clusters",type="string",JSONPath=".spec.clusterDeploymentRefs[*].name"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type SyncSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SyncSetSpec `json:"spec"`
}

// SyncSetList is a list of SyncSets.
//
// +kubebuilder:object:root=true
type SyncSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SyncSet `json:"items"`
}

// SelectorSyncSet is a list of objects that are applied to all clusters of the hub whose ClusterDeployments match a label selector.
//
// +kubebuilder:object:root=true
// +kubebuilder:metadata:labels=app.kubernetes.io/part-of=torpor
// +kubebuilder:resource:path=selectorsyncsets,shortName=sss,scope=Cluster
// +kubebuilder:printcolumn:name="Mode",type="string",JSONPath=".spec.resourceApplyMode"
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type SelectorSyncSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec SelectorSyncSetSpec `json:"spec"`
}

// SelectorSyncSetList is a list of SelectorSyncSets.
//
// +kubebuilder:object:root=true
type SelectorSyncSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SelectorSyncSet `json:"items"`
}

// SyncSetSpec defines the objects of a SyncSet, and the clusters to which they are applied.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SyncSetSpec struct {
	SyncSetCommonSpec `json:",inline"`
	// ClusterDeploymentRefs reference the ClusterDeployments, in the namespace of the SyncSet.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	ClusterDeploymentRefs []LocalObjectReference `json:"clusterDeploymentRefs"`
}

// SelectorSyncSetSpec defines the objects of a SelectorSyncSet, and the clusters to which they are applied.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SelectorSyncSetSpec struct {
	SyncSetCommonSpec `json:",inline"`
	// ClusterDeploymentSelector selects ClusterDeployments by their labels. An empty selector selects all
	// ClusterDeployments of the hub.
	// +optional
	ClusterDeploymentSelector metav1.LabelSelector `json:"clusterDeploymentSelector,omitempty"`
}

// SyncSetResourceApplyMode defines what happens to an object that a set no longer applies to a cluster.
//
// +kubebuilder:validation:Enum="";Upsert;Sync
type SyncSetResourceApplyMode string

const (
	// UpsertResourceApplyMode means that no object is deleted from the cluster.
	UpsertResourceApplyMode SyncSetResourceApplyMode = "Upsert"
	// SyncResourceApplyMode means that an object is deleted from the cluster when it is removed from the set, or when
	// the set no longer applies to the cluster.
	SyncResourceApplyMode SyncSetResourceApplyMode = "Sync"
)

// SyncSetCommonSpec holds the fields of both SyncSets and SelectorSyncSets.
type SyncSetCommonSpec struct {
	// Resources are the objects of the set. They are applied in this order, until the cluster rejects an object.
	// +optional
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:XPreserveUnknownFields
	// +kubebuilder:validation:items:XEmbeddedResource
	// +listType=atomic
	Resources []runtime.RawExtension `json:"resources,omitempty"`
	// ResourceApplyMode is Upsert, which deletes nothing from a cluster, or Sync, which deletes objects that the set no
	// longer applies. Empty means Upsert.
	// +optional
	ResourceApplyMode SyncSetResourceApplyMode `json:"resourceApplyMode,omitempty"`
	// Patches change objects that exist in the clusters. They are sent after the resources and the Secrets.
	// +optional
	// +kubebuilder:validation:MaxItems=200
	// +listType=atomic
	Patches []SyncObjectPatch `json:"patches,omitempty"`
	// Secrets are Secrets of the hub that are copied into the clusters, after the resources and before the patches.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	Secrets []SecretMapping `json:"secretMappings,omitempty"`
}

// SyncObjectPatch is a change to an object in the cluster.
type SyncObjectPatch struct {
	// APIVersion is the API version of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	APIVersion string `json:"apiVersion"`
	// Kind is the kind of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// Name is the name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace is the namespace of the object. For namespaced kinds, empty means default.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Patch is the patch, as JSON, or as YAML without aliases.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	Patch string `json:"patch"`
	// PatchType is strategic, merge or json. Empty means strategic.
	// +optional
	// +kubebuilder:validation:Enum="";strategic;merge;json
	PatchType string `json:"patchType,omitempty"`
}

// SecretMapping copies a Secret of the hub into a cluster.
type SecretMapping struct {
	// SourceRef references the Secret of the hub. For a SyncSet, it is in the namespace of the SyncSet. For a
	// SelectorSyncSet, the namespace is required.
	SourceRef SecretReference `json:"sourceRef"`
	// TargetRef references the Secret of the cluster. An empty namespace means default.
	TargetRef SecretReference `json:"targetRef"`
}

// SecretReference is a reference to a Secret.
type SecretReference struct {
	// Name is the name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace is the namespace of the Secret.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// SyncsetPauseAnnotation pauses SyncSets and SelectorSyncSets of a ClusterDeployment while it parses as true.
const SyncsetPauseAnnotation = "hive.openshift.io/syncset-pause"
