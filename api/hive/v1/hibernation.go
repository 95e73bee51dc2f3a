// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// Condition types of a ClusterDeployment that Torpor owns.
const (
	// ClusterHibernatingCondition is True from the first stop to the end of the resume, False when running or unsupported.
	ClusterHibernatingCondition = "Hibernating"
	// ClusterReadyCondition is True when the cluster runs, answers and its nodes are ready.
	ClusterReadyCondition = "Ready"
	// ClusterUnreachableCondition is True while no controller should dial the cluster.
	ClusterUnreachableCondition = "Unreachable"
	// ClusterDegradedCondition is True while the cluster runs without some of its machines or nodes; it is missing before it ever was.
	ClusterDegradedCondition = "Degraded"
	// ClusterStalledCondition is True while a hibernation or a resume does not come to its end; it is missing before it ever was.
	ClusterStalledCondition = "Stalled"
	// ClusterHibernationPossibleCondition is False while something was found at a cluster that a hibernation, or the resume after it, fails by. It holds up nothing. Its reason is the code of the worst finding, which may only warn while it is True.
	ClusterHibernationPossibleCondition = "HibernationPossible"
)

// Reasons of the Hibernating condition when it is True or False.
const (
	// ResumingHibernationReason means that the machines are being started, or the cluster is not yet ready after that.
	ResumingHibernationReason = "Resuming"
	// RunningHibernationReason means that the cluster runs.
	RunningHibernationReason = "Running"
	// StoppingHibernationReason means that the machines are being stopped.
	StoppingHibernationReason = "Stopping"
	// HibernatingHibernationReason means that every machine is stopped.
	HibernatingHibernationReason = "Hibernating"
	// SyncSetsNotAppliedReason means that hibernation is wanted, and a cluster that was installed a short while ago first gets its SyncSets.
	SyncSetsNotAppliedReason = "SyncSetsNotApplied"
	// UnsupportedHibernationReason means that hibernation is wanted, but the version or the platform cannot do it.
	UnsupportedHibernationReason = "Unsupported"
)

// Reasons of Hibernating and Ready when they are Unknown: why nothing can be said.
const (
	// DeletedReason means that the ClusterDeployment is being deleted.
	DeletedReason = "ClusterDeploymentDeleted"
	// PausedReason means that an annotation pauses Torpor for this cluster.
	PausedReason = "PowerStatePaused"
	// NotInstalledReason means that the cluster does not exist yet.
	NotInstalledReason = "NotInstalled"
	// InvalidSpecReason means that the spec lacks what is needed to find the machines.
	InvalidSpecReason = "InvalidSpec"
	// NoMachinesFoundReason means that the cloud knows no machine of this cluster.
	NoMachinesFoundReason = "NoMachinesFound"
	// CredentialsMissingReason means that the Secret with the cloud credentials, or a key in it, is missing.
	CredentialsMissingReason = "CredentialsMissing"
	// CredentialsInvalidReason means that the cloud refuses the credentials.
	CredentialsInvalidReason = "CredentialsInvalid"
	// PermissionDeniedReason means that the cloud knows the credentials but refuses the call.
	PermissionDeniedReason = "PermissionDenied"
	// CloudUnreachableReason means that the cloud does not answer.
	CloudUnreachableReason = "CloudUnreachable"
	// CloudThrottledReason means that the cloud asks to slow down.
	CloudThrottledReason = "CloudThrottled"
	// CloudErrorReason means that the cloud answers with an error of another kind.
	CloudErrorReason = "CloudError"
)

