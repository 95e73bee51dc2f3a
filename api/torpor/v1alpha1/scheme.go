// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is torpor.dev/v1alpha1.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "torpor.dev", Version: "v1alpha1"}
}

// CFDeploymentKind is the kind of a CFDeployment.
func CFDeploymentKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("CFDeployment")
}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(), &CFDeployment{}, &CFDeploymentList{}, &Slumber{}, &SlumberList{}, &ClusterSlumber{}, &ClusterSlumberList{}, &StopAdapter{}, &StopAdapterList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
