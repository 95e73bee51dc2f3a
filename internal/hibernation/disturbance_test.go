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
	wishFlipped   disturbance = "wish flipped"
	statusWiped   disturbance = "status wiped"
	firstMeddled  disturbance = "first machine switched by somebody else"
	secondMeddled disturbance = "second machine switched by somebody else"
	managerAway   disturbance = "manager away"
)

func disturbances() []disturbance {
	return []disturbance{
		statusLost, actionRefused, actionPartlyRefused, cloudSilent, clusterSilent,
		wishFlipped, statusWiped, firstMeddled, secondMeddled, managerAway,
	}
}

func (w world) disturb(d disturbance) world {
	switch d {
	case wishFlipped:
		return w.flip()
	case statusWiped:
		w.sleep, w.told = noRecord(), told{}
	case firstMeddled:
		w.machines[0] = w.machines[0].meddle(slowness(0))
	case secondMeddled:
		w.machines[1] = w.machines[1].meddle(slowness(1))
	case managerAway:
		w = w.tick(stride)
	case undisturbed, statusLost, actionRefused, actionPartlyRefused, cloudSilent, clusterSilent:
		w, _ = w.step(d)
	}
	return w
}

func (w world) flip() world {
	if w.wantsRunning() {
		w.wish = hivev1.PowerStateHibernating
	} else {
		w.wish = hivev1.PowerStateRunning
	}
	return w
}

func (m toyMachine) meddle(slowness int) toyMachine {
	switch m.state {
	case actuator.Running:
		return toyMachine{actuator.Stopping, slowness}
	case actuator.Stopped:
		return toyMachine{actuator.Starting, slowness}
	case actuator.Stopping, actuator.Starting:
		return m
	default:
		return m
	}
}

// refusedPlan is what the shell makes of a plan whose effect was refused; no effect cannot be refused.
func refusedPlan(p Plan) Plan {
	switch p.Do.(type) {
	case Stop:
		return p.Failed(Trouble{Class: actuator.WrongState, Message: "The cloud refused to stop i-0"})
	case Start:
		return p.Failed(Trouble{Class: actuator.NoCapacity, Message: "The cloud has no room for i-0"})
	case Approve:
		return p.Failed(Trouble{Class: actuator.Unreachable, Message: "The cluster refused csr-0"})
	case Nothing:
	}
	return p
}

func firstOnly(do Action) Action {
	switch do := do.(type) {
	case Stop:
		return Stop{IDs: do.IDs[:1]}
	case Start:
		return Start{IDs: do.IDs[:1]}
	case Approve:
		return Approve{Requests: do.Requests[:1]}
	case Nothing:
	}
	return do
}
