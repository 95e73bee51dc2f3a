// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Annotations that describe a stop. They have no effect on an object that is not stopped.
const (
	// ReasonAnnotation explains the stop to users in one sentence. Each switch of a MySQLCluster may have its own.
	ReasonAnnotation = "torpor.dev/reason"
	// UntilAnnotation is the time at which the stop ends automatically: a time (RFC 3339, such as
	// 2026-11-20T22:00:00Z), or a duration such as 8h, which counts from the time it was written. Each switch of a
	// MySQLCluster may have its own.
	UntilAnnotation = "torpor.dev/until"
	// StoppedWithAnnotation is the namespace, as namespace/NAME, if the object was stopped together with the other
	// objects of its namespace. A start of the namespace starts only objects with this annotation.
	StoppedWithAnnotation = "torpor.dev/stopped-with"
)

// Annotations that admission sets in the request that they describe. Admission overwrites any other value.
const (
	// RequestedByAnnotation is the user who created a CFDeployment, or who last changed the power state of a ClusterDeployment.
	RequestedByAnnotation = "torpor.dev/requested-by"
	// RequestVersionAnnotation is the resource version of the object before the change that torpor.dev/requested-by describes. A change
	// that admission did not see leaves both annotations unchanged.
	RequestVersionAnnotation = "torpor.dev/request-version"
	// UntilNotedAnnotation holds the value of torpor.dev/until and the user who wrote it: "8h by alice". If the value
	// differs from that of torpor.dev/until, admission did not see the last change. The end of a single switch has an
	// annotation of its own, such as torpor.dev/clustering-until-noted.
	UntilNotedAnnotation = UntilAnnotation + NotedSuffix
	// SkipUntilNotedAnnotation holds the value of torpor.dev/skip-until and the user who wrote it, in the same form.
	SkipUntilNotedAnnotation = SkipUntilAnnotation + NotedSuffix
	// NotedSuffix is appended to the name of an annotation to form the name of its note.
	NotedSuffix = "-noted"
)

// StopRecord records one stop: the requester, the time, the reason, and how it ended.
type StopRecord struct {
	// Since is the time of the request.
	Since metav1.Time `json:"since"`
	// By is the requester. If admission did not see the request, it is "unknown", followed by the field manager if
	// there is one.
	// +optional
	By string `json:"by,omitempty"`
	// Reason is the value of the annotation torpor.dev/reason.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Until is the time at which the stop ends automatically. Unset means that the stop has no end.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// RequestedUntil is the value of the annotation torpor.dev/until from which Until was computed. A duration is
	// evaluated once, from the time at which it was written.
	// +optional
	RequestedUntil string `json:"requestedUntil,omitempty"`
	// UntilBy is the user who set RequestedUntil. It can differ from By. It is empty if admission did not see the
	// request.
	// +optional
	UntilBy string `json:"untilBy,omitempty"`
	// EndedAt is the time at which the stop ended. Unset while the stop is in effect.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`
	// StartedBy is the user who ended the stop, or "torpor.dev/until" if it ended automatically.
	// +optional
	StartedBy string `json:"startedBy,omitempty"`
	// RequestVersion is the value of the annotation torpor.dev/request-version at the last observed change to the switch.
	// +optional
	RequestVersion string `json:"requestVersion,omitempty"`
	// Requested is true while the switch still requests the stop. After a stop has ended automatically, it remains true
	// until the switch is reset.
	// +optional
	Requested bool `json:"requested,omitempty"`
}
