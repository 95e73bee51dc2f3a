// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"github.com/torpor-dev/torpor/actuator"
	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// disturbance is a failure or an outside change, in a pass of the model or between two passes.
type disturbance string

const (
	undisturbed disturbance = ""

	// The first group of disturbances happens in a pass. statusLost is a crash after the action and before the save.
	statusLost             disturbance = "status lost"
	actionRefused          disturbance = "action refused"
	actionPartlyRefused    disturbance = "action refused for the second machine"
	cloudUnreachable       disturbance = "cloud unreachable"
	cloudLags              disturbance = "cloud returns an older state"
	clusterUnreachableOnce disturbance = "cluster unreachable"

	// The second group of disturbances happens between passes.
	desiredFlipped disturbance = "desired power state flipped"
	statusWiped    disturbance = "status wiped"
	firstMeddled   disturbance = "first machine switched by another party"
	secondMeddled  disturbance = "second machine switched by another party"
	managerAway    disturbance = "manager away"
	spotReplaced   disturbance = "another spot machine comes after the record was written"
	startsRefused  disturbance = "no capacity for the second machine"
	stopsRefused   disturbance = "second machine cannot be stopped"
	refusalEnds    disturbance = "nothing is refused any more"
	obstacleFound  disturbance = "the survey has a blocking finding"
)

func disturbances() []disturbance {
	return []disturbance{
		statusLost, actionRefused, actionPartlyRefused, cloudUnreachable, cloudLags, clusterUnreachableOnce,
		desiredFlipped, statusWiped, firstMeddled, secondMeddled, managerAway, spotReplaced, startsRefused, stopsRefused, obstacleFound,
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
		if !s.spot {
			s.machines[1] = s.machines[1].meddle(transitionPasses(1))
		}
	case managerAway:
		s = s.tick(idleTime)
	case spotReplaced:
		if s.spot && !s.wantsRunning() && s.record.exists && s.record.resume == never {
			s.machines[1], s.nodes[1] = modelMachine{state: actuator.Running}, modelNode{certificate: expired, seen: forever}
			s.isNew = !s.isNew
		}
	case startsRefused:
		s.refuses = starts
	case stopsRefused:
		s.refuses = stops
	case refusalEnds:
		s.refuses, s.obstacle = nothing, false
	case obstacleFound:
		s.obstacle = true
	case undisturbed, statusLost, actionRefused, actionPartlyRefused, cloudUnreachable, cloudLags, clusterUnreachableOnce:
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

func firstTargetOnly(do Action) Action {
	switch do := do.(type) {
	case StopMachines:
		return StopMachines{IDs: do.IDs[:1], TerminatedLater: do.TerminatedLater}
	case StartMachines:
		return StartMachines{IDs: do.IDs[:1]}
	case ApproveRequests:
		return ApproveRequests{Requests: do.Requests[:1]}
	case TerminateMachines, ReplaceMachines, DrainWorkers, UncordonNodes, HoldGroups, ReleaseGroups, NoAction: // These actions concern at most the second machine.
	}
	return do
}
