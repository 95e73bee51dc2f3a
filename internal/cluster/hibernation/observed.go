// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"cmp"
	"slices"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// Observed is the complete input of Decide. The fields are in the order of observation. A field is left empty if an
// earlier field makes it irrelevant.
type Observed struct {
	// Now is the time of the hub.
	Now time.Time
	// Deleted, Paused and Installed are read from the object.
	Deleted, Paused, Installed bool
	// SpecPowerState is spec.powerState. It is Running instead if the requested stop has expired, and Hibernating if
	// a Slumber stops the cluster. DesiredPowerState follows from SpecPowerState and the timer. Empty means Running.
	SpecPowerState, DesiredPowerState hivev1.PowerState
	// Stops is the record of the stops that spec.powerState requested.
	Stops stoprecord.Records
	// Scheduled is the Slumber's stop that is in effect; nil if none exists.
	Scheduled *torporv1alpha1.ScheduledStop
	// Timer limits how long the cluster may run.
	Timer RunTimer
	// SyncAwaitedUntil is the latest time until which a hibernation waits for the first application of the cluster's
	// SyncSets. It is zero without such a wait.
	SyncAwaitedUntil time.Time
	// Options are the owner's options for a stop.
	Options StopOptions
	// RequestedBy is the requester, and RequestedAt is the time of the request. They are empty and zero if the API
	// server recorded neither.
	RequestedBy string
	RequestedAt time.Time
	// Invalid describes the missing or malformed fields of the spec, or the other ClusterDeployment that owns the
	// machines; empty if the spec is valid.
	Invalid string
	// NoActuator is the reason why Torpor cannot stop or start the machines; empty if an actuator handles the platform.
	NoActuator string
	// IsInfraDisabled is true if the owner of the machines has opted out of power management. In this case the cloud
	// is not called, and NoActuator contains the annotation's name.
	IsInfraDisabled bool
	// Incompatible is the reason why a cluster of this version cannot hibernate; empty if the version is supported.
	Incompatible string
	// HasNoVersion is true if the cluster is not an OpenShift cluster. The version check is skipped then.
	HasNoVersion bool
	// IsSurveyed is true if the cluster was surveyed for problems that may affect a hibernation. Obstacles describes
	// the blocking findings; empty if none exist.
	IsSurveyed bool
	Obstacles  string
	// Record is the record of the last hibernation or repair; nil if there was none.
	Record *hivev1.HibernationRecord

	// ObservationError is the error of observing the machines; nil if they were observed.
	ObservationError *ObservationError
	// Machines are the cluster's machines as the cloud lists them.
	Machines []actuator.Machine
	// Groups are the machines' groups and the recorded groups. Those of the cloud are read only if NeedsGroups is true.
	// CanChangeGroups is true if the platform's groups can be changed. HasReadClusterAPI and HasReadHealthChecks are
	// true if the Cluster of Cluster API and the MachineHealthChecks, which count as groups, were read. GroupsError
	// explains why one of these kinds could not be read.
	Groups                                 []actuator.Group
	CanChangeGroups                        bool
	HasReadClusterAPI, HasReadHealthChecks bool
	GroupsError                            string
	// Refusal is the refusal, by the cloud, the hub or the cluster, of the last change that is still wanted; nil if it
	// was not refused.
	Refusal *OrderRefusal
	// AwaitsAllMachines is true if the cluster must not count as running while a machine does not start.
	AwaitsAllMachines bool

	// SkipsOperators is true if a resume must not wait for ClusterOperators.
	SkipsOperators bool

	// API is the reachability of the cluster's API server; NotProbed if NeedsCluster is false.
	API APIState
	// APIMessage explains why the API server does not respond.
	APIMessage string
	// IsAPIProblemLasting is true if waiting does not solve the problem, unlike with a starting server.
	IsAPIProblemLasting bool
	// IsAPIForbidden is true if the API server responds, but has permanently forbidden a request of the last poll, for
	// example to list nodes.
	IsAPIForbidden bool
	// IsAPICostly is true if the last poll exceeded a budget, or failed after more than three seconds. The cluster is
	// probed less often then.
	IsAPICostly bool
	// Nodes are the cluster's nodes. They are known only if the API server is reachable.
	Nodes []ObservedNode
	// Replaceable are the OpenShift Machines that the cluster replaces when they are deleted. HasReadMachines is true
	// if they were read. Both are set only if NeedsMachines or NeedsCertificateRequests is true.
	Replaceable     []ReplaceableMachine
	HasReadMachines bool
	// ReplacementError is the error of the last attempt to delete Machines; empty without an error.
	// IsReplacementResting is true if that attempt was too recent to be repeated.
	ReplacementError     string
	IsReplacementResting bool
	// Pods are the Pods of the workers. They are set only if NeedsPods is true.
	Pods WorkerPods
	// CordonError is the error of the last attempt to change nodes or to evict Pods; empty without an error.
	// IsCordonResting is true if that attempt was too recent to be repeated.
	CordonError     string
	IsCordonResting bool
	// Operators are the ClusterOperators of an OpenShift cluster. OperatorsError explains why they could not be read.
	// Both are set only if NeedsOperators is true. WereOperatorsMissing is true if the last reported conditions list
	// ClusterOperators that are not ready.
	Operators            []ObservedOperator
	OperatorsError       string
	WereOperatorsMissing bool
	// Approvable are the sorted names of certificate requests that may be approved.
	Approvable []string
	// ApprovalError is the error of the last approval; empty if it did not fail.
	ApprovalError string
	// Blocked are the certificate requests that must not be approved, although a node may be waiting for them.
	Blocked []BlockedRequest
}

