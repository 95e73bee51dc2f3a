// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// These are the condition types of a ClusterDeployment that Torpor owns.
const (
	// ClusterHibernatingCondition is True from the beginning of a hibernation until the cluster is ready again. It is
	// False while the cluster runs, or if a requested hibernation is unsupported or refused.
	ClusterHibernatingCondition = "Hibernating"
	// ClusterReadyCondition is True while the cluster runs and its API server answers. During a resume it becomes True
	// once all awaited nodes are ready. If nodes are still missing ten minutes after the resume began, one ready node
	// is enough, unless torpor.dev/await-all-machines is set.
	ClusterReadyCondition = "Ready"
	// ClusterUnreachableCondition is True while controllers must not connect to the cluster.
	ClusterUnreachableCondition = "Unreachable"
	// ClusterDegradedCondition is True while the cluster runs without some of its machines, nodes or ClusterOperators,
	// or with machine groups that may still be suspended. It is absent until the cluster is degraded for the first
	// time.
	ClusterDegradedCondition = "Degraded"
	// ClusterStalledCondition is True while a hibernation or a resume is unfinished after 15 minutes, or the stop of
	// machines is permanently refused. It is absent until that happens for the first time.
	ClusterStalledCondition = "Stalled"
	// ClusterHibernationPossibleCondition is False while a known problem would make a hibernation, or the resume after
	// it, fail. The condition blocks a hibernation only if the annotation torpor.dev/require or the manager's flag
	// --require-hibernation-possible requires it. Its reason is the code of the most severe finding. While the
	// condition is True, no finding is blocking.
	ClusterHibernationPossibleCondition = "HibernationPossible"
)

// These are the reasons of the Hibernating condition when it is True or False.
const (
	// ResumingHibernationReason means that the machines are being started, or run in a cluster that is not ready yet.
	ResumingHibernationReason = "Resuming"
	// RunningHibernationReason means that the cluster runs, or hive.openshift.io/infra-disabled is set.
	RunningHibernationReason = "Running"
	// StoppingHibernationReason means that a hibernation has begun, and not every machine is stopped yet.
	StoppingHibernationReason = "Stopping"
	// HibernatingHibernationReason means that every machine is stopped.
	HibernatingHibernationReason = "Hibernating"
	// SyncSetsNotAppliedReason means that the hibernation waits for the first application of SyncSets, until ten
	// minutes after the installation.
	SyncSetsNotAppliedReason = "SyncSetsNotApplied"
	// UnsupportedHibernationReason means that a hibernation is requested, but the version, the platform, a machine
	// group or an annotation does not allow it.
	UnsupportedHibernationReason = "Unsupported"
	// RefusedHibernationReason means that a hibernation is refused, because the annotation torpor.dev/require or the
	// manager's flag --require-hibernation-possible requires HibernationPossible, which is not True. No machine is
	// stopped.
	RefusedHibernationReason = "HibernationRefused"
)

// These are reasons that Hive uses. Torpor reports them with the manager's flag --hive-reasons.
const (
	// ResumingOrRunningHibernationReason means that the cluster runs, or is being resumed after a hibernation. The
	// condition Ready has the details.
	ResumingOrRunningHibernationReason = "ResumingOrRunning"
	// StoppingOrHibernatingReason means that the cluster hibernates, or its machines are being stopped. The condition
	// Hibernating has the details.
	StoppingOrHibernatingReason = "StoppingOrHibernating"
)

