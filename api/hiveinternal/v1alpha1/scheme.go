// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API hiveinternal.openshift.io/v1alpha1: ClusterSync, which reports the results of a cluster's
// sets. The names of fields are those of upstream Hive, so that clients of Hive's ClusterSyncs can also read Torpor's
// ClusterSyncs.
// +kubebuilder:object:generate=true
// +groupName=hiveinternal.openshift.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is hiveinternal.openshift.io/v1alpha1.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "hiveinternal.openshift.io", Version: "v1alpha1"}
}

// ClusterSyncKind is the kind of a ClusterSync.
func ClusterSyncKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("ClusterSync")
}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &ClusterSync{}, &ClusterSyncList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
