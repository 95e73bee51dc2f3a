// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"slices"
	"time"

	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// Where the owner of a cluster asks for it, workers are stopped first, and the control plane once they are seen off; at the resume the control
// plane is started first, and workers once its API server answers (docs/adr/0036-workers-stop-first.md). Both waits have an end.

const (
	// workersStopWindow is for how long after a hibernation began its control plane is not stopped before the workers are off.
	workersStopWindow = 10 * time.Minute
	// controlPlaneStartWindow is for how long after a resume began its workers are not started before the API server answers. It leaves them
	// time to be back before the cluster runs in part.
	controlPlaneStartWindow = 5 * time.Minute
)

// isOrdered reports whether an order is wanted and can be kept: a machine is known to be of the control plane. Every other one counts as a worker.
func (o Observed) isOrdered() bool {
	return o.Options.WorkersFirst && slices.ContainsFunc(o.Machines, isOfControlPlane)
}

func isOfControlPlane(m actuator.Machine) bool { return m.Role == actuator.ControlPlaneRole }

// withoutWorkers and onlyWorkers choose from ids of machines.
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

// workersOn are the workers before which the control plane is not stopped. Spot machines that are terminated are not among them: nothing
// takes that back, so that it comes after everything else.
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

// awaitsWorkersOff reports whether the control plane is left on for now. A worker that the cloud refuses to stop keeps it on for as long as
// it does: without an order such a machine keeps all others on.
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

// machinesToStopNow are those that are to be stopped, but for those that have to wait for others.
func (o Observed) machinesToStopNow() []string {
	if o.awaitsWorkersOff() {
		return o.onlyWorkers(o.machinesToStop())
	}
	return o.machinesToStop()
}

// awaitsControlPlane reports whether workers are left off for now. A machine without capacity holds up none.
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

// machinesToStart are those that are off and are to be started, but for those that have to wait for others.
func (o Observed) machinesToStart() []string {
	if o.awaitsControlPlane() {
		return o.withoutWorkers(o.machineIDs(actuator.Stopped))
	}
	return o.machineIDs(actuator.Stopped)
}

// mayStartOverdueWorkers reports whether workers have waited for long enough for a control plane whose requests are approved again and
// again. Those that the cloud refuses hold up no approval.
func (o Observed) mayStartOverdueWorkers() bool {
	isOverdue := o.isOrdered() && o.isResuming() && !o.Now.Before(o.workersStartAt())
	return isOverdue && slices.ContainsFunc(o.onlyWorkers(o.machineIDs(actuator.Stopped)), func(id string) bool { return !o.isRefused(id) })
}

// stopOrderNote says which machines come first.
func (o Observed) stopOrderNote() string {
	switch {
	case !o.Options.WorkersFirst:
		return ""
	case !o.isOrdered():
		return unorderedNote()
	case !o.isHibernationOpen() || o.awaitsWorkersOff() && o.Now.Before(o.controlPlaneStopsAt()):
		return "; workers first, and the control plane once they are off, after ten minutes at the latest"
	case o.awaitsWorkersOff():
		return "; the control plane is left on, because the cloud refuses to stop workers"
	case len(o.workersOn()) > 0:
		return "; the control plane, too, although workers have not stopped in ten minutes: " + o.machineNames(o.workersOn())
	default:
		return "; the workers are off"
	}
}

// startOrderNote says which machines come first.
func (o Observed) startOrderNote() string {
	switch {
	case !o.Options.WorkersFirst:
		return ""
	case !o.isOrdered():
		return unorderedNote()
	case !o.isResuming(), o.awaitsControlPlane():
		return "; the control plane first, and workers once it answers, after five minutes at the latest" + o.apiProblem()
	case o.API != Reachable:
		return "; workers, too, although the control plane has not answered in five minutes" + o.apiProblem()
	default:
		return "; the control plane answers"
	}
}

func unorderedNote() string {
	return fmt.Sprintf("; all at once, because no machine's labels or name tell that it is of the control plane, as %s asks for", hivev1.StopOrderAnnotation)
}
