// SPDX-License-Identifier: Apache-2.0

// Package v1 is the API hive.openshift.io/v1: ClusterDeployment, one cluster that can be hibernated.
// Names, paths and columns follow upstream Hive, so that its manifests apply here; what Torpor does not
// act on is kept untouched.
//
// +kubebuilder:object:generate=true
// +groupName=hive.openshift.io
package v1