// These are the reasons of Hibernating and Ready when they are Unknown. They explain why the state of the machines is
// unknown.
const (
	// DeletedReason means that the ClusterDeployment is being deleted.
	DeletedReason = "ClusterDeploymentDeleted"
	// PausedReason means that an annotation pauses stops and starts of the machines.
	PausedReason = "PowerStatePaused"
	// NotInstalledReason means that the cluster is not installed yet.
	NotInstalledReason = "NotInstalled"
	// InvalidSpecReason means that a field of the spec is missing or invalid, torpor.dev/resume-requested-at is
	// invalid, or an older ClusterDeployment has the same machines.
	InvalidSpecReason = "InvalidSpec"
	// NoMachinesFoundReason means that the cloud lists no machine of the cluster.
	NoMachinesFoundReason = "NoMachinesFound"
	// CredentialsMissingReason means that the Secret with the cloud credentials, or a key in it, is missing.
	CredentialsMissingReason = "CredentialsMissing"
	// CredentialsInvalidReason means that the cloud rejects the credentials.
	CredentialsInvalidReason = "CredentialsInvalid"
	// PermissionDeniedReason means that the cloud accepts the credentials but denies the call.
	PermissionDeniedReason = "PermissionDenied"
	// CloudUnreachableReason means that the cloud does not answer.
	CloudUnreachableReason = "CloudUnreachable"
	// CloudThrottledReason means that the cloud limits the rate of calls.
	CloudThrottledReason = "CloudThrottled"
	// CloudErrorReason means that another error prevents the listing of the machines.
	CloudErrorReason = "CloudError"
)

// These are the reasons of the Ready condition when it is False, in addition to those of the Hibernating condition.
const (
	// RecordingNodesReason means that the stop of the machines waits at most 30 seconds for the API server, to record
	// the nodes.
	RecordingNodesReason = "RecordingNodes"
	// DrainingWorkersReason means that Pods are being evicted from the workers before machines are stopped.
	DrainingWorkersReason = "DrainingWorkers"
	// StoppingMachinesReason means that machines are being stopped, or machine groups are being paused or scaled to
	// zero first.
	StoppingMachinesReason = "StoppingMachines"
	// WaitingForMachinesToStopReason means that machines are not stopped two minutes after the stop began.
	WaitingForMachinesToStopReason = "WaitingForMachinesToStop"
	// TerminatingSpotMachinesReason means that every other machine is stopped, and spot machines are being terminated.
	// The cluster creates new machines during the resume.
	TerminatingSpotMachinesReason = "TerminatingSpotMachines"
	// FailedToStopReason means that a stop or termination of machines, or a change to a machine group, was rejected.
	FailedToStopReason = "FailedToStop"
	// StartingMachinesReason means that machines are being started.
	StartingMachinesReason = "StartingMachines"
	// WaitingForMachinesReason means that machines do not run two minutes after the resume began, or machine groups are
	// not restored.
	WaitingForMachinesReason = "WaitingForMachines"
	// FailedToStartMachinesReason means that the cloud rejected the start of a machine.
	FailedToStartMachinesReason = "FailedToStartMachines"
	// WaitingForAPIReason means that the machines run, and the API server does not answer yet.
	WaitingForAPIReason = "WaitingForAPI"
	// FailedToApproveReason means that certificate requests could not be approved.
	FailedToApproveReason = "FailedToApprove"
	// WaitingForNodesReason means that nodes have not reported since the resume began, are not ready or are still
	// cordoned, or Machines of terminated spot machines are not deleted yet.
	WaitingForNodesReason = "WaitingForNodes"
	// WaitingForClusterOperatorsReason means that the nodes of an OpenShift cluster are ready, and ClusterOperators are
	// not ready or have not reported since the resume began.
	WaitingForClusterOperatorsReason = "WaitingForClusterOperators"
	// APIUnreachableReason means that the cluster is neither stopped nor resuming, but its API server does not answer.
	APIUnreachableReason = "APIUnreachable"
)

// These are the reasons of the Unreachable condition.
const (
	// ClusterReachableReason means that the API server answers.
	ClusterReachableReason = "ClusterReachable"
	// ErrorConnectingToClusterReason means that the API server does not answer.
	ErrorConnectingToClusterReason = "ErrorConnectingToCluster"
	// ClusterAsleepReason means that the cluster hibernates, is being stopped, or is resuming and not reachable yet.
	// Controllers do not connect to the cluster.
	ClusterAsleepReason = "ClusterAsleep"
	// NotProbedReason means that Torpor has not tried to connect.
	NotProbedReason = "NotProbed"
)

