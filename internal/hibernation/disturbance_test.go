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
	statusLost             disturbance = "status lost"
	actionRefused          disturbance = "action refused"
	actionPartlyRefused    disturbance = "action refused for the second machine"
	cloudUnreachable       disturbance = "cloud unreachable"
	clusterUnreachableOnce disturbance = "cluster unreachable"

	// Between passes.
	desiredFlipped disturbance = "desired power state flipped"
	statusWiped    disturbance = "status wiped"
	firstMeddled   disturbance = "first machine switched by somebody else"
	secondMeddled  disturbance = "second machine switched by somebody else"
	managerAway    disturbance = "manager away"
)

func disturbances() []disturbance {
	return []disturbance{
		statusLost, actionRefused, actionPartlyRefused, cloudUnreachable, clusterUnreachableOnce,
		desiredFlipped, statusWiped, firstMeddled, secondMeddled, managerAway,
	}
}

func (s modelState) applyDisturbance(d disturbance) modelState {
	switch d {
	case desiredFlipped:
		return s.flipDesired()
	case statusWiped:
		s.record, s.reported = noRecord(), reportedConditions{}
	case firstMeddled:
		s.machines[0] = s.machines[0].meddle(transitionPasses(0))
	case secondMeddled:
		s.machines[1] = s.machines[1].meddle(transitionPasses(1))
	case managerAway:
		s = s.tick(idleTime)
	case undisturbed, statusLost, actionRefused, actionPartlyRefused, cloudUnreachable, clusterUnreachableOnce:
		s, _ = s.stepAndTick(d)
	}
	return s
}

func (s modelState) flipDesired() modelState {
	if s.wantsRunning() {
		s.desired = hivev1.PowerStateHibernating
	} else {
		s.desired = hivev1.PowerStateRunning
	}
	return s
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

// refusedPlan is what the controller makes of a plan whose effect was refused; no effect cannot be refused.
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
