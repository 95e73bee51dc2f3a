// SPDX-License-Identifier: Apache-2.0

// Package v1 is the API eirini.cloudfoundry.org/v1: LRP, one process of an app in one revision. Paths follow upstream
// Eirini; ImagePullSecrets and most of the status are Torpor's own and optional.
//
// +kubebuilder:object:generate=true
// +groupName=eirini.cloudfoundry.org
package v1
