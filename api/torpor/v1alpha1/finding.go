// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// These are the codes of findings, which are problems that may affect a stop, or the start after it. Codes about
// clusters are reasons of the condition HibernationPossible, and kubectl torpor plan prints all codes. Blocking
// findings come first, then warnings.
const (
	// BeingDeletedFinding means that the object is being deleted, so it is neither stopped nor started.
	BeingDeletedFinding = "BeingDeleted"
	// NoControllerFinding means that no active manager runs the controllers of the object in its namespace.
	NoControllerFinding = "NoController"
	// HibernationUnsupportedFinding means that the platform, the version, the spec, a machine group or an annotation
	// does not allow the cluster to hibernate.
	HibernationUnsupportedFinding = "HibernationUnsupported"
	// PausedFinding means that an annotation pauses Torpor for the object, so neither a stop nor a start has an effect.
	PausedFinding = "Paused"
	// StoppedBySlumberFinding means that a Slumber also stops the object, so a start has no effect until the Slumber ends its stop.
	StoppedBySlumberFinding = "StoppedBySlumber"
	// StartRefusedFinding means that the manager or kubectl moco refuses the start, for example because the start would
	// lose data.
	StartRefusedFinding = "StartRefused"
	// StopRefusedFinding means that the manager refuses the stop, for example because another object would start the
	// object again.
	StopRefusedFinding = "StopRefused"
	// UntilInvalidFinding means that the annotation with the end of the stop holds neither a time nor a duration, or
	// holds a time before the stop.
	UntilInvalidFinding = "UntilInvalid"
	// StopOutlastsCertificatesFinding means that certificates that the cluster needs to resume without manual steps
	// expire before the stop ends.
	StopOutlastsCertificatesFinding = "StopOutlastsCertificates"
	// ClusterTooYoungFinding means that an OpenShift cluster is less than a day old: the signer of its kubelets' first certificates must be
	// replaced before the cluster can hibernate.
	ClusterTooYoungFinding = "ClusterTooYoung"
	// WebhookBlocksWakeUpFinding means that nodes or system Pods need an admission webhook to start, and the webhook's Pods run in the
	// cluster.
	WebhookBlocksWakeUpFinding = "WebhookBlocksWakeUp"
	// ClusterUpgradingFinding means that OpenShift or the nodes of a MachineConfigPool are being updated.
	ClusterUpgradingFinding = "ClusterUpgrading"
	// KarpenterReplacesNodesFinding means that Karpenter manages machines of the cluster. Karpenter terminates and
	// replaces machines that stop.
	KarpenterReplacesNodesFinding = "KarpenterReplacesNodes"
	// CapacityReservationMissingFinding means that machines require a capacity reservation, but run outside of it, for
	// example because the reservation was cancelled. These machines do not start again after a stop.
	CapacityReservationMissingFinding = "CapacityReservationMissing"
	// WakeByNearFinding means that certificates that the cluster needs to resume without manual steps expire within
	// three days.
	WakeByNearFinding = "WakeByNear"
	// QuotaExceededFinding means that the use of a quota exceeds its limit in the region of the machines, so some of
	// them may not start again after a stop.
	QuotaExceededFinding = "QuotaExceeded"
	// SlumberGoesOnFinding means that a Slumber keeps the object stopped after the end of the planned stop.
	SlumberGoesOnFinding = "SlumberGoesOn"
	// EtcdQuorumSmallFinding means that the control plane has one or two nodes, so the loss of one node loses the quorum.
	EtcdQuorumSmallFinding = "EtcdQuorumSmall"
	// HealthCheckReplacesMachinesFinding means that MachineHealthChecks are not paused. They replace machines whose
	// nodes are not ready. At the beginning of a resume, no node is ready.
	HealthCheckReplacesMachinesFinding = "HealthCheckReplacesMachines"
	// AutoscalerAddsMachinesFinding means that an autoscaler may add machines for Pods that a drain evicts, or for Pods
	// that wait for nodes during the resume.
	AutoscalerAddsMachinesFinding = "AutoscalerAddsMachines"
	// VolumesNotDetachableFinding means that the detachment of volumes from nodes has failed.
	VolumesNotDetachableFinding = "VolumesNotDetachable"
	// VolumesLocalFinding means that volumes are on the local disk of a machine, and are lost with the machine.
	VolumesLocalFinding = "VolumesLocal"
	// EvictionForbiddenFinding means that PodDisruptionBudgets allow no eviction. A stop of machines ignores
	// PodDisruptionBudgets.
	EvictionForbiddenFinding = "EvictionForbidden"
	// FinalizersPendingFinding means that namespaces are being deleted and wait for controllers of the cluster.
	FinalizersPendingFinding = "FinalizersPending"
	// CronJobsMissStartsFinding means that CronJobs would miss more than 100 starts. Old versions of Kubernetes never
	// start such a CronJob again, and newer versions emit a warning event.
	CronJobsMissStartsFinding = "CronJobsMissStarts"
	// BackupDueFinding means that a backup is scheduled during the stop.
	BackupDueFinding = "BackupDue"
	// NotHealthyFinding means that the object is already unhealthy before the stop.
	NotHealthyFinding = "NotHealthy"
	// DeploymentUnderwayFinding means that a deployment of the app is in progress. A stop ends the deployment.
	DeploymentUnderwayFinding = "DeploymentUnderway"
	// NotCheckedFinding means that the checks have not run yet, or could not read everything.
	NotCheckedFinding = "NotChecked"
)

// StopFinding is a problem that may affect a stop, or the start after the stop.
type StopFinding struct {
	// Code identifies the kind of the problem.
	Code string `json:"code"`
	// Objects are the names of at most three affected objects.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	Objects []string `json:"objects,omitempty"`
	// Count is the number of affected objects.
	// +optional
	Count int32 `json:"count,omitempty"`
	// After is the minimum duration of a stop to which the finding applies. Unset means that it applies to every stop.
	// +optional
	After *metav1.Duration `json:"after,omitempty"`
}