// Reasons of the Ready condition when it is False, beside those of the Hibernating condition.
const (
	// RecordingNodesReason means that the nodes could not be written down yet, and the machines are not stopped before.
	RecordingNodesReason = "RecordingNodes"
	// DrainingWorkersReason means that the pods of workers are evicted before machines are stopped.
	DrainingWorkersReason = "DrainingWorkers"
	// StoppingMachinesReason means that machines are asked to stop.
	StoppingMachinesReason = "StoppingMachines"
	// WaitingForMachinesToStopReason means that machines are stopping.
	WaitingForMachinesToStopReason = "WaitingForMachinesToStop"
	// TerminatingSpotMachinesReason means that every other machine is stopped, and spot machines are terminated that the cluster makes anew.
	TerminatingSpotMachinesReason = "TerminatingSpotMachines"
	// FailedToStopReason means that the cloud refused to stop machines.
	FailedToStopReason = "FailedToStop"
	// StartingMachinesReason means that machines are asked to start.
	StartingMachinesReason = "StartingMachines"
	// WaitingForMachinesReason means that machines are starting.
	WaitingForMachinesReason = "WaitingForMachines"
	// FailedToStartMachinesReason means that the cloud refused to start machines.
	FailedToStartMachinesReason = "FailedToStartMachines"
	// WaitingForAPIReason means that the machines run, the API server does not answer yet.
	WaitingForAPIReason = "WaitingForAPI"
	// FailedToApproveReason means that the cluster refused an approval.
	FailedToApproveReason = "FailedToApprove"
	// WaitingForNodesReason means that nodes have not reported since the machines were started.
	WaitingForNodesReason = "WaitingForNodes"
	// WaitingForClusterOperatorsReason means that the nodes of a cluster of OpenShift are back, and ClusterOperators are not ready or have not
	// reported since the machines were started.
	WaitingForClusterOperatorsReason = "WaitingForClusterOperators"
	// APIUnreachableReason means that the cluster should run but its API server does not answer.
	APIUnreachableReason = "APIUnreachable"
)

// Reasons of the Unreachable condition.
const (
	// ClusterReachableReason means that the API server answers.
	ClusterReachableReason = "ClusterReachable"
	// ErrorConnectingToClusterReason means that the API server does not answer.
	ErrorConnectingToClusterReason = "ErrorConnectingToCluster"
	// ClusterAsleepReason means that the cluster hibernates or its machines stop, so it is not dialled.
	ClusterAsleepReason = "ClusterAsleep"
	// NotProbedReason means that Torpor has not tried.
	NotProbedReason = "NotProbed"
)

// Reasons of the Degraded condition; Stalled has those of Ready.
const (
	// MachinesMissingReason means that the cluster runs without machines, which the message names.
	MachinesMissingReason = "MachinesMissing"
	// NodesMissingReason means that the cluster runs without nodes, which the message names.
	NodesMissingReason = "NodesMissing"
	// ClusterOperatorsNotReadyReason means that the resume has waited long enough for ClusterOperators, which the message names. They are
	// looked at for ten minutes more.
	ClusterOperatorsNotReadyReason = "ClusterOperatorsNotReady"
	// AsExpectedReason means that nothing is missing, or nothing hangs, any more.
	AsExpectedReason = "AsExpected"
)

// Reasons of the HibernationPossible condition, beside the codes of findings.
const (
	// NothingFoundReason means that nothing was found that a hibernation, or the resume after it, may run into.
	NothingFoundReason = "NothingFound"
	// NotCheckedReason means that the cluster has not been looked at for that.
	NotCheckedReason = "NotChecked"
)

// Annotations and labels.
const (
	// AwaitAllMachinesAnnotation keeps a cluster that resumes from running without machines that do not start, when it parses as true.
	AwaitAllMachinesAnnotation = "torpor.dev/await-all-machines"
	// StopOrderAnnotation says in which order the machines of the cluster are stopped; without it all are stopped, and started, at once.
	StopOrderAnnotation = "torpor.dev/stop-order"
	// DrainBudgetAnnotation is for how long at most the workers are drained before machines are stopped, such as 10m, an hour at the most; without
	// it they are not.
	DrainBudgetAnnotation = "torpor.dev/drain-budget"
	// CordonedAnnotation marks nodes of a cluster that were cordoned for a drain, and are uncordoned at the resume.
	CordonedAnnotation = "torpor.dev/cordoned"
	// ResumeRequestedAtAnnotation is a time in RFC 3339: spec.hibernateAfter counts from it, and a cluster that sleeps by it since before then resumes.
	ResumeRequestedAtAnnotation = "torpor.dev/resume-requested-at"
	// ReconcilePauseAnnotation pauses every controller for this ClusterDeployment when it parses as true.
	ReconcilePauseAnnotation = "hive.openshift.io/reconcile-pause"
	// PowerStatePauseAnnotation pauses only hibernation when it parses as true.
	PowerStatePauseAnnotation = "hive.openshift.io/powerstate-pause"
	// PlatformLabel is the platform of the cluster, for people.
	PlatformLabel = "hive.openshift.io/cluster-platform"
	// RegionLabel is the region of the cluster, for people.
	RegionLabel = "hive.openshift.io/cluster-region"
	// TypeLabel is the type of the cluster, for people.
	TypeLabel = "hive.openshift.io/cluster-type"
	// VersionLabel is the OpenShift version of the cluster.
	VersionLabel = "hive.openshift.io/version"
	// VersionMajorMinorPatchLabel is the same without a suffix.
	VersionMajorMinorPatchLabel = "hive.openshift.io/version-major-minor-patch"
)

