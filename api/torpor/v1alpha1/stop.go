// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Annotations of an object on which somebody stops something. They say nothing on an object where nothing is stopped.
const (
	// ReasonAnnotation is why somebody stopped something, in a sentence for people. A switch of a MySQLCluster may have its own.
	ReasonAnnotation = "torpor.dev/reason"
	// UntilAnnotation is when a stop ends by itself: a time as in 2026-11-20T22:00:00Z (RFC 3339), or a duration such as 8h, which counts
	// from when it was written. A switch of a MySQLCluster may have its own.
	UntilAnnotation = "torpor.dev/until"
)

// Annotations that admission writes in the request that they are about, whatever they are said to be.
const (
	// RequestedByAnnotation is who made a CFDeployment, or who last changed whether a ClusterDeployment is to hibernate.
	RequestedByAnnotation = "torpor.dev/requested-by"
	// RequestVersionAnnotation is the resource version that the object had before the change that torpor.dev/requested-by names: a change
	// that was not noted leaves both as they were.
	RequestVersionAnnotation = "torpor.dev/request-version"
	// UntilNotedAnnotation is what was written into torpor.dev/until, and the user who did: "8h by alice". A note about another value is of
	// a change before the last one, which was not noted. Each end that a switch has of its own has its note, such as
	// torpor.dev/clustering-until-noted.
	UntilNotedAnnotation = UntilAnnotation + NotedSuffix
	// SkipUntilNotedAnnotation is what was written into torpor.dev/skip-until, and the user who did, in the same way.
	SkipUntilNotedAnnotation = SkipUntilAnnotation + NotedSuffix
	// NotedSuffix makes the name of a note from that of an annotation.
	NotedSuffix = "-noted"
)

// StopRecord is one stop: who asked for it, when and why, how it ended and who ended it.
type StopRecord struct {
	// Since is when it was asked for.
	Since metav1.Time `json:"since"`
	// By is who asked for it; "unknown", with the field manager where there is one, if no admission noted that.
	// +optional
	By string `json:"by,omitempty"`
	// Reason is that of the annotation torpor.dev/reason.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Until is when it ends by itself; unset if it does not.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// RequestedUntil is the annotation torpor.dev/until of which Until was made: a duration counts once, from when it was written.
	// +optional
	RequestedUntil string `json:"requestedUntil,omitempty"`
	// UntilBy is who wrote that, who need not be who asked for the stop; empty if no admission noted it.
	// +optional
	UntilBy string `json:"untilBy,omitempty"`
	// EndedAt is when it ended; unset while it holds.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`
	// StartedBy is who ended it, or "torpor.dev/until" if it ended by itself.
	// +optional
	StartedBy string `json:"startedBy,omitempty"`
	// RequestVersion is the annotation torpor.dev/request-version as it was when the switch was last seen to change.
	// +optional
	RequestVersion string `json:"requestVersion,omitempty"`
	// Requested is whether the switch still asks for it, which that of a stop that has ended by itself does until somebody sets it back.
	// +optional
	Requested bool `json:"requested,omitempty"`
}
