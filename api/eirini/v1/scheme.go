// SPDX-License-Identifier: Apache-2.0

// Package v1 is the API eirini.cloudfoundry.org/v1: LRP, one process of an app in one revision. Field paths are those
// of upstream Eirini. Torpor has added ImagePullSecrets, InvocationTimeoutMs and most of the status, as optional
// fields.
//
// +kubebuilder:object:generate=true
// +groupName=eirini.cloudfoundry.org
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is eirini.cloudfoundry.org/v1.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "eirini.cloudfoundry.org", Version: "v1"}
}

// LRPKind is the kind of an LRP.
func LRPKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("LRP")
}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &LRP{}, &LRPList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
