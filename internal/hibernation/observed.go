// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"cmp"
	"slices"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/stoprecord"
)

// Observed is everything that Decide looks at. The fields are in the order in which they are observed:
// what an earlier one makes irrelevant is left empty.
type Observed struct {
	// Now is the hub's time.
	Now time.Time
	// Deleted, Paused and Installed come from the object itself.
	Deleted, Paused, Installed bool
	// SpecPowerState is spec.powerState, or Running once that stop has ended by itself, or Hibernating while a Slumber stops it, and DesiredPowerState what follows from it and
	// the timer; empty means Running.
	SpecPowerState, DesiredPowerState hivev1.PowerState
	// Stops are the record of the stops that spec.powerState has asked for.
	Stops stoprecord.Records
	// Scheduled is the stop of a Slumber that holds; nil if none does.
	Scheduled *torporv1alpha1.ScheduledStop
	// Timer is how long the cluster may run.
	Timer RunTimer
	// SyncAwaitedUntil is until when at the latest a hibernation waits for the cluster's SyncSets to be applied for the first time; zero if
	// it does not.
	SyncAwaitedUntil time.Time
	// Options are how its owner wants the cluster to be stopped.
	Options StopOptions
	// RequestedBy is who asked, and RequestedAt when; empty and zero if the API server did not note it.
	RequestedBy string
	RequestedAt time.Time
	// Invalid says what the spec lacks; empty when it is complete.
	Invalid string
	// NoActuator says why no actuator handles the platform; empty when one does.
	NoActuator string
	// Incompatible says why the cluster's version cannot hibernate; empty when it can.
	Incompatible string
	// HasNoVersion says that the cluster is none of OpenShift, so that no version is asked of it.
	HasNoVersion bool
	// Record is the record of the last hibernation, nil if there was none.
	Record *hivev1.HibernationRecord

	// ObservationError says why the machines could not be observed; nil when they were.
	ObservationError *ObservationError
	// Machines are the cluster's machines at the cloud.
	Machines []actuator.Machine
	// Refusal is what the cloud said to the last order that is still wanted; nil unless it was refused.
	Refusal *OrderRefusal
	// AwaitsAllMachines says that the cluster is not to run without machines that do not start.
	AwaitsAllMachines bool

	// API is whether the cluster's API server answers; NotProbed where NeedsCluster is false.
	API APIState
	// APIMessage says why it does not.
	APIMessage string
	// IsAPIProblemLasting says that the server does not only start: time will not mend it.
	IsAPIProblemLasting bool
	// IsAPIForbidden says that it answers, and has refused for good to have its nodes read.
	IsAPIForbidden bool
	// IsAPICostly says that it used up what one look may cost, so that it is not looked at often.
	IsAPICostly bool
	// Nodes are the cluster's nodes; only with a reachable API.
	Nodes []ObservedNode
	// Replaceable are the cluster's OpenShift Machines of which it makes new ones once they are deleted, and HasReadMachines says that
	// they were read; only where NeedsMachines is true.
	Replaceable     []ReplaceableMachine
	HasReadMachines bool
	// ReplacementError says why Machines were not deleted when that was tried last, and IsReplacementResting that this was a moment ago;
	// empty if they were.
	ReplacementError     string
	IsReplacementResting bool
	// Pods are those of the workers; only where NeedsPods is true.
	Pods WorkerPods
	// CordonError says why nodes could not be uncordoned when that was tried last, and IsCordonResting that this was a moment ago; empty if they
	// were.
	CordonError     string
	IsCordonResting bool
	// Operators are the ClusterOperators of a cluster of OpenShift, and OperatorsError says why they could not be read; only where
	// NeedsOperators is true. WereOperatorsMissing says that the report before named some.
	Operators            []ObservedOperator
	OperatorsError       string
	WereOperatorsMissing bool
	// Approvable are the names of certificate requests that the judge would approve, sorted.
	Approvable []string
	// ApprovalError says why an approval that was handed in was not made; empty if none failed.
	ApprovalError string
	// Blocked are the certificate requests that the judge left although they may be what a node waits for.
	Blocked []BlockedRequest
}

// BlockedRequest is a certificate request that was not approved.
type BlockedRequest struct {
	// NodeName is the node that the request names; empty if that was not read.
	NodeName string
	// Reason says what was expected and found.
	Reason string
}

// ObservationError is an error of observing that the user has to see.
type ObservationError struct {
	// Class decides what can be done about it.
	Class actuator.ErrorClass
	// Message is for people: stable, without secrets.
	Message string
}

// OrderRefusal is an order to stop or to start machines that was refused, for all of them or for some.
type OrderRefusal struct {
	ObservationError
	// MachineIDs are the machines that it was refused for.
	MachineIDs []string
}

// APIState is whether the cluster's API server answers.
type APIState string