// These are the reasons of the Degraded condition. While the condition Stalled is True, its reason is that of Ready.
const (
	// MachinesMissingReason means that the message lists machines not running, machine groups not restored, or Machines
	// not replaced.
	MachinesMissingReason = "MachinesMissing"
	// MachineGroupsUnconfirmedReason means that the cluster runs, but machine groups may still be suspended, paused or
	// scaled to zero. Their settings before the hibernation are not recorded, so a user must restore them.
	MachineGroupsUnconfirmedReason = "MachineGroupsUnconfirmed"
	// NodesMissingReason means that the cluster runs without the nodes that the message lists.
	NodesMissingReason = "NodesMissing"
	// ClusterOperatorsNotReadyReason means that the cluster runs, but the ClusterOperators in the message are not
	// ready. Torpor polls them until ten minutes after the resume.
	ClusterOperatorsNotReadyReason = "ClusterOperatorsNotReady"
	// AsExpectedReason means that Degraded or Stalled is False.
	AsExpectedReason = "AsExpected"
)

// These are the reasons of the HibernationPossible condition, in addition to the codes of findings.
const (
	// NothingFoundReason means that the checks found no problem.
	NothingFoundReason = "NothingFound"
	// NotCheckedReason means that the checks have not run yet.
	NotCheckedReason = "NotChecked"
)

// These are the annotations and labels of a ClusterDeployment.
const (
	// AwaitAllMachinesAnnotation makes a resume wait for every machine if it parses as true. Without the annotation, a
	// resume continues without machines that do not start.
	AwaitAllMachinesAnnotation = "torpor.dev/await-all-machines"
	// StopOrderAnnotation defines the order in which the machines of the cluster are stopped. Without it, all machines
	// are stopped together, and started together.
	StopOrderAnnotation = "torpor.dev/stop-order"
	// DrainBudgetAnnotation limits how long the workers are drained before machines are stopped: a duration such as
	// 10m, at most 1h. Without the annotation, workers are not drained.
	DrainBudgetAnnotation = "torpor.dev/drain-budget"
	// RequireAnnotation lets Torpor refuse a hibernation while the condition HibernationPossible is False. Its only
	// value is HibernationPossible. A hibernation that has begun is not refused. With this annotation, the condition is
	// also False if the cluster might not resume, or might lose data.
	RequireAnnotation = "torpor.dev/require"
	// MachineGroupsAnnotation defines how Torpor prevents machine groups, such as EC2 Auto Scaling groups and Clusters
	// of Cluster API, from replacing stopped machines. Without the annotation, a cluster with running members of such a
	// group is not stopped.
	MachineGroupsAnnotation = "torpor.dev/machine-groups"
	// CordonedAnnotation marks the nodes that Torpor cordoned for a drain. The resume uncordons these nodes.
	CordonedAnnotation = "torpor.dev/cordoned"
	// ResumeRequestedAtAnnotation is the time at which a user requested a resume (RFC 3339). It ends a hibernation that
	// began earlier because of spec.hibernateAfter. The running time for spec.hibernateAfter restarts at this time.
	ResumeRequestedAtAnnotation = "torpor.dev/resume-requested-at"
	// ReconcilePauseAnnotation pauses every controller for this ClusterDeployment while it parses as true.
	ReconcilePauseAnnotation = "hive.openshift.io/reconcile-pause"
	// PowerStatePauseAnnotation pauses stops and starts of the cluster's machines while it parses as true.
	PowerStatePauseAnnotation = "hive.openshift.io/powerstate-pause"
	// InfraDisabledAnnotation disables calls to the cloud of the cluster while it parses as true: no machine is listed,
	// started or stopped.
	InfraDisabledAnnotation = "hive.openshift.io/infra-disabled"
	// ResumeSkipsClusterOperatorsLabel lets a resume finish without waiting for ClusterOperators if it parses as true.
	// It is a label of Hive; an annotation with this key has the same effect.
	ResumeSkipsClusterOperatorsLabel = "hive.openshift.io/resume-skips-cluster-operators"
	// PlatformLabel is the platform of the cluster. It is informational.
	PlatformLabel = "hive.openshift.io/cluster-platform"
	// RegionLabel is the region of the cluster. It is informational.
	RegionLabel = "hive.openshift.io/cluster-region"
	// TypeLabel is the type of the cluster. It is informational.
	TypeLabel = "hive.openshift.io/cluster-type"
	// VersionLabel is the OpenShift version of the cluster.
	VersionLabel = "hive.openshift.io/version"
	// VersionMajorMinorPatchLabel is the OpenShift version of the cluster without a pre-release suffix.
	VersionMajorMinorPatchLabel = "hive.openshift.io/version-major-minor-patch"
)