// StopWorkersFirst is the value of StopOrderAnnotation by which workers are stopped before the control plane, and started after it.
const StopWorkersFirst = "workers-first"

// HibernationRecord is the record of the last hibernation. It is written before the first machine is stopped and kept
// until the next hibernation, so that a restart of the manager at any moment loses nothing.
type HibernationRecord struct {
	// SleepStartedAt is when the hibernation began.
	SleepStartedAt metav1.Time `json:"sleepStartedAt"`
	// RequestedBy is who set spec.powerState, "unknown" with the field manager if no admission noted that, or "spec.hibernateAfter".
	// +optional
	RequestedBy string `json:"requestedBy,omitempty"`
	// PowerStateBefore is what spec.powerState said when spec.hibernateAfter was over; unset if spec.powerState asked for the hibernation.
	// Who has changed spec.powerState since wants the cluster to run.
	// +optional
	PowerStateBefore *PowerState `json:"powerStateBefore,omitempty"`
	// ResumeStartedAt is when the resume began; unset while the cluster should hibernate.
	// Node heartbeats and certificate requests from before are not trusted.
	// +optional
	ResumeStartedAt *metav1.Time `json:"resumeStartedAt,omitempty"`
	// AsleepAt is when every machine was seen stopped; unset if that never was.
	// Until nodes have had time to report, client certificates are approved only after that.
	// +optional
	AsleepAt *metav1.Time `json:"asleepAt,omitempty"`
	// Repair means that machines were switched off while the cluster should run, and are only started again.
	// No certificate is approved then.
	// +optional
	Repair bool `json:"repair,omitempty"`
	// ResumedAt is when the cluster was ready again.
	// +optional
	ResumedAt *metav1.Time `json:"resumedAt,omitempty"`
	// Nodes are the nodes that hibernated; only they may get certificates at the resume
	// (where the cluster serves OpenShift Machines, those decide instead).
	// +optional
	// +listType=atomic
	Nodes []RecordedNode `json:"nodes,omitempty"`
	// SpotMachines are machines that are terminated once every other one is stopped, by the cloud's ids: when the hibernation began, each
	// had an OpenShift Machine of a MachineSet, which is deleted at the resume so that a new one is made.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MaxLength=64
	SpotMachines []string `json:"spotMachines,omitempty"`
	// Drain is that of the workers before machines were stopped; unset if none was wanted.
	// +optional
	Drain *DrainRecord `json:"drain,omitempty"`
}

// DrainRecord is the record of a drain.
type DrainRecord struct {
	// EndedAt is when the drain was over; unset while it goes on. No machine is stopped before.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`
	// Left is what was not drained, and why; empty if everything was.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Left string `json:"left,omitempty"`
}

// HibernationCheck is what was found at a cluster, while it ran, that a hibernation or the resume after it may run into.
type HibernationCheck struct {
	// WakeBy is when the first certificate expires without which the cluster does not come back by itself: that of its API server, or of
	// the signer of its kubelets. Unset if neither could be read.
	// +optional
	WakeBy *metav1.Time `json:"wakeBy,omitempty"`
	// Findings are one for each code. Some matter only to long stops.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Findings []torporv1alpha1.StopFinding `json:"findings,omitempty"`
	// Unread are lists of the cluster that could not be read in time, or may not be; what an earlier look found there stands.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Unread []string `json:"unread,omitempty"`
}

// RecordedNode is a node as it was before the hibernation.
type RecordedNode struct {
	// Name of the Node.
	Name string `json:"name"`
	// UID of the Node.
	UID string `json:"uid"`
	// Ready is whether the node was ready; the resume does not wait for one that was not.
	// +optional
	Ready bool `json:"ready,omitempty"`
	// ClockSkewed is whether the node's clock was far from the hub's. Its times are no sign of life at the resume then: only that
	// they change is.
	// +optional
	ClockSkewed bool `json:"clockSkewed,omitempty"`
	// ControlPlane is whether the node carried the control-plane role.
	// +optional
	ControlPlane bool `json:"controlPlane,omitempty"`
	// Addresses of the node.
	// +optional
	// +listType=atomic
	Addresses []NodeAddress `json:"addresses,omitempty"`
}

// NodeAddress is one address of a node.
type NodeAddress struct {
	// Type is Hostname, InternalIP, ExternalIP, InternalDNS or ExternalDNS.
	Type string `json:"type"`
	// Address is a name or an IP address.
	Address string `json:"address"`
}
