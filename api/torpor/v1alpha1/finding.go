// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Codes of findings: what a stop, or the start after it, may run into. They are reasons of HibernationPossible and what kubectl torpor
// plan prints. Those that block come first, then those that warn.
const (
	// BeingDeletedFinding means that the object is being deleted, so that nobody stops or starts it.
	BeingDeletedFinding = "BeingDeleted"
	// HibernationUnsupportedFinding means that the platform, the version or the spec of the cluster keeps it from hibernating.
	HibernationUnsupportedFinding = "HibernationUnsupported"
	// PausedFinding means that an annotation keeps Torpor away, so that neither a stop nor a start has an effect.
	PausedFinding = "Paused"
	// StoppedBySlumberFinding means that a Slumber stops it, too, so that a start has no effect yet.
	StoppedBySlumberFinding = "StoppedBySlumber"
	// StartRefusedFinding means that the manager refuses the start, because it would do harm.
	StartRefusedFinding = "StartRefused"
	// StopRefusedFinding means that the manager refuses the stop, because another object would undo it.
	StopRefusedFinding = "StopRefused"
	// UntilInvalidFinding means that the end that an annotation names is neither a time nor a duration, or lies before the stop.
	UntilInvalidFinding = "UntilInvalid"
	// StopOutlastsCertificatesFinding means that the stop is to end after certificates without which the cluster does not come back by itself.
	StopOutlastsCertificatesFinding = "StopOutlastsCertificates"
	// ClusterTooYoungFinding means that a cluster of OpenShift is not a day old: the signer of its kubelets' first certificates has to be replaced before it may sleep.
	ClusterTooYoungFinding = "ClusterTooYoung"
	// WebhookBlocksWakeUpFinding means that nodes and Pods of the system need an admission webhook to come back whose own Pods are in the cluster.
	WebhookBlocksWakeUpFinding = "WebhookBlocksWakeUp"
	// WakeByNearFinding means that the cluster has to be awake within three days, before certificates expire without which it does not come back by itself.
	WakeByNearFinding = "WakeByNear"
	// SlumberGoesOnFinding means that a Slumber stops it for longer than the stop that is planned.
	SlumberGoesOnFinding = "SlumberGoesOn"
	// EtcdQuorumSmallFinding means that the control plane has one or two nodes, of which none may be lost.
	EtcdQuorumSmallFinding = "EtcdQuorumSmall"
	// VolumesNotDetachableFinding means that volumes could not be detached from nodes.
	VolumesNotDetachableFinding = "VolumesNotDetachable"
	// VolumesLocalFinding means that volumes are on the disk of one machine, and are lost with it.
	VolumesLocalFinding = "VolumesLocal"
	// EvictionForbiddenFinding means that PodDisruptionBudgets allow no Pod of theirs to go, which a stop does not ask.
	EvictionForbiddenFinding = "EvictionForbidden"
	// FinalizersPendingFinding means that namespaces are being deleted, which waits for controllers of the cluster.
	FinalizersPendingFinding = "FinalizersPending"
	// CronJobsMissStartsFinding means that CronJobs miss more than a hundred starts, after which old versions of Kubernetes never start them again, and others tell of it.
	CronJobsMissStartsFinding = "CronJobsMissStarts"
	// BackupDueFinding means that a backup would be made during the stop.
	BackupDueFinding = "BackupDue"
	// NotHealthyFinding means that something is not as it should be already, which the stop leaves so.
	NotHealthyFinding = "NotHealthy"
	// DeploymentUnderwayFinding means that a deployment of the app goes on, which a stop ends.
	DeploymentUnderwayFinding = "DeploymentUnderway"
	// NotCheckedFinding means that nobody has looked yet, or could not look, at what a stop may run into.
	NotCheckedFinding = "NotChecked"
)

// StopFinding is something that a stop, or the start after it, may run into.
type StopFinding struct {
	// Code is what it is.
	Code string `json:"code"`
	// Objects are the first of those that it is about.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	Objects []string `json:"objects,omitempty"`
	// Count is how many these are in all.
	// +optional
	Count int32 `json:"count,omitempty"`
	// After is how long a stop has to last before it matters; unset if it always does.
	// +optional
	After *metav1.Duration `json:"after,omitempty"`
}