// RequireHibernationPossible is the value of RequireAnnotation.
const RequireHibernationPossible = ClusterHibernationPossibleCondition

// These are the values of MachineGroupsAnnotation.
const (
	// MachineGroupsSuspend suspends the groups of the cloud, and pauses Clusters and MachineHealthChecks, while the
	// machines are stopped. The groups terminate no machine.
	MachineGroupsSuspend = "suspend"
	// MachineGroupsScaleToZero sets the size of the groups to zero, which terminates their machines and loses data on
	// their disks. The resume restores the former size.
	MachineGroupsScaleToZero = "scale-to-zero"
)

// StopWorkersFirst is the value of StopOrderAnnotation that stops workers before the control plane, and starts them after it.
const StopWorkersFirst = "workers-first"

// HibernationRecord records the last hibernation. Torpor writes the record before it stops the first machine, and keeps
// it until the next hibernation. The manager can therefore be restarted at any time.
type HibernationRecord struct {
	// SleepStartedAt is the time at which the hibernation began.
	SleepStartedAt metav1.Time `json:"sleepStartedAt"`
	// RequestedBy is the user who set spec.powerState, the Slumber, or "spec.hibernateAfter". If admission did not see
	// the user's request, it is "unknown", followed by the field manager.
	// +optional
	RequestedBy string `json:"requestedBy,omitempty"`
	// PowerStateBefore is the value of spec.powerState at the time at which spec.hibernateAfter expired. A later change
	// of spec.powerState, except to Hibernating, requests a resume. Unset means that spec.powerState or a Slumber
	// requested the hibernation.
	// +optional
	PowerStateBefore *PowerState `json:"powerStateBefore,omitempty"`
	// ResumeStartedAt is the time at which the resume began. Unset until then. Node heartbeats and certificate requests
	// from before this time are ignored.
	// +optional
	ResumeStartedAt *metav1.Time `json:"resumeStartedAt,omitempty"`
	// AsleepAt is the time at which Torpor observed that every machine was stopped. If it is unset, the resume approves
	// client certificates only after the nodes have had time to report.
	// +optional
	AsleepAt *metav1.Time `json:"asleepAt,omitempty"`
	// Repair is true if all machines were switched off while the cluster should run. Torpor starts these machines
	// again, and approves no certificate request.
	// +optional
	Repair bool `json:"repair,omitempty"`
	// ResumedAt is the time at which the cluster was ready again with all machines and awaited nodes.
	// +optional
	ResumedAt *metav1.Time `json:"resumedAt,omitempty"`
	// Nodes are the nodes of the hibernated cluster. The resume approves only their certificate requests. If the
	// cluster serves OpenShift Machines, requests are compared with the Machines instead.
	// +optional
	// +listType=atomic
	Nodes []RecordedNode `json:"nodes,omitempty"`
	// SpotMachines are the cloud's ids of spot machines that are terminated once every other machine is stopped. The
	// resume deletes their OpenShift Machines, so that the MachineSets create new Machines.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MaxLength=64
	SpotMachines []string `json:"spotMachines,omitempty"`
	// BrokenOperators are the ClusterOperators that were degraded or not available when the hibernation began. The
	// resume does not wait for these ClusterOperators.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	BrokenOperators []string `json:"brokenOperators,omitempty"`
	// ReadyInPartAt is the time at which the cluster became ready although some of its machines or nodes were missing.
	// Machines and nodes that start later do not make the cluster unready.
	// +optional
	ReadyInPartAt *metav1.Time `json:"readyInPartAt,omitempty"`
	// Drain records the drain of the workers. Unset if no drain was requested.
	// +optional
	Drain *DrainRecord `json:"drain,omitempty"`
	// MachineGroups holds the settings, before the hibernation, of the machine groups that the hibernation changes:
	// groups of the cloud, Clusters of Cluster API on the hub, and MachineHealthChecks of the cluster. An entry is
	// removed once its settings are restored.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	MachineGroups []MachineGroupRecord `json:"machineGroups,omitempty"`
}

