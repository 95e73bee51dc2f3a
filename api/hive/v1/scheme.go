// SPDX-License-Identifier: Apache-2.0

// Package v1 is the API hive.openshift.io/v1: ClusterDeployment, which describes a cluster that can be hibernated, and
// its SyncSets, SelectorSyncSets and MachinePools. Kinds, fields and columns are those of Hive, so that manifests for
// Hive can be applied unchanged. Fields that Torpor does not use are preserved.
// +kubebuilder:object:generate=true
// +groupName=hive.openshift.io
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is hive.openshift.io/v1.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "hive.openshift.io", Version: "v1"}
}

// ClusterDeploymentKind is the kind of a ClusterDeployment.
func ClusterDeploymentKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("ClusterDeployment")
}

// SyncSetKind is the kind of a SyncSet.
func SyncSetKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("SyncSet")
}

// SelectorSyncSetKind is the kind of a SelectorSyncSet.
func SelectorSyncSetKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("SelectorSyncSet")
}

// MachinePoolKind is the kind of a MachinePool.
func MachinePoolKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("MachinePool")
}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &ClusterDeployment{}, &ClusterDeploymentList{}, &SyncSet{}, &SyncSetList{}, &SelectorSyncSet{}, &SelectorSyncSetList{},
		&MachinePool{}, &MachinePoolList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
