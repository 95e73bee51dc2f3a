// SPDX-License-Identifier: Apache-2.0

package actuatortest

import (
	"strings"
	"testing"

	"github.com/torpor-dev/torpor/actuator"
)

func stopsNamedOnly(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 3)
	c.must(Stop, c.ids[1])
	c.settled(actuator.Running, map[string]actuator.State{c.ids[1]: actuator.Stopped})
}

func nothingToDo(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 1)
	c.must(Stop)
	c.must(Start)
	c.settled(actuator.Running, nil)
}

func stopIsIdempotent(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 3)
	c.must(Stop, c.ids[0])
	c.must(Stop, c.ids...)
	c.must(Stop, c.ids...)
	c.settled(actuator.Stopped, nil)
	c.must(Stop, c.ids...)
	c.settled(actuator.Stopped, nil)
}

func staysStopped(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 3)
	c.must(Stop, c.ids...)
	c.eventually("all machines are stopped", func() bool {
		states := c.states()
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

func stopsPastStarting(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 4)
	c.must(Stop, c.ids[1])
	c.Settle(t)
	c.must(Start, c.ids[1])
	c.mayRefuse(Stop, c.ids...)
	c.Settle(t)
	// The one that was starting may be either; it is brought to rest by the next stop.
	c.must(Stop, c.ids[1])
	c.settled(actuator.Stopped, nil)
}

func startIsIdempotent(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 3)
	c.must(Stop, c.ids...)
	c.Settle(t)
	c.must(Start, c.ids[0])
	c.must(Start, c.ids...)
	c.must(Start, c.ids...)
	c.settled(actuator.Running, nil)
	c.must(Start, c.ids...)
	c.settled(actuator.Running, nil)
}

func startsMixture(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 5)
	c.must(Stop, c.ids[:2]...)
	c.Settle(t)
	c.must(Stop, c.ids[2])
	c.mayRefuse(Start, c.ids...)
	c.Settle(t)
	c.must(Start, c.ids[2])
	c.settled(actuator.Running, nil)
}

func startsPastNoCapacity(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 5)
	c.must(Stop, c.ids...)
	c.Settle(t)
	poor := c.ids[2]
	if !c.Fail(t, actuator.NoCapacity, Start, poor) {
		t.Skip("the test's cloud always has capacity")
	}
	err := c.fails(Start, c.Target(), actuator.NoCapacity, c.ids...)
	for _, id := range c.ids {
		if err != nil && strings.Contains(err.Error(), id) != (id == poor) {
			t.Errorf("error %q names %s: want the machine without capacity only, %s", err, id, poor)
		}
	}
	c.settled(actuator.Running, map[string]actuator.State{poor: actuator.Stopped})
}
