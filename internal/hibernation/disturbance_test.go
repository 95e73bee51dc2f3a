// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// disturbance is what goes wrong in one pass of the toy world, or between two.
type disturbance string

const (
	undisturbed disturbance = ""

	// In a pass: statusLost is a crash after the effect and before the save.
	statusLost          disturbance = "status lost"
	actionRefused       disturbance = "action refused"
	actionPartlyRefused disturbance = "action refused for the second machine"
	cloudSilent         disturbance = "cloud silent"
	clusterSilent       disturbance = "cluster silent"

	// Between passes.
	desiredFlipped disturbance = "wish flipped"
	statusWiped    disturbance = "status wiped"
	firstMeddled   disturbance = "first machine switched by somebody else"
	secondMeddled  disturbance = "second machine switched by somebody else"
	managerAway    disturbance = "manager away"
)

func disturbances() []disturbance {
	return []disturbance{
		statusLost, actionRefused, actionPartlyRefused, cloudSilent, clusterSilent,
		desiredFlipped, statusWiped, firstMeddled, secondMeddled, managerAway,
	}
}

func (w modelState) applyDisturbance(d disturbance) modelState {
	switch d {
	case desiredFlipped:
		return w.flipDesired()
	case statusWiped:
		w.record, w.reported = noRecord(), reportedConditions{}
	case firstMeddled:
		w.machines[0] = w.machines[0].meddle(transitionPasses(0))
	case secondMeddled:
		w.machines[1] = w.machines[1].meddle(transitionPasses(1))
	case managerAway:
		w = w.tick(idleTime)
	case undisturbed, statusLost, actionRefused, actionPartlyRefused, cloudSilent, clusterSilent:
		w, _ = w.stepAndTick(d)
	}
	return w
}

func (w modelState) flipDesired() modelState {
	if w.wantsRunning() {
		w.desired = hivev1.PowerStateHibernating
	} else {
		w.desired = hivev1.PowerStateRunning
	}
	return w
}

func (m modelMachine) meddle(slowness int) modelMachine {
	switch m.state {
	case actuator.Running:
		return modelMachine{actuator.Stopping, slowness}
	case actuator.Stopped:
		return modelMachine{actuator.Starting, slowness}
	case actuator.Stopping, actuator.Starting:
		return m
	default:
		return m
	}
}

// refusedPlan is what the shell makes of a plan whose effect was refused; no effect cannot be refused.
func refusedPlan(p Plan) Plan {
	switch p.Do.(type) {
	case StopMachines:
		return p.WithRefusal(actuator.WrongState, "The cloud refused to stop i-0")
	case StartMachines:
		return p.WithRefusal(actuator.NoCapacity, "The cloud has no room for i-0")
	case ApproveRequests:
		return p.WithRefusal(actuator.Unreachable, "The cluster refused csr-0")
	case NoAction:
	}
	return p
}

func firstTargetOnly(do Action) Action {
	switch do := do.(type) {
	case StopMachines:
		return StopMachines{IDs: do.IDs[:1]}
	case StartMachines:
		return StartMachines{IDs: do.IDs[:1]}
	case ApproveRequests:
		return ApproveRequests{Requests: do.Requests[:1]}
	case NoAction:
	}
	return do
}
