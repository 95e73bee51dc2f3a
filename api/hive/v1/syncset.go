// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// SyncSet is a list of objects that clusters of its namespace have.
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

// SelectorSyncSet is a list of objects that all clusters of the hub have whose ClusterDeployments have some labels.
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

// SyncSetSpec says what the clusters have, and which.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SyncSetSpec struct {
	SyncSetCommonSpec `json:",inline"`
	// ClusterDeploymentRefs name the ClusterDeployments, in the namespace of the SyncSet.
	// +kubebuilder:validation:MaxItems=1000
	// +listType=atomic
	ClusterDeploymentRefs []LocalObjectReference `json:"clusterDeploymentRefs"`
}

// SelectorSyncSetSpec says what the clusters have, and which.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SelectorSyncSetSpec struct {
	SyncSetCommonSpec `json:",inline"`
	// ClusterDeploymentSelector selects ClusterDeployments by their labels; an empty one selects all.
	// +optional
	ClusterDeploymentSelector metav1.LabelSelector `json:"clusterDeploymentSelector,omitempty"`
}

// SyncSetResourceApplyMode says what becomes of an object that is taken out of a set.
//
// +kubebuilder:validation:Enum="";Upsert;Sync
type SyncSetResourceApplyMode string

const (
	// UpsertResourceApplyMode leaves it in the cluster.
	UpsertResourceApplyMode SyncSetResourceApplyMode = "Upsert"
	// SyncResourceApplyMode deletes it from the cluster.
	SyncResourceApplyMode SyncSetResourceApplyMode = "Sync"
)

// SyncSetCommonSpec is what sets have in common.
type SyncSetCommonSpec struct {
	// Resources are the objects, which are applied in this order. The first that a cluster refuses ends the pass through the set.
	// +optional
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:XPreserveUnknownFields
	// +kubebuilder:validation:items:XEmbeddedResource
	// +listType=atomic
	Resources []runtime.RawExtension `json:"resources,omitempty"`
	// ResourceApplyMode is Upsert, which never deletes anything from a cluster, or Sync, which deletes what has left the set.
	// Empty means Upsert.
	// +optional
	ResourceApplyMode SyncSetResourceApplyMode `json:"resourceApplyMode,omitempty"`
	// Patches are changes of objects that are in the clusters already. They are sent after the resources, and each time that those are.
	// +optional
	// +kubebuilder:validation:MaxItems=200
	// +listType=atomic
	Patches []SyncObjectPatch `json:"patches,omitempty"`
	// Secrets are Secrets of the hub that are copied into the clusters, before the patches are sent.
	// +optional
	// +kubebuilder:validation:MaxItems=100
	// +listType=atomic
	Secrets []SecretMapping `json:"secretMappings,omitempty"`
}

// SyncObjectPatch is a change of one object of a cluster.
type SyncObjectPatch struct {
	// APIVersion of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	APIVersion string `json:"apiVersion"`
	// Kind of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace of the object; empty means default, for kinds that have namespaces.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Patch is the change, in JSON or in YAML without aliases.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	Patch string `json:"patch"`
	// PatchType is strategic, which is what empty means, merge or json.
	// +optional
	// +kubebuilder:validation:Enum="";strategic;merge;json
	PatchType string `json:"patchType,omitempty"`
}

// SecretMapping copies a Secret of the hub into a cluster.
type SecretMapping struct {
	// SourceRef is the Secret of the hub. That of a SyncSet is in the namespace of the SyncSet; that of a SelectorSyncSet says where it is.
	SourceRef SecretReference `json:"sourceRef"`
	// TargetRef is the Secret of the cluster; its namespace is default if it is empty.
	TargetRef SecretReference `json:"targetRef"`
}

// SecretReference names a Secret.
type SecretReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace of the Secret.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// SyncsetPauseAnnotation keeps everything from being applied to the cluster of a ClusterDeployment when it parses as true.
const SyncsetPauseAnnotation = "hive.openshift.io/syncset-pause"
