// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 is the API torpor.dev/v1alpha1: the names that Torpor adds to the kinds of others, and CFDeployment,
// which brings a new revision of an app up beside the old one.
//
// +kubebuilder:object:generate=true
// +groupName=torpor.dev
package v1alpha1

// Annotations of an object on which somebody stops something. They say nothing on an object where nothing is stopped.
const (
	// ReasonAnnotation is why somebody stopped something, in a sentence for people.
	ReasonAnnotation = "torpor.dev/reason"
	// UntilAnnotation is when a stop ends by itself, as in 2026-11-20T22:00:00Z (RFC 3339).
	UntilAnnotation = "torpor.dev/until"
)
