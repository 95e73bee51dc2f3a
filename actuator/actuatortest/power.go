// SPDX-License-Identifier: Apache-2.0

package actuatortest

import (
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
)

func stopsNamedMachinesOnly(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 3)
	c.mustCall(Stop, c.ids[1])
	c.expectSettled(actuator.Running, map[string]actuator.MachineState{c.ids[1]: actuator.Stopped})
}

func emptyListIsNoError(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 1)
	c.mustCall(Stop)
	c.mustCall(Start)
	c.expectSettled(actuator.Running, nil)
}

func stopIsIdempotent(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 3)
	c.mustCall(Stop, c.ids[0])
	c.mustCall(Stop, c.ids...)
	c.mustCall(Stop, c.ids...)
	c.expectSettled(actuator.Stopped, nil)
	c.mustCall(Stop, c.ids...)
	c.expectSettled(actuator.Stopped, nil)
}

func stoppedMachinesStayStopped(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 3)
	c.mustCall(Stop, c.ids...)
	c.eventually("all machines are stopped", func() bool {
		states := c.observeStates()
		stopped := 0
		for id, state := range states {
			switch state {
			case actuator.Running, actuator.Starting:
				t.Fatalf("machine %s is %s after it was stopped", id, state)
			case actuator.Stopped:
				stopped++
			case actuator.Stopping:
			}
		}
		return stopped == len(c.ids)
	})
}

func stopsDespiteStartingMachine(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 4)
	c.mustCall(Stop, c.ids[1])
	c.Settle(t)
	c.mustCall(Start, c.ids[1])
	c.callMayBeRefused(Stop, c.ids...)
	c.Settle(t)
	// The one that was starting may be either; it is brought to rest by the next stop.
	c.mustCall(Stop, c.ids[1])
	c.expectSettled(actuator.Stopped, nil)
}

func startIsIdempotent(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 3)
	c.mustCall(Stop, c.ids...)
	c.Settle(t)
	c.mustCall(Start, c.ids[0])
	c.mustCall(Start, c.ids...)
	c.mustCall(Start, c.ids...)
	c.expectSettled(actuator.Running, nil)
	c.mustCall(Start, c.ids...)
	c.expectSettled(actuator.Running, nil)
}

func startsMixedStates(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 5)
	c.mustCall(Stop, c.ids[:2]...)
	c.Settle(t)
	c.mustCall(Stop, c.ids[2])
	c.callMayBeRefused(Start, c.ids...)
	c.Settle(t)
	c.mustCall(Start, c.ids[2])
	c.expectSettled(actuator.Running, nil)
}

func startsDespiteNoCapacity(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 5)
	c.mustCall(Stop, c.ids...)
	c.Settle(t)
	// One in the middle, so that an actuator that stops at the first error leaves machines off.
	poor := c.ids[2]
	if !c.Fail(t, actuator.NoCapacity, Start, poor) {
		t.Skip("the test's cloud always has capacity")
	}
	err := c.expectError(Start, c.Target(), actuator.NoCapacity, c.ids...)
	for _, id := range c.ids {
		if err != nil && strings.Contains(err.Error(), id) != (id == poor) {
			t.Errorf("error %q names %s: want the machine without capacity only, %s", err, id, poor)
		}
	}
	c.expectSettled(actuator.Running, map[string]actuator.MachineState{poor: actuator.Stopped})
}
