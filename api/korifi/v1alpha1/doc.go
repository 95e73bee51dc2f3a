// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API korifi.cloudfoundry.org/v1alpha1: CFApp, an app that somebody wants started or stopped, its
// CFProcesses, the CFBuild and CFPackage that its image comes from, and the CFOrg and CFSpace it lives in. Paths and
// enums follow upstream Korifi, so that its objects apply here; what Torpor adds is optional.
//
// +kubebuilder:object:generate=true
// +groupName=korifi.cloudfoundry.org
package v1alpha1
