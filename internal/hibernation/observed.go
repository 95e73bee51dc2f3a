// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
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
	// DesiredPowerState is what somebody asked for; empty means Running.
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
	// Record is the record of the last sleep, nil if there was none.
	Record *hivev1.HibernationRecord

	// ObservationError says why the machines could not be observed; nil when they were.
	ObservationError *ObservationError
	// Machines are the cluster's machines at the cloud.
	Machines []actuator.Machine

	// API is whether the cluster's API server answers; NotProbed where Dial says not to ask.
	API APIState
	// APIMessage says why it does not.
	APIMessage string
	// Nodes are the cluster's nodes; only with a reachable API.
	Nodes []ObservedNode
	// Approvable are the names of certificate requests that the judge would approve, sorted.
	Approvable []string
}

// ObservationError is an error that the user has to see.
type ObservationError struct {
	// Class tells what can be done about it.
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
	// LastSeen is the newest sign of life: its lease's renewal or its Ready heartbeat.
	LastSeen time.Time
}

// NeedsCloud says whether the machines have to be observed, given what the object alone tells.
func NeedsCloud(o Observed) bool {
	return !o.Deleted && !o.Paused && o.Installed && o.Invalid == "" && o.NoActuator == "" && !o.cannotHibernate()
}

// NeedsCluster says whether the cluster has to be dialled, given its machines: to write its nodes down before it sleeps,
// and to follow it while it wakes and runs. A sleeping cluster is never dialled.
func NeedsCluster(o Observed) bool {
	switch {
	case o.Deleted, o.Paused, !o.Installed, o.Invalid != "", o.cannotHibernate(), o.ObservationError != nil:
		return false
	case o.shouldHibernate():
		return !o.isHibernationRecorded() && o.anyMachineIs(actuator.Running)
	default:
		return o.NoActuator != "" || o.isPoweredOn()
	}
}

// MayReuseMachines says whether what was seen of the machines a few seconds ago is good enough: the cluster wakes, and as far
// as was seen all its machines run, so that only its own API is in question.
func MayReuseMachines(o Observed) bool {
	return o.isResumeRecorded() && !o.shouldHibernate() && (len(o.Machines) == 0 || o.allMachinesAre(actuator.Running))
}

// NeedsNodes says whether the cluster's nodes matter: to write them down, and until they are back after a sleep.
func NeedsNodes(o Observed) bool {
	return NeedsCluster(o) && (o.shouldHibernate() || o.isResumeUnfinished() || o.isInAftercare())
}

// NeedsRequests says whether certificate requests have to be judged: while a cluster resumes and for a while after,
// because kubelets ask for serving certificates only once they are back.
func NeedsRequests(o Observed) bool {
	return NeedsCluster(o) && !o.shouldHibernate() && (o.isResumeUnfinished() || o.isInAftercare())
}

func (o Observed) shouldHibernate() bool { return o.DesiredPowerState == hivev1.PowerStateHibernating }

// cannotHibernate: sleep is wanted of a cluster that nobody can stop, or that cannot sleep and was not put to sleep before.
func (o Observed) cannotHibernate() bool {
	return o.shouldHibernate() && (o.NoActuator != "" || o.Incompatible != "" && !o.isHibernationRecorded())
}

// isHibernationRecorded: the record of a sleep is open.
func (o Observed) isHibernationRecorded() bool {
	return o.Record != nil && o.Record.ResumeStartedAt == nil
}

// isResumeUnfinished: the record says that the cluster slept and is not ready again.
func (o Observed) isResumeUnfinished() bool { return o.Record != nil && o.Record.ResumedAt == nil }

// isResumeRecorded: the record says since when.
func (o Observed) isResumeRecorded() bool {
	return o.isResumeUnfinished() && !o.isHibernationRecorded()
}

func (o Observed) isInAftercare() bool {
	return o.Record != nil && o.Record.ResumedAt != nil && o.Now.Sub(o.Record.ResumedAt.Time) < aftercareWindow
}

// isPoweredOn: nothing has to be started. A waking cluster is up when every machine runs; one that is settled may grow, and its
// new machines are nobody's resume.
func (o Observed) isPoweredOn() bool {
	if o.isResumeUnfinished() {
		return o.allMachinesAre(actuator.Running)
	}
	return o.anyMachineIs(actuator.Running) && len(o.machineIDs(actuator.Stopped, actuator.Stopping)) == 0
}

// awaitsNodeRecord: the nodes are not known from anywhere, and the API server may still answer.
func (o Observed) awaitsNodeRecord() bool {
	return o.shouldHibernate() && !o.isHibernationRecorded() && o.API == Unreachable && len(hibernationRecord(o).Nodes) == 0 &&
		o.Now.Sub(o.RequestedAt) < nodeRecordWindow
}

func (o Observed) anyMachineIs(s actuator.MachineState) bool { return len(o.machineIDs(s)) > 0 }

func (o Observed) allMachinesAre(s actuator.MachineState) bool {
	return len(o.Machines) > 0 && len(o.machineIDs(s)) == len(o.Machines)
}

// machineIDs returns the ids of the machines in one of the states, in the order observed.
func (o Observed) machineIDs(states ...actuator.MachineState) []string {
	var ids []string
	for _, m := range o.Machines {
		for _, s := range states {
			if m.State == s {
				ids = append(ids, m.ID)
			}
		}
	}
	return ids
}