// BlockedRequest is a certificate request that was not approved.
type BlockedRequest struct {
	// NodeName is the node that the request is for; empty if the name was not read.
	NodeName string
	// Reason describes the expected and the found value.
	Reason string
}

// ObservationError is an error of an observation that is reported to the user.
type ObservationError struct {
	// Class determines the possible remedies.
	Class actuator.ErrorClass
	// Message is shown to users: it is stable and contains no secrets.
	Message string
}

// OrderRefusal is a refused change to machines or machine groups. It may concern only some of them.
type OrderRefusal struct {
	ObservationError
	// MachineIDs are the IDs of the machines, or the names of the groups, whose change was refused.
	MachineIDs []string
}

// APIState is the reachability of a cluster's API server.
type APIState string

// These are the states of an API server.
const (
	NotProbed   APIState = ""
	Reachable   APIState = "reachable"
	Unreachable APIState = "unreachable"
)

// ObservedNode is a node of the cluster as its API server returns it.
type ObservedNode struct {
	hivev1.RecordedNode
	// LastSeen is the newest renewal of the node's lease or heartbeat of its Ready condition, by the node's own clock.
	LastSeen time.Time
	// HasChanged is true if LastSeen has changed since the first observation of the resume. It is known only for
	// nodes with ClockSkewed set.
	HasChanged bool
	// Cordon describes whether pods can be scheduled on the node.
	Cordon NodeCordon
}

// NeedsCloud reports whether the machines must be observed, based on the object alone. They are observed even if the
// cluster cannot hibernate, because it may be off already.
func NeedsCloud(o Observed) bool {
	return !o.Deleted && !o.Paused && o.Installed && o.Invalid == "" && o.NoActuator == ""
}

// MayBeStopped reports whether the object alone requests and allows a stop of the machines.
func MayBeStopped(o Observed) bool {
	return NeedsCloud(o) && o.shouldHibernate() && !o.isRequestedHibernationUnsupported()
}

// MayAwaitFirstSync reports whether a hibernation may wait for the first application of SyncSets, because it would be
// the cluster's first hibernation.
func MayAwaitFirstSync(o Observed) bool { return MayBeStopped(o) && o.Record == nil }

// awaitsFirstSync reports whether a hibernation waits for the first sync. SyncSets cannot be applied to an
// unreachable cluster, and the wait is pointless if machines are off already.
func (o Observed) awaitsFirstSync() bool {
	return MayAwaitFirstSync(o) && o.API == Reachable && o.allMachinesAre(actuator.Running) && o.Now.Before(o.SyncAwaitedUntil)
}

// NeedsCluster reports whether the cluster must be dialled, given its machines. It is dialled to record its nodes
// before they stop, to follow a resume from the first running machine, and otherwise to report whether it responds.
// Once a hibernation has begun, the cluster is dialled only to drain its workers, to pause its MachineHealthChecks, and
// to find out whether a running spot machine may be terminated.
func NeedsCluster(o Observed) bool {
	switch {
	case o.Deleted, !o.Installed, o.Invalid != "":
		return false
	case o.IsInfraDisabled && !o.Paused:
		return true // Only the API server shows whether the cluster runs.
	case o.Paused, o.isRequestedHibernationUnsupported(), o.ObservationError != nil:
		return !o.isHibernationOpen() && !IsAsleep(o)
	case o.shouldHibernate():
		return !o.isHibernationOpen() && o.anyMachineIs(actuator.Running) || o.awaitsSpotRecord() || o.needsDrainLook() || o.needsPauseLook()
	default:
		return o.NoActuator != "" || o.anyMachineIs(actuator.Running)
	}
}