// What is known of an API server.
const (
	NotProbed   APIState = ""
	Reachable   APIState = "reachable"
	Unreachable APIState = "unreachable"
)

// ObservedNode is a node of the cluster as its API server shows it.
type ObservedNode struct {
	hivev1.RecordedNode
	// LastSeen is the newest sign of life by the node's own clock: its lease's renewal or its Ready heartbeat.
	LastSeen time.Time
	// HasChanged is whether LastSeen has changed since the first look of the resume; known only of nodes whose ClockSkewed is set.
	HasChanged bool
	// Cordon is whether the node takes pods.
	Cordon NodeCordon
}

// NeedsCloud reports whether the machines have to be observed, given what the object alone says: also those of a cluster that cannot
// hibernate, because it may be off already.
func NeedsCloud(o Observed) bool {
	return !o.Deleted && !o.Paused && o.Installed && o.Invalid == "" && o.NoActuator == ""
}

// MayBeStopped reports whether the object alone lets the machines be stopped.
func MayBeStopped(o Observed) bool {
	return NeedsCloud(o) && o.shouldHibernate() && !o.isRequestedHibernationUnsupported()
}

// MayAwaitFirstSync reports whether it matters if the cluster's SyncSets have been applied: it is to hibernate and never has.
func MayAwaitFirstSync(o Observed) bool { return MayBeStopped(o) && o.Record == nil }

// awaitsFirstSync reports whether a hibernation waits for the first sync. Nothing can be applied to a cluster that does not answer, and
// nothing is to be waited for where machines are off already.
func (o Observed) awaitsFirstSync() bool {
	return MayAwaitFirstSync(o) && o.API == Reachable && o.allMachinesAre(actuator.Running) && o.Now.Before(o.SyncAwaitedUntil)
}

// NeedsCluster reports whether the cluster has to be dialled, given its machines: to record its nodes before they stop, to follow it from
// the first machine that runs, and to say whether it answers while nothing else is known. A cluster that hibernates is never dialled, unless
// it has to say what is to become of a spot machine that runs.
func NeedsCluster(o Observed) bool {
	switch {
	case o.Deleted, !o.Installed, o.Invalid != "":
		return false
	case o.Paused, o.isRequestedHibernationUnsupported(), o.ObservationError != nil:
		return !o.isHibernationOpen() && !IsAsleep(o)
	case o.shouldHibernate():
		return !o.isHibernationOpen() && o.anyMachineIs(actuator.Running) || o.awaitsSpotRecord() || o.needsDrainLook()
	default:
		return o.NoActuator != "" || o.anyMachineIs(actuator.Running)
	}
}

// WillNeedCluster reports whether the cluster has to be dialled soon: it resumes, and none of its machines runs yet.
func WillNeedCluster(o Observed) bool {
	return NeedsCloud(o) && o.ObservationError == nil && !o.shouldHibernate() && o.isResuming() && !o.anyMachineIs(actuator.Running)
}

// IsPowerSettled reports whether all machines are as the cluster should be.
func IsPowerSettled(o Observed) bool {
	if o.shouldHibernate() {
		return o.isPoweredOff()
	}
	return o.allMachinesAre(actuator.Running) && !o.isResuming()
}

// IsAsleep reports whether the cluster should hibernate and does.
func IsAsleep(o Observed) bool { return o.shouldHibernate() && o.isPoweredOff() }

// IsFollowed reports whether the cluster resumes and some of its machines run.
func IsFollowed(o Observed) bool {
	return !o.shouldHibernate() && o.isResuming() && o.anyMachineIs(actuator.Running)
}

// IsInAftercare reports whether the cluster was resumed a short while ago.
func IsInAftercare(o Observed) bool { return o.isInAftercare() }

// NeedsNodes reports whether the cluster's nodes matter: to record them, and until they are back after a hibernation.
func NeedsNodes(o Observed) bool {
	isManaged := !o.Paused && !o.isRequestedHibernationUnsupported() && o.ObservationError == nil
	return isManaged && NeedsCluster(o) && (o.shouldHibernate() || o.hasNotResumed() || o.isInAftercare())
}

// MayBeSurveyed reports whether the cluster may be looked at for what a hibernation may run into: nothing is under way at it, or it is about
// to be stopped.
func MayBeSurveyed(o Observed) bool {
	return NeedsCluster(o) && !o.Paused && o.ObservationError == nil && !o.hasNotResumed() && !o.isInAftercare()
}

// UnsupportedReason says why the cluster cannot hibernate; empty if it can, or if that is not known. The version of one that runs is not
// asked for before it has answered.
func UnsupportedReason(o Observed) string {
	switch {
	case !o.Installed || o.isHibernationOpen():
		return ""
	case o.Invalid != "" || o.NoActuator != "":
		return cmp.Or(o.Invalid, o.NoActuator)
	case !o.hasNotResumed() && (o.shouldHibernate() || o.API == Reachable):
		return o.Incompatible
	default:
		return ""
	}
}

