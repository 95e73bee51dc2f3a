// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// A caller who investigates an app that does not start gets immediate responses once the hold time is used up.
func TestPollsOfOneStartShareTheHoldTime(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1, 0))
	polls := NewPollTracker(clock)
	expect := func(process string, want time.Duration) {
		t.Helper()
		if found := polls.HoldTime("alice", "app", process); found != want {
			t.Errorf("%s: expected %s, found %s", process, want, found)
		}
	}
	polls.StartTracking("alice", "app")
	expect("web", 10*time.Second)
	clock.Step(7 * time.Second)
	expect("web", 3*time.Second)
	expect("worker", 3*time.Second)
	polls.EndPolls("alice", "app", "web")
	expect("web", 0)
	clock.Step(3 * time.Second)
	expect("worker", 0)
	if found := polls.HoldTime("bob", "app", "web"); found != 0 {
		t.Errorf("expected an immediate response to another caller, found it held for %s", found)
	}
}
