// SPDX-License-Identifier: Apache-2.0

// Package v1beta2 is the API moco.cybozu.com/v1beta2: MySQLCluster, which is a primary MySQL server and its replicas,
// and BackupPolicy, which defines when and how clusters are backed up. Kinds, fields, defaults and columns include
// those of upstream MOCO, so that manifests for MOCO can be applied unchanged. The schema rejects the values that
// MOCO's webhooks reject.
// +kubebuilder:object:generate=true
// +groupName=moco.cybozu.com
package v1beta2

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is moco.cybozu.com/v1beta2.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "moco.cybozu.com", Version: "v1beta2"}
}

// MySQLClusterKind is the kind of a MySQLCluster.
func MySQLClusterKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("MySQLCluster")
}

// BackupPolicyKind is the kind of a BackupPolicy.
func BackupPolicyKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("BackupPolicy")
}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &MySQLCluster{}, &MySQLClusterList{}, &BackupPolicy{}, &BackupPolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
