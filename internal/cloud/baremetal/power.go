// SPDX-License-Identifier: Apache-2.0

package baremetal

import (
	"context"
	"time"

	"github.com/torpor-dev/torpor/actuator"
)

// powerOrder is an order to a controller.
type powerOrder string

const (
	noOrder  powerOrder = ""
	turnOn   powerOrder = "turn on"
	shutDown powerOrder = "shut down"
	cutPower powerOrder = "cut the power"
)

// managementController controls one machine.
type managementController interface {
	// visit reads the machine's power state, and sends the order that choose returns for this state.
	visit(ctx context.Context, choose func(actuator.MachineState) (powerOrder, error)) (actuator.MachineState, error)
}

const (
	// shutDownWindow is how long a machine counts as stopping after an order to shut down. If the machine still runs
	// after that, the order is repeated.
	shutDownWindow = time.Minute
	// cutPowerAfter is how long shutdown orders are repeated before the power is cut.
	cutPowerAfter = 5 * time.Minute
)

// chooseStop returns the order for a machine that should stop. toldFor is the time since the first order to shut down,
// or 0. The order is repeated, because a machine that has just started may have missed it.
func chooseStop(seen actuator.MachineState, toldFor time.Duration) (powerOrder, error) {
	switch seen {
	case actuator.Stopped, actuator.Stopping:
		return noOrder, nil
	case actuator.Starting:
		return noOrder, &actuator.Error{Class: actuator.WrongState, Message: "the machine is starting, and is stopped once it runs"}
	case actuator.Running:
	}
	if toldFor >= cutPowerAfter {
		return cutPower, nil
	}
	return shutDown, nil
}

// chooseStart returns the order for a machine that should run.
func chooseStart(seen actuator.MachineState, isPending bool) (powerOrder, error) {
	switch {
	case seen == actuator.Stopped:
		return turnOn, nil
	case seen == actuator.Stopping, seen == actuator.Running && isPending:
		return noOrder, &actuator.Error{Class: actuator.WrongState, Message: "the machine is shutting down, and is started once it is off"}
	default:
		return noOrder, nil
	}
}