// MachineGroupRecord records the settings of a machine group before a hibernation.
type MachineGroupRecord struct {
	// Name is the cloud's name of the group, or the kind and the name of the object that is paused, such as
	// Cluster.cluster.x-k8s.io/example.
	// +kubebuilder:validation:MaxLength=360
	Name string `json:"name"`
	// Mode is the way in which the group is prevented from replacing machines: suspend or scale-to-zero.
	// +kubebuilder:validation:Enum=suspend;scale-to-zero
	Mode string `json:"mode"`
	// Suspended are the processes of the group that were suspended before the hibernation. A resume leaves them suspended.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=64
	Suspended []string `json:"suspended,omitempty"`
	// MinSize is the group's minimum number of machines before the hibernation. It is set with scale-to-zero only.
	// +optional
	MinSize int32 `json:"minSize,omitempty"`
	// DesiredSize is the group's desired number of machines before the hibernation. It is set with scale-to-zero only.
	// +optional
	DesiredSize int32 `json:"desiredSize,omitempty"`
	// HeldAt is the time at which a MachineHealthCheck of the cluster was observed to be paused. While the API server
	// answers, no machine is stopped before this time.
	// +optional
	HeldAt *metav1.Time `json:"heldAt,omitempty"`
	// RestoredAt is the time at which Torpor observed the former size of the group again. After this time, the group
	// launches its machines, and Torpor does not revert changes to its size.
	// +optional
	RestoredAt *metav1.Time `json:"restoredAt,omitempty"`
}

// DrainRecord records a drain.
type DrainRecord struct {
	// EndedAt is the time at which the drain ended. Unset while the drain is in progress. No machine is stopped before
	// the drain ends.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`
	// Left lists the nodes and Pods that were not drained, and the reason. Empty after the drain means that all were
	// drained.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Left string `json:"left,omitempty"`
}

// HibernationCheck holds problems, found in a running cluster, that may affect a hibernation or the resume after it.
type HibernationCheck struct {
	// WakeBy is the time at which the certificate of the API server or of the kubelets' signer expires, whichever is
	// earlier. After this time, a resume needs manual steps. Unset if neither certificate could be read.
	// +optional
	WakeBy *metav1.Time `json:"wakeBy,omitempty"`
	// Findings holds at most one finding for each code. Some findings apply only to long stops.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Findings []torporv1alpha1.StopFinding `json:"findings,omitempty"`
	// Unread lists the resources of the cluster that could not be listed, for lack of time or permission. Their
	// findings from an earlier check are kept.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Unread []string `json:"unread,omitempty"`
}

// RecordedNode describes a node before the hibernation.
type RecordedNode struct {
	// Name is the name of the Node.
	Name string `json:"name"`
	// UID is the UID of the Node.
	UID string `json:"uid"`
	// Ready is true if the node was ready. The resume waits only for nodes that were ready.
	// +optional
	Ready bool `json:"ready,omitempty"`
	// ClockSkewed is true if the node's clock was far ahead of the hub's, or far behind. During the resume, a heartbeat
	// of the node counts only if it has changed.
	// +optional
	ClockSkewed bool `json:"clockSkewed,omitempty"`
	// ControlPlane is true if the node had the control-plane role.
	// +optional
	ControlPlane bool `json:"controlPlane,omitempty"`
	// Addresses are the addresses of the node.
	// +optional
	// +listType=atomic
	Addresses []NodeAddress `json:"addresses,omitempty"`
}

// NodeAddress is an address of a node.
type NodeAddress struct {
	// Type is Hostname, InternalIP, ExternalIP, InternalDNS or ExternalDNS.
	Type string `json:"type"`
	// Address is a name or an IP address.
	Address string `json:"address"`
}
