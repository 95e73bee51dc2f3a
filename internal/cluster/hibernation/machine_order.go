// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// With the option WorkersFirst, workers are stopped first, and the control plane once they are observed off. At the
// resume the control plane is started first, and workers once its API server responds
// (docs/adr/0036-workers-stop-first.md). Both waits are limited, unless the cloud refuses to stop a worker.

const (
	// workersStopWindow is the time after the start of a hibernation, or the end of its drain, in which the control
	// plane waits for the workers to be off.
	workersStopWindow = 10 * time.Minute
	// controlPlaneStartWindow is the time after the start of a resume in which the workers wait for the API server.
	// It leaves the workers time to be back before the cluster counts as running in part.
	controlPlaneStartWindow = 5 * time.Minute
)

// isOrdered reports whether WorkersFirst is requested and possible: at least one machine is known to belong to the
// control plane. Every other machine is treated as a worker.
func (o Observed) isOrdered() bool {
	return o.Options.WorkersFirst && slices.ContainsFunc(o.Machines, isOfControlPlane)
}

func isOfControlPlane(m actuator.Machine) bool { return m.Role == actuator.ControlPlaneRole }

// withoutWorkers and onlyWorkers filter machine IDs.
func (o Observed) withoutWorkers(ids []string) []string { return o.filterByRole(ids, true) }
func (o Observed) onlyWorkers(ids []string) []string    { return o.filterByRole(ids, false) }

func (o Observed) filterByRole(ids []string, isControlPlane bool) []string {
	var chosen []string
	for _, m := range o.Machines {
		if slices.Contains(ids, m.ID) && isOfControlPlane(m) == isControlPlane {
			chosen = append(chosen, m.ID)
		}
	}
	return chosen
}

// workersOn returns the workers that the control plane waits for. Spot machines to terminate are excluded: termination
// is irreversible and comes last.
func (o Observed) workersOn() []string {
	var ids []string
	for _, m := range o.Machines {
		isOff := m.State == actuator.Stopped && !m.HoldsCapacity
		if !isOff && !isOfControlPlane(m) && !isTerminatedLast(m, o.Record) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// awaitsWorkersOff reports whether the control plane is left on for now. A worker that the cloud refuses to stop keeps
// the control plane on as long as the refusal lasts. Without WorkersFirst, such a machine may keep all other machines
// on.
func (o Observed) awaitsWorkersOff() bool {
	on := o.workersOn()
	if !o.isOrdered() || !o.isHibernationOpen() || len(on) == 0 {
		return false
	}
	return o.Now.Before(o.controlPlaneStopsAt()) || slices.ContainsFunc(on, o.isRefused)
}

func (o Observed) controlPlaneStopsAt() time.Time {
	return o.stopBeganAt().Add(workersStopWindow)
}

// machinesToStopNow returns the machines to stop, except those that wait for other machines.
func (o Observed) machinesToStopNow() []string {
	if o.awaitsWorkersOff() {
		return o.onlyWorkers(o.machinesToStop())
	}
	return o.machinesToStop()
}

// awaitsControlPlane reports whether workers are left off for now. Once the API server responds, a control-plane
// machine that the cloud refuses to start does not delay workers.
func (o Observed) awaitsControlPlane() bool {
	if !o.isOrdered() || !o.isResuming() || !o.Now.Before(o.workersStartAt()) {
		return false
	}
	missing := o.withoutWorkers(o.machineIDs(actuator.Stopped, actuator.Stopping, actuator.Starting))
	return o.API != Reachable || slices.ContainsFunc(missing, func(id string) bool { return !o.isRefused(id) })
}

func (o Observed) workersStartAt() time.Time {
	return o.Record.ResumeStartedAt.Add(controlPlaneStartWindow)
}

// machinesToStart returns the stopped machines to start, except those that wait for other machines.
func (o Observed) machinesToStart() []string {
	if o.awaitsControlPlane() {
		return o.withoutWorkers(o.machineIDs(actuator.Stopped))
	}
	return o.machineIDs(actuator.Stopped)
}

// mayStartOverdueWorkers reports whether workers have waited long enough to be started before certificate requests are
// approved. Workers that the cloud refuses to start do not delay approvals.
func (o Observed) mayStartOverdueWorkers() bool {
	isOverdue := o.isOrdered() && o.isResuming() && !o.Now.Before(o.workersStartAt())
	return isOverdue && slices.ContainsFunc(o.onlyWorkers(o.machineIDs(actuator.Stopped)), func(id string) bool { return !o.isRefused(id) })
}

// stopOrderNote describes the order of the stop.
func (o Observed) stopOrderNote() string {
	switch {
	case !o.Options.WorkersFirst:
		return ""
	case !o.isOrdered():
		return unorderedNote()
	case !o.isHibernationOpen() || o.awaitsWorkersOff() && o.Now.Before(o.controlPlaneStopsAt()):
		return "; workers stop first, and the control plane when all workers are off or ten minutes have passed"
	case o.awaitsWorkersOff():
		return "; the control plane is left on, because the cloud refuses to stop workers"
	case len(o.workersOn()) > 0:
		return "; the control plane is stopped as well, although workers have not stopped within ten minutes: " + o.machineNames(o.workersOn())
	default:
		return "; the workers are off"
	}
}

// startOrderNote describes the order of the start.
func (o Observed) startOrderNote() string {
	switch {
	case !o.Options.WorkersFirst:
		return ""
	case !o.isOrdered():
		return unorderedNote()
	case !o.isResuming(), o.awaitsControlPlane():
		return "; the control plane starts first, and the workers when the API server answers or five minutes have passed" + o.apiProblem()
	case o.API != Reachable:
		return "; workers are started as well, although the API server has not answered within five minutes" + o.apiProblem()
	default:
		return "; the API server answers"
	}
}

func unorderedNote() string {
	return fmt.Sprintf("; all machines stop or start together, although %s requests an order: no labels or name identify a machine of the control plane", hivev1.StopOrderAnnotation)
}