// WillNeedCluster reports whether the cluster must be dialled soon: it is resuming, and none of its machines runs
// yet.
func WillNeedCluster(o Observed) bool {
	return NeedsCloud(o) && o.ObservationError == nil && !o.shouldHibernate() && o.isResuming() && !o.anyMachineIs(actuator.Running)
}

// IsPowerSettled reports whether all machines are in the desired state, and no resume is in progress.
func IsPowerSettled(o Observed) bool {
	if o.shouldHibernate() {
		return o.isPoweredOff()
	}
	return o.allMachinesAre(actuator.Running) && !o.isResuming()
}

// IsAsleep reports whether the cluster should hibernate and all its machines are off.
func IsAsleep(o Observed) bool { return o.shouldHibernate() && o.isPoweredOff() }

// IsFollowed reports whether the cluster is resuming and some of its machines run.
func IsFollowed(o Observed) bool {
	return !o.shouldHibernate() && o.isResuming() && o.anyMachineIs(actuator.Running)
}

// IsInAftercare reports whether the last resume ended less than aftercareWindow ago.
func IsInAftercare(o Observed) bool { return o.isInAftercare() }

// NeedsNodes reports whether the cluster's nodes must be read. They are read while a hibernation begins, until the
// cluster has resumed, and in the aftercare.
func NeedsNodes(o Observed) bool {
	isManaged := !o.Paused && !o.IsInfraDisabled && !o.isRequestedHibernationUnsupported() && o.ObservationError == nil
	return isManaged && NeedsCluster(o) && (o.shouldHibernate() || o.hasNotResumed() || o.isInAftercare())
}

// MayBeSurveyed reports whether the cluster may be surveyed for problems that may affect a hibernation. The cluster
// must be dialled anyway, and no hibernation, resume, repair or aftercare may be in progress.
func MayBeSurveyed(o Observed) bool {
	return NeedsCluster(o) && !o.Paused && o.ObservationError == nil && !o.hasNotResumed() && !o.isInAftercare()
}

// UnsupportedReason returns the reason why the cluster cannot hibernate. It is empty if the cluster can hibernate, or
// if this is unknown. A running cluster's version is evaluated only after the cluster has responded.
func UnsupportedReason(o Observed) string {
	grouped := o.groupReason()
	switch {
	case !o.Installed:
		return ""
	case o.IsInfraDisabled:
		return o.NoActuator
	case o.isHibernationOpen():
		return grouped
	case o.Invalid != "" || o.NoActuator != "":
		return cmp.Or(o.Invalid, o.NoActuator)
	case grouped != "":
		return grouped
	case !o.hasNotResumed() && (o.shouldHibernate() || o.API == Reachable):
		return o.Incompatible
	default:
		return ""
	}
}

// NeedsCertificateRequests reports whether certificate requests must be evaluated. This is the case during a resume
// and for a while after it, because kubelets request serving certificates only once they are back.
func NeedsCertificateRequests(o Observed) bool {
	return NeedsNodes(o) && !o.shouldHibernate() && o.Now.Before(ApprovalsUntil(o.Record))
}

func (o Observed) shouldHibernate() bool { return o.DesiredPowerState == hivev1.PowerStateHibernating }

func (o Observed) isRequestedHibernationUnsupported() bool {
	// A changed version neither stops a hibernation nor prevents cancelling a resume.
	isIncompatible := o.Incompatible != "" && !o.hasNotResumed()
	return o.shouldHibernate() && (o.NoActuator != "" || isIncompatible || o.groupReason() != "")
}

// isHibernationOpen reports whether a hibernation is recorded and no resume has begun.
func (o Observed) isHibernationOpen() bool { return isHibernationOpen(o.Record) }

func isHibernationOpen(r *hivev1.HibernationRecord) bool {
	return r != nil && r.ResumeStartedAt == nil
}

// hasNotResumed reports whether a hibernation or repair is recorded and its resume has not ended.
func (o Observed) hasNotResumed() bool { return o.Record != nil && o.Record.ResumedAt == nil }

// isResuming reports whether a resume has begun and is not finished.
func (o Observed) isResuming() bool {
	return o.hasNotResumed() && !o.isHibernationOpen()
}

func (o Observed) isInAftercare() bool {
	return o.Record != nil && o.Record.ResumedAt != nil && o.Now.Sub(o.Record.ResumedAt.Time) < aftercareWindow
}

