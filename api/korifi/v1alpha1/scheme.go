// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API korifi.cloudfoundry.org/v1alpha1: CFApp, which describes an app; its CFProcesses,
// CFBuilds and CFPackages; the CFOrgs and CFSpaces that contain apps; the CFRoutes and CFDomains of addresses; CFTasks;
// and services that are bound to apps. Field paths and enums are those of upstream Korifi, so that objects of Korifi
// can be applied unchanged. Fields that Torpor has added are optional.
// +kubebuilder:object:generate=true
// +groupName=korifi.cloudfoundry.org
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is korifi.cloudfoundry.org/v1alpha1.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "korifi.cloudfoundry.org", Version: "v1alpha1"}
}

// CFAppKind is the kind of a CFApp.
func CFAppKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("CFApp")
}

// CFProcessKind is the kind of a CFProcess.
func CFProcessKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("CFProcess")
}

// CFBuildKind is the kind of a CFBuild.
func CFBuildKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("CFBuild")
}

// CFPackageKind is the kind of a CFPackage.
func CFPackageKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("CFPackage")
}

// CFOrgKind is the kind of a CFOrg.
func CFOrgKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("CFOrg")
}

// CFSpaceKind is the kind of a CFSpace.
func CFSpaceKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("CFSpace")
}

// CFDomainKind is the kind of a CFDomain.
func CFDomainKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("CFDomain")
}

// CFRouteKind is the kind of a CFRoute.
func CFRouteKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("CFRoute")
}

// CFTaskKind is the kind of a CFTask.
func CFTaskKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("CFTask")
}

// CFServiceInstanceKind is the kind of a CFServiceInstance.
func CFServiceInstanceKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("CFServiceInstance")
}

// CFServiceBindingKind is the kind of a CFServiceBinding.
func CFServiceBindingKind() schema.GroupVersionKind {
	return GroupVersion().WithKind("CFServiceBinding")
}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(),
		&CFApp{}, &CFAppList{}, &CFProcess{}, &CFProcessList{}, &CFBuild{}, &CFBuildList{},
		&CFPackage{}, &CFPackageList{}, &CFOrg{}, &CFOrgList{}, &CFSpace{}, &CFSpaceList{},
		&CFDomain{}, &CFDomainList{}, &CFRoute{}, &CFRouteList{}, &CFTask{}, &CFTaskList{},
		&CFServiceInstance{}, &CFServiceInstanceList{}, &CFServiceBinding{}, &CFServiceBindingList{})
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
