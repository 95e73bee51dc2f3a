// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"slices"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// Observed is everything that Decide looks at. The fields are in the order in which they are observed:
// what an earlier one makes irrelevant is left empty.
type Observed struct {
	// Now is the hub's time.
	Now time.Time
	// Deleted, Paused and Installed come from the object itself.
	Deleted, Paused, Installed bool
	// DesiredPowerState is spec.powerState; empty means Running.
	DesiredPowerState hivev1.PowerState
	// RequestedBy is who asked, and RequestedAt when; empty and zero if the API server did not note it.
	RequestedBy string
	RequestedAt time.Time
	// Invalid says what the spec lacks; empty when it is complete.
	Invalid string
	// NoActuator says why no actuator handles the platform; empty when one does.
	NoActuator string
	// Incompatible says why the cluster's version cannot hibernate; empty when it can.
	Incompatible string
	// Record is the record of the last hibernation, nil if there was none.
	Record *hivev1.HibernationRecord

	// ObservationError says why the machines could not be observed; nil when they were.
	ObservationError *ObservationError
	// Machines are the cluster's machines at the cloud.
	Machines []actuator.Machine

	// API is whether the cluster's API server answers; NotProbed where NeedsCluster is false.
	API APIState
	// APIMessage says why it does not.
	APIMessage string
	// IsAPIProblemLasting says that the server does not only start: time will not mend it.
	IsAPIProblemLasting bool
	// IsAPICostly says that it used up what one look may cost, so that it is not looked at often.
	IsAPICostly bool
	// Nodes are the cluster's nodes; only with a reachable API.
	Nodes []ObservedNode
	// Approvable are the names of certificate requests that the judge would approve, sorted.
	Approvable []string
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
}

// NeedsCloud reports whether the machines have to be observed, given what the object alone says.
func NeedsCloud(o Observed) bool {
	return !o.Deleted && !o.Paused && o.Installed && o.Invalid == "" && o.NoActuator == "" && !o.isRequestedHibernationUnsupported()
}

// NeedsCluster reports whether the cluster has to be dialled, given its machines: to record its nodes before they stop,
// and to follow it while it resumes and runs. A cluster that hibernates is never dialled.
func NeedsCluster(o Observed) bool {
	switch {
	case o.Deleted, o.Paused, !o.Installed, o.Invalid != "", o.isRequestedHibernationUnsupported(), o.ObservationError != nil:
		return false
	case o.shouldHibernate():
		return !o.isHibernationOpen() && o.anyMachineIs(actuator.Running)
	default:
		return o.NoActuator != "" || o.isPowerOnComplete()
	}
}

// IsPowerSettled reports whether all machines are as the cluster should be.
func IsPowerSettled(o Observed) bool {
	if o.shouldHibernate() {
		return o.allMachinesAre(actuator.Stopped)
	}
	return o.allMachinesAre(actuator.Running) && !o.isResuming()
}

// IsInAftercare reports whether the cluster was resumed a short while ago.
func IsInAftercare(o Observed) bool { return o.isInAftercare() }

// NeedsNodes reports whether the cluster's nodes matter: to record them, and until they are back after a hibernation.
func NeedsNodes(o Observed) bool {
	return NeedsCluster(o) && (o.shouldHibernate() || o.hasNotResumed() || o.isInAftercare())
}

// NeedsCertificateRequests reports whether certificate requests have to be judged: while a cluster resumes and for a while after,
// because kubelets ask for serving certificates only once they are back.
func NeedsCertificateRequests(o Observed) bool {
	return NeedsNodes(o) && !o.shouldHibernate() && o.Now.Before(ApprovalsUntil(o.Record))
}

func (o Observed) shouldHibernate() bool { return o.DesiredPowerState == hivev1.PowerStateHibernating }

func (o Observed) isRequestedHibernationUnsupported() bool {
	// A cluster that hibernates already goes on, whatever became of its version.
	return o.shouldHibernate() && (o.NoActuator != "" || o.Incompatible != "" && !o.isHibernationOpen())
}

// isHibernationOpen reports whether the cluster was put into hibernation and not resumed since.
func (o Observed) isHibernationOpen() bool {
	return o.Record != nil && o.Record.ResumeStartedAt == nil
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

// isPowerOnComplete reports whether nothing has to be started.
func (o Observed) isPowerOnComplete() bool {
	if o.hasNotResumed() {
		return o.allMachinesAre(actuator.Running)
	}
	// A settled cluster may grow: a machine that starts beside a running one is new and belongs to no resume.
	return o.anyMachineIs(actuator.Running) && len(o.machineIDs(actuator.Stopped, actuator.Stopping)) == 0
}

// awaitsNodeRecord reports whether the nodes are not known from anywhere while the API server may still answer.
func (o Observed) awaitsNodeRecord() bool {
	return o.shouldHibernate() && !o.isHibernationOpen() && o.API == Unreachable && len(ensureHibernationRecord(o).Nodes) == 0 &&
		o.Now.Sub(o.RequestedAt) < nodeRecordWindow
}

func (o Observed) anyMachineIs(s actuator.MachineState) bool { return len(o.machineIDs(s)) > 0 }

func (o Observed) allMachinesAre(s actuator.MachineState) bool {
	// No machine at all is an error of its own and never a state (docs/adr/0003-the-actuator-port.md).
	return len(o.Machines) > 0 && len(o.machineIDs(s)) == len(o.Machines)
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
