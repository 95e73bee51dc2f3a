// SPDX-License-Identifier: Apache-2.0

package actuatortest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
)

// callDeadline is far above what a simulated cloud takes for anything.
const callDeadline = time.Minute

// testCluster is a Cloud with machines and what rows do with it.
type testCluster struct {
	Cloud
	t   *testing.T
	ids []string
}

func newCluster(t *testing.T, newCloud func(*testing.T) Cloud, machines int) testCluster {
	t.Helper()
	c := testCluster{Cloud: newCloud(t), t: t}
	if machines > 0 {
		c.ids = c.Create(t, machines)
	}
	if len(c.ids) != machines {
		t.Fatalf("the test's cloud made %d machines, want %d", len(c.ids), machines)
	}
	// Observe returns machines in this order.
	slices.Sort(c.ids)
	return c
}

// call calls one operation; ids do not matter for Observe.
func (c testCluster) call(ctx context.Context, op Operation, target actuator.Target, ids []string) error {
	switch op {
	case Observe:
		_, err := c.Actuator().Observe(ctx, target)
		return err
	case Stop:
		return c.Actuator().Stop(ctx, target, ids)
	case Start:
		return c.Actuator().Start(ctx, target, ids)
	default:
		return errors.New("no such operation: " + string(op))
	}
}

// mustCall calls an operation that has to work.
func (c testCluster) mustCall(op Operation, ids ...string) {
	c.t.Helper()
	if err := c.call(c.t.Context(), op, c.Target(), ids); err != nil {
		c.t.Fatalf("%s %v: %v", op, ids, err)
	}
}

// callMayBeRefused calls an operation that may be refused because machines are in the wrong state.
func (c testCluster) callMayBeRefused(op Operation, ids ...string) {
	c.t.Helper()
	if err := c.call(c.t.Context(), op, c.Target(), ids); err != nil && actuator.ClassOf(err) != actuator.WrongState {
		c.t.Fatalf("%s %v: %v, want no error or class %q", op, ids, err, actuator.WrongState)
	}
}

// observeStates observes the machines.
func (c testCluster) observeStates() map[string]actuator.MachineState {
	c.t.Helper()
	machines, err := c.Actuator().Observe(c.t.Context(), c.Target())
	if err != nil {
		c.t.Fatalf("observe: %v", err)
	}
	states := map[string]actuator.MachineState{}
	for _, m := range machines {
		states[m.ID] = m.State
	}
	return states
}

// expectSettled checks what the machines are once no machine is in transition: each id has its state of want, the rest is else.
func (c testCluster) expectSettled(rest actuator.MachineState, want map[string]actuator.MachineState) {
	c.t.Helper()
	c.Settle(c.t)
	all := map[string]actuator.MachineState{}
	for _, id := range c.ids {
		all[id] = rest
	}
	maps.Copy(all, want)
	if diff := cmp.Diff(all, c.observeStates()); diff != "" {
		c.t.Errorf("settled machines (-want +got):\n%s", diff)
	}
}

// eventually polls until the condition holds.
func (c testCluster) eventually(what string, holds func() bool) {
	c.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(callDeadline)
	defer deadline.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			c.t.Fatalf("never came true: %s", what)
		case <-tick.C:
		}
	}
}

// expectError checks the class of an operation's error.
func (c testCluster) expectError(op Operation, target actuator.Target, class actuator.ErrorClass, ids ...string) error {
	c.t.Helper()
	err := c.call(c.t.Context(), op, target, ids)
	if err == nil || actuator.ClassOf(err) != class {
		c.t.Errorf("%s: error %v has class %q, want %q", op, err, actuator.ClassOf(err), class)
	}
	return err
}