// awaitsNodeRecord reports whether a hibernation waits for the API server, to record the nodes. A cancelled resume
// keeps the nodes that it awaited.
func (o Observed) awaitsNodeRecord() bool {
	isKnown := o.isResuming() && len(o.Record.Nodes) > 0
	return o.shouldHibernate() && !o.isHibernationOpen() && o.API == Unreachable && !isKnown && o.Now.Sub(o.requestedAt()) < nodeRecordWindow
}

// needsResumeRecord reports whether a resume must be recorded. This is the case before hibernated machines are started,
// if machines stop late and undo a finished resume, and if machines are stopped and none runs. If one machine stops
// later while others run, it is started without a resume, so its certificate requests are not approved.
func (o Observed) needsResumeRecord() bool {
	if o.isInAftercare() {
		return len(o.missingMachines()) > 0
	}
	if o.isHibernationOpen() && o.hasScaledGroups() {
		return true
	}
	return o.anyMachineIs(actuator.Stopped) && (o.isHibernationOpen() || !o.isResuming() && !o.anyMachineIs(actuator.Running))
}

// awaitsMachines reports whether the cluster cannot count as running before more machines run.
func (o Observed) awaitsMachines() bool {
	switch {
	case o.NoActuator != "":
		return false
	case !o.anyMachineIs(actuator.Running):
		return true
	default:
		return o.hasNotResumed() && !o.allMachinesAre(actuator.Running) && !o.mayRunInPart()
	}
}

// mayRunInPart reports whether a resuming cluster counts as running although machines or nodes are missing. The API
// server must respond, and AwaitsAllMachines must not be set. It counts as running immediately if the cloud refuses to
// start all missing machines and no node is missing. Otherwise it counts as running after partialResumeAfter, if at
// least one awaited node is back. From then on, the cluster counts as running until its resume ends: machines that
// start late do not make it unready.
func (o Observed) mayRunInPart() bool {
	if o.AwaitsAllMachines || o.API != Reachable || !o.isResuming() {
		return false
	}
	missing := len(o.missingNodes())
	if missing == 0 && !o.awaitsReplacement() && !slices.ContainsFunc(o.missingMachines(), func(id string) bool { return !o.isRefused(id) }) {
		return true
	}
	isOver := o.Record.ReadyInPartAt != nil || o.Now.Sub(o.Record.ResumeStartedAt.Time) > partialResumeAfter
	return isOver && missing < len(o.awaitedNodes())
}

// awaitsNodes reports whether a resuming cluster cannot count as running before more of its nodes are back.
func (o Observed) awaitsNodes() bool {
	return o.hasNotResumed() && (len(o.missingNodes()) > 0 || o.awaitsReplacement()) && !o.mayRunInPart()
}

// missingMachines returns the machines that are missing in a cluster that should run. In a cluster that has resumed, a
// starting machine is new and not missing.
func (o Observed) missingMachines() []string {
	if o.hasNotResumed() {
		return o.machineIDs(actuator.Stopped, actuator.Stopping, actuator.Starting)
	}
	return o.machineIDs(actuator.Stopped, actuator.Stopping)
}

func (o Observed) isRefused(id string) bool {
	return o.Refusal != nil && slices.Contains(o.Refusal.MachineIDs, id)
}

func (o Observed) anyMachineIs(s actuator.MachineState) bool { return len(o.machineIDs(s)) > 0 }

func (o Observed) allMachinesAre(s actuator.MachineState) bool {
	// A cluster without machines is an error, never a state (docs/adr/0003-the-actuator-port.md).
	return len(o.Machines) > 0 && len(o.machineIDs(s)) == len(o.Machines)
}

// machinesToStop returns the running machines, and those that are off but still billed. Machines that are terminated
// later or by their group are excluded.
func (o Observed) machinesToStop() []string {
	var ids []string
	for _, m := range o.Machines {
		isOn := m.State == actuator.Running || m.State == actuator.Stopped && m.HoldsCapacity
		if isOn && !isTerminatedLast(m, o.Record) && !o.isTerminatedByGroup(m) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// isPoweredOff reports whether every machine is stopped, none is billed, and no group needs to be changed. Machines of
// groups that were scaled to zero no longer exist.
func (o Observed) isPoweredOff() bool {
	areAllOff := o.allMachinesAre(actuator.Stopped) || len(o.Machines) == 0 && o.hasScaledGroups()
	return areAllOff && len(o.machinesToStop()) == 0 && len(o.groupsToHold()) == 0 && !o.awaitsSettledGroups()
}

// machineIDs returns the ids of the machines in one of the given states, in the observed order.
func (o Observed) machineIDs(states ...actuator.MachineState) []string {
	var ids []string
	for _, m := range o.Machines {
		if slices.Contains(states, m.State) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}
