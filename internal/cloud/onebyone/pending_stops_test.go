// SPDX-License-Identifier: Apache-2.0

package onebyone

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/torpor-dev/torpor/actuator"
)

func TestPendingStops(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1_800_000_000, 0))
	p := &PendingStops{Clock: now, Window: time.Minute}
	expect := func(when string, want actuator.MachineState, age time.Duration) {
		t.Helper()
		if state := p.EffectiveState("a", actuator.Running); state != want || p.Age("a") != age {
			t.Errorf("%s: found %s since %s, want %s since %s", when, state, p.Age("a"), want, age)
		}
	}
	pass := func(d time.Duration) { now.SetTime(now.Now().Add(d)) }

	expect("before any order", actuator.Running, 0)
	p.Remember("a")
	expect("at once", actuator.Stopping, 0)
	pass(time.Minute)
	expect("once it should have stopped", actuator.Running, time.Minute)
	p.Remember("a")
	pass(time.Second)
	expect("after another order", actuator.Stopping, 61*time.Second)
	pass(3 * time.Minute)
	expect("long after the last order", actuator.Running, 0)
	p.Remember("a")
	expect("after an order that begins a new stop", actuator.Stopping, 0)
	if state := p.EffectiveState("a", actuator.Stopped); state != actuator.Stopped {
		t.Errorf("a machine that is off: found %s", state)
	}
	expect("after another start", actuator.Running, 0)
	for _, id := range []string{"b", "c"} {
		p.Remember(id)
		pass(3 * time.Minute)
	}
	if len(p.stops) != 1 {
		t.Errorf("found %d stops, want ended stops to be forgotten", len(p.stops))
	}
}
