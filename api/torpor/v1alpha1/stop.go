// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// These are the annotations that describe a stop. They have no effect on an object that is not stopped.
const (
	// ReasonAnnotation explains the stop to users in one sentence. Each switch of a MySQLCluster may have its own.
	ReasonAnnotation = "torpor.dev/reason"
	// UntilAnnotation is the time at which the stop ends automatically: a time (RFC 3339, such as
	// 2026-11-20T22:00:00Z), or a duration such as 8h, which counts from the time at which the annotation was written.
	// Each switch of a MySQLCluster may have its own.
	UntilAnnotation = "torpor.dev/until"
	// StoppedWithAnnotation holds namespace/NAME if the object was stopped together with the other objects of the
	// namespace NAME. A start of the namespace starts only objects with this annotation.
	StoppedWithAnnotation = "torpor.dev/stopped-with"
)

// Admission sets these annotations in the request that they describe, and overwrites values of the client.
const (
	// RequestedByAnnotation is the user who created a CFDeployment, last changed a Slumber, or last stopped or started
	// a ClusterDeployment, a workload or an object of a StopAdapter.
	RequestedByAnnotation = "torpor.dev/requested-by"
	// RequestVersionAnnotation is the resource version of the object before the request that torpor.dev/requested-by
	// describes, or "new" if this request created the object. If admission does not see a request, both annotations
	// remain unchanged.
	RequestVersionAnnotation = "torpor.dev/request-version"
	// UntilNotedAnnotation holds the value of torpor.dev/until and the user who wrote this value: "8h by alice". If
	// torpor.dev/until has another value, admission did not see the last change. The annotation with the end of a
	// single switch has its own note, such as torpor.dev/clustering-until-noted.
	UntilNotedAnnotation = UntilAnnotation + NotedSuffix
	// SkipUntilNotedAnnotation holds the value of torpor.dev/skip-until and the user who wrote this value, in the form
	// "2026-11-20T22:00:00Z by alice".
	SkipUntilNotedAnnotation = SkipUntilAnnotation + NotedSuffix
	// NotedSuffix is appended to the name of an annotation to form the name of its note.
	NotedSuffix = "-noted"
)

// StopRecord records one stop: the requester, the time, the reason and the end.
type StopRecord struct {
	// Since is the time at which the stop was requested.
	Since metav1.Time `json:"since"`
	// By is the requester: a user or a Slumber. If admission did not see the request, it is "unknown", followed by the
	// field manager if there is one.
	// +optional
	By string `json:"by,omitempty"`
	// Reason is the value of torpor.dev/reason, or of spec.reason of the Slumber.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Until is the time at which the stop ends automatically. If it is unset, the stop lasts until a user or a Slumber
	// ends it.
	// +optional
	Until *metav1.Time `json:"until,omitempty"`
	// RequestedUntil is the value of the annotation torpor.dev/until from which Until was computed. Torpor computes
	// Until only once for each value.
	// +optional
	RequestedUntil string `json:"requestedUntil,omitempty"`
	// UntilBy is the user who set RequestedUntil. It can differ from By. It is empty if admission did not see the
	// request.
	// +optional
	UntilBy string `json:"untilBy,omitempty"`
	// EndedAt is the time at which the stop ended. Unset while the stop is in effect.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`
	// StartedBy is the user or the Slumber that ended the stop, or "torpor.dev/until" if the stop ended automatically.
	// +optional
	StartedBy string `json:"startedBy,omitempty"`
	// RequestVersion identifies the last change to the switch that Torpor observed, for example by the value of the
	// annotation torpor.dev/request-version.
	// +optional
	RequestVersion string `json:"requestVersion,omitempty"`
	// Requested is true while the switch still requests the stop. After a stop has ended automatically, it remains true
	// until the switch is reset.
	// +optional
	Requested bool `json:"requested,omitempty"`
}