// NeedsCertificateRequests reports whether certificate requests have to be judged: while a cluster resumes and for a while after,
// because kubelets ask for serving certificates only once they are back.
func NeedsCertificateRequests(o Observed) bool {
	return NeedsNodes(o) && !o.shouldHibernate() && o.Now.Before(ApprovalsUntil(o.Record))
}

func (o Observed) shouldHibernate() bool { return o.DesiredPowerState == hivev1.PowerStateHibernating }

func (o Observed) isRequestedHibernationUnsupported() bool {
	// A cluster that hibernates already goes on, whatever became of its version, and so does one whose resume is cancelled.
	return o.shouldHibernate() && (o.NoActuator != "" || o.Incompatible != "" && !o.hasNotResumed())
}

// isHibernationOpen reports whether the cluster was put into hibernation and not resumed since.
func (o Observed) isHibernationOpen() bool { return isHibernationOpen(o.Record) }

func isHibernationOpen(r *hivev1.HibernationRecord) bool {
	return r != nil && r.ResumeStartedAt == nil
}

// hasNotResumed reports whether the cluster was put into hibernation and has not been ready since.
func (o Observed) hasNotResumed() bool { return o.Record != nil && o.Record.ResumedAt == nil }

// isResuming reports whether a resume was begun and is not finished.
func (o Observed) isResuming() bool {
	return o.hasNotResumed() && !o.isHibernationOpen()
}

func (o Observed) isInAftercare() bool {
	return o.Record != nil && o.Record.ResumedAt != nil && o.Now.Sub(o.Record.ResumedAt.Time) < aftercareWindow
}

// awaitsNodeRecord reports whether the nodes of today are not known while the API server may still answer. A resume that is
// cancelled leaves those that it awaited.
func (o Observed) awaitsNodeRecord() bool {
	isKnown := o.isResuming() && len(o.Record.Nodes) > 0
	return o.shouldHibernate() && !o.isHibernationOpen() && o.API == Unreachable && !isKnown && o.Now.Sub(o.requestedAt()) < nodeRecordWindow
}

// needsResumeRecord reports whether machines are to be started that hibernated, stop late so that their resume is not over after
// all, or were all switched off. One that stops later beside others that run is started without: nobody gets certificates for that.
func (o Observed) needsResumeRecord() bool {
	if o.isInAftercare() {
		return len(o.missingMachines()) > 0
	}
	return o.anyMachineIs(actuator.Stopped) && (o.isHibernationOpen() || !o.isResuming() && !o.anyMachineIs(actuator.Running))
}

// awaitsMachines reports whether the cluster does not run before more machines do.
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

// mayRunInPart reports whether a resuming cluster runs although machines or nodes are missing: at once if only machines are that the
// cloud refuses and no node waits for, and otherwise after a while with those that are back.
func (o Observed) mayRunInPart() bool {
	if o.AwaitsAllMachines || o.API != Reachable || !o.isResuming() {
		return false
	}
	missing := len(o.missingNodes())
	if missing == 0 && !o.awaitsReplacement() && !slices.ContainsFunc(o.missingMachines(), func(id string) bool { return !o.isRefused(id) }) {
		return true
	}
	return o.Now.Sub(o.Record.ResumeStartedAt.Time) > partialResumeAfter && missing < len(o.awaitedNodes())
}

// awaitsNodes reports whether a resuming cluster does not run before more of its nodes do.
func (o Observed) awaitsNodes() bool {
	return o.hasNotResumed() && (len(o.missingNodes()) > 0 || o.awaitsReplacement()) && !o.mayRunInPart()
}

// missingMachines are those that a cluster which should run does without. Beside a cluster that has resumed, one that starts is new.
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
	// No machine at all is an error of its own and never a state (docs/adr/0003-the-actuator-port.md).
	return len(o.Machines) > 0 && len(o.machineIDs(s)) == len(o.Machines)
}

// machinesToStop are those that run, and those that are off and paid for all the same, but for those that are terminated later.
func (o Observed) machinesToStop() []string {
	var ids []string
	for _, m := range o.Machines {
		isOn := m.State == actuator.Running || m.State == actuator.Stopped && m.HoldsCapacity
		if isOn && !isTerminatedLast(m, o.Record) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// isPoweredOff reports whether every machine is stopped and none is paid for.
func (o Observed) isPoweredOff() bool {
	return o.allMachinesAre(actuator.Stopped) && len(o.machinesToStop()) == 0
}

// machineIDs returns the ids of the machines in one of the states, in the order observed.
func (o Observed) machineIDs(states ...actuator.MachineState) []string {
	var ids []string
	for _, m := range o.Machines {
		if slices.Contains(states, m.State) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}
