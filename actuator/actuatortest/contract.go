// SPDX-License-Identifier: Apache-2.0

// Package actuatortest contains the contract tests that every actuator must pass. A test of the implementation calls
// Run.
package actuatortest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/torpor-dev/torpor/actuator"
)

// Cloud is a cluster at a real or simulated cloud, for tests.
type Cloud interface {
	// Actuator returns the actuator under test. Several clusters may share one actuator.
	Actuator() actuator.Actuator
	// Target returns the target of the cluster, with valid credentials.
	Target() actuator.Target
	// Create creates n running machines of the cluster and returns their IDs. A page of the cloud's list must have
	// fewer than twelve machines.
	Create(t *testing.T, n int) []string
	// Settle waits until no machine of the cluster is starting or stopping.
	Settle(t *testing.T)
	// Fail makes an operation fail with an error class until the test ends. If ids are given, only calls for one of
	// these machines fail. It returns false if the cloud cannot fail in this way; tests that need the failure are then
	// skipped.
	Fail(t *testing.T, class actuator.ErrorClass, op Operation, ids ...string) bool
}

// OneByOneCloud is a Cloud whose API stops and starts only single machines. It therefore stops the other machines of
// a cluster even if it rejects the stop of one.
type OneByOneCloud interface {
	Cloud
	// TakesOrdersOneByOne marks the type; it is never called.
	TakesOrdersOneByOne()
}

// ShutdownCloud is a Cloud whose machines still occupy billed capacity after a shutdown by the guest.
type ShutdownCloud interface {
	Cloud
	// ShutDown shuts a machine down as its guest would, and waits until it is off.
	ShutDown(t *testing.T, id string)
}

// LateCloud is a Cloud that may report the previous state for some time after a stop or start.
type LateCloud interface {
	Cloud
	// Delay makes observations lag as much as those of the real cloud, until the test ends.
	Delay(t *testing.T)
}

// GroupCloud is a Cloud with groups that replace stopped members, such as Auto Scaling groups.
type GroupCloud interface {
	Cloud
	// JoinGroup makes a machine a member of a group.
	JoinGroup(t *testing.T, id, group string)
}

// Operation is a method of an actuator.
type Operation string

// The operations of the contract.
const (
	Observe Operation = "observe"
	Stop    Operation = "stop"
	Start   Operation = "start"
)

// Run runs the contract tests. newCloud returns a new, empty cluster on each call. All clusters share one account.
// The infraID of each cluster should be a prefix of the next one's, so that an actuator that matches by prefix
// fails.
func Run(t *testing.T, newCloud func(t *testing.T) Cloud) {
	for name, row := range map[string]func(*testing.T, func(*testing.T) Cloud){
		"observe finds all machines on more than one page, sorted by id":                                           observeFindsAllPages,
		"machines of another infraID are invisible":                                                                otherClustersAreInvisible,
		"a cluster without machines is no error":                                                                   emptyClusterIsNoError,
		"an empty infraID is refused":                                                                              emptyInfraIDIsRefused,
		"an unknown machine is not found, and the others are stopped or started":                                   unknownMachineIsNotFound,
		"wrong credentials are reported as invalid":                                                                wrongCredentialsAreInvalid,
		"missing credentials are reported":                                                                         missingCredentialsAreReported,
		"every class of error is reported, without the credentials":                                                errorClassesAreReported,
		"a cancelled context returns promptly with the context's error":                                            cancelledContextReturns,
		"calls from twenty goroutines are safe":                                                                    concurrentCallsAreSafe,
		"stop stops only the named machines":                                                                       stopsNamedMachinesOnly,
		"stop and start of no machine return no error":                                                             emptyListIsNoError,
		"stop is idempotent":                                                                                       stopIsIdempotent,
		"no machine is running or starting after a stop":                                                           stoppedMachinesStayStopped,
		"a machine that cannot be stopped yet does not prevent the stop of the others":                             stopsDespiteStartingMachine,
		"a machine that can never be stopped keeps the others running, unless the cloud stops machines one by one": stopsAllOrNone,
		"start is idempotent":                                                                                      startIsIdempotent,
		"start starts running, stopping and stopped machines in one call":                                          startsMixedStates,
		"a machine without capacity is named, and does not prevent the start of the others":                        startsDespiteNoCapacity,
		"clusters of one account are listed and stopped together":                                                  batchesClusters,
		"clusters are started together, and each has its own error":                                                startsClustersTogether,
		"an error of the account is returned for each of its clusters":                                             accountErrorIsOfEachCluster,
		"machines of one account have the same account name":                                                       machinesNameTheirAccount,
		"a stop also stops a machine that its guest has shut down":                                                 stopsWhatIsShutDown,
		"a stop can be repeated while its effect is not visible yet":                                               ordersDespiteLag,
		"machines in a group are reported with the group's name, and other machines without a group":               membersNameTheirGroup,
	} {
		t.Run(name, func(t *testing.T) { row(t, newCloud) })
	}
}

// callDeadline is much longer than any call to a simulated cloud takes.
const callDeadline = time.Minute

// testCluster is a Cloud with machines. Its methods are helpers for the tests.
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
	// Observe returns machines in the same order.
	slices.Sort(c.ids)
	return c
}

// call calls an operation; for Observe, ids are ignored.
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

func (c testCluster) mustCall(op Operation, ids ...string) {
	c.t.Helper()
	if err := c.call(c.t.Context(), op, c.Target(), ids); err != nil {
		c.t.Fatalf("%s %v: %v", op, ids, err)
	}
}

// callMayBeRefused calls an operation, which may fail with WrongState.
func (c testCluster) callMayBeRefused(op Operation, ids ...string) {
	c.t.Helper()
	if err := c.call(c.t.Context(), op, c.Target(), ids); err != nil && actuator.ClassOf(err) != actuator.WrongState {
		c.t.Fatalf("%s %v: %v, want no error or class %q", op, ids, err, actuator.WrongState)
	}
}

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

// expectSettled waits until no machine is in transition. Each id of want must then have its state in want, and every
// other machine the state rest.
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

func (c testCluster) expectError(op Operation, target actuator.Target, class actuator.ErrorClass, ids ...string) error {
	c.t.Helper()
	err := c.call(c.t.Context(), op, target, ids)
	if err == nil || actuator.ClassOf(err) != class {
		c.t.Errorf("%s: error %v has class %q, want %q", op, err, actuator.ClassOf(err), class)
	}
	return err
}

func observeFindsAllPages(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 12)
	machines, err := c.Actuator().Observe(t.Context(), c.Target())
	if err != nil {
		t.Fatalf("observe: %v", err)
	}
	var found []string
	for _, m := range machines {
		found = append(found, m.ID)
		if m.State != actuator.Running {
			t.Errorf("machine %s is %s, want running", m.ID, m.State)
		}
	}
	if diff := cmp.Diff(c.ids, found); diff != "" {
		t.Errorf("machines in order (-want +got):\n%s", diff)
	}
}

func otherClustersAreInvisible(t *testing.T, newCloud func(*testing.T) Cloud) {
	one, other := newCluster(t, newCloud, 2), newCluster(t, newCloud, 3)
	if one.Target().InfraID == other.Target().InfraID {
		t.Fatal("the test's clouds share an infraID")
	}
	one.expectSettled(actuator.Running, nil)
	other.expectSettled(actuator.Running, nil)
}

func emptyClusterIsNoError(t *testing.T, newCloud func(*testing.T) Cloud) {
	if found := newCluster(t, newCloud, 0).observeStates(); len(found) > 0 {
		t.Errorf("machines of an empty cluster: %v", found)
	}
}

func emptyInfraIDIsRefused(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 1)
	target := c.Target()
	target.InfraID = ""
	machines, err := c.Actuator().Observe(t.Context(), target)
	if err == nil || len(machines) > 0 {
		t.Errorf("observe without an infraID: %v and error %v, want an error only", machines, err)
	}
}

func unknownMachineIsNotFound(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 3)
	named := slices.Concat(c.ids[:1], []string{unknownIDLike(c.ids)}, c.ids[1:])
	_ = c.expectError(Stop, c.Target(), actuator.NotFound, named...)
	c.expectSettled(actuator.Stopped, nil)
	_ = c.expectError(Start, c.Target(), actuator.NotFound, named...)
	c.expectSettled(actuator.Running, nil)
}

// unknownIDLike returns a well-formed ID that is not among ids.
func unknownIDLike(ids []string) string {
	// A malformed ID would cause another error.
	stem := ids[0][:len(ids[0])-1]
	for _, last := range []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"} {
		if !slices.Contains(ids, stem+last) {
			return stem + last
		}
	}
	return stem
}

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
	// The machine that was starting may be running or stopped; another stop stops it.
	c.mustCall(Stop, c.ids[1])
	c.expectSettled(actuator.Stopped, nil)
}

func stopsAllOrNone(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 4)
	if !c.Fail(t, actuator.Other, Stop, c.ids[2]) {
		t.Skip("every machine of the test's cloud can be stopped")
	}
	err := c.expectError(Stop, c.Target(), actuator.Other, c.ids...)
	if _, isOneByOne := c.Cloud.(OneByOneCloud); isOneByOne {
		c.expectRefused(err, c.ids[2])
		c.expectSettled(actuator.Stopped, map[string]actuator.MachineState{c.ids[2]: actuator.Running})
		return
	}
	c.expectSettled(actuator.Running, nil)
}

// expectRefused expects RefusedIDs of the error to contain only this machine.
func (c testCluster) expectRefused(err error, id string) {
	c.t.Helper()
	known, ok := errors.AsType[*actuator.Error](err)
	if !ok || !slices.Equal(known.RefusedIDs, []string{id}) {
		c.t.Errorf("error %v, want one that names %s as the only refused machine", err, id)
	}
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
	// The machine in the middle fails, so that an actuator that stops at the first error leaves machines stopped.
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

// batchesClusters is skipped unless the actuator implements actuator.BatchActuator.
func batchesClusters(t *testing.T, newCloud func(*testing.T) Cloud) {
	one, other, empty := newCluster(t, newCloud, 2), newCluster(t, newCloud, 3), newCluster(t, newCloud, 0)
	batch, ok := one.Actuator().(actuator.BatchActuator)
	if !ok {
		t.Skip("this actuator observes each cluster separately")
	}
	account, err := batch.AccountOf(t.Context(), one.Target())
	if again, _ := batch.AccountOf(t.Context(), other.Target()); err != nil || again != account {
		t.Errorf("clusters of one account have the account names %q and %q, error %v", account, again, err)
	}
	infraIDs := []string{one.Target().InfraID, other.Target().InfraID, empty.Target().InfraID}
	found, err := batch.ObserveAll(t.Context(), one.Target(), infraIDs)
	if err != nil {
		t.Fatalf("observe all: %v", err)
	}
	for i, c := range []testCluster{one, other, empty} {
		var ids []string
		for _, m := range found[infraIDs[i]] {
			ids = append(ids, m.ID)
		}
		if !slices.Equal(ids, c.ids) {
			t.Errorf("%s has the machines %v, want %v", infraIDs[i], ids, c.ids)
		}
	}
	if !one.Fail(t, actuator.Other, Stop, one.ids[0]) {
		t.Skip("the test's cloud cannot fail this way")
	}
	errs := batch.StopAll(t.Context(), one.Target(), [][]string{one.ids, other.ids})
	if len(errs) != 2 || errs[0] == nil || errs[1] != nil || !strings.Contains(errs[0].Error(), one.ids[0]) {
		t.Errorf("errors %v, want one that names %s, and none of the other cluster", errs, one.ids[0])
	}
	other.expectSettled(actuator.Stopped, nil)
}

// startsClustersTogether is skipped unless the actuator implements actuator.BatchActuator.
func startsClustersTogether(t *testing.T, newCloud func(*testing.T) Cloud) {
	one, other := newCluster(t, newCloud, 3), newCluster(t, newCloud, 2)
	batch, ok := one.Actuator().(actuator.BatchActuator)
	if !ok {
		t.Skip("this actuator observes each cluster separately")
	}
	for i, err := range batch.StopAll(t.Context(), one.Target(), [][]string{one.ids, other.ids}) {
		if err != nil {
			t.Fatalf("stop cluster %d: %v", i, err)
		}
	}
	one.expectSettled(actuator.Stopped, nil)
	other.expectSettled(actuator.Stopped, nil)
	poor := one.ids[1]
	if !one.Fail(t, actuator.NoCapacity, Start, poor) {
		t.Skip("the test's cloud always has capacity")
	}
	errs := batch.StartAll(t.Context(), one.Target(), [][]string{one.ids, other.ids, nil})
	if len(errs) != 3 || actuator.ClassOf(errs[0]) != actuator.NoCapacity || errs[1] != nil || errs[2] != nil {
		t.Fatalf("errors %v, want one of class %q for the first of three clusters", errs, actuator.NoCapacity)
	}
	one.expectRefused(errs[0], poor)
	one.expectSettled(actuator.Running, map[string]actuator.MachineState{poor: actuator.Stopped})
	other.expectSettled(actuator.Running, nil)
}

// accountErrorIsOfEachCluster is skipped unless the actuator implements actuator.BatchActuator.
func accountErrorIsOfEachCluster(t *testing.T, newCloud func(*testing.T) Cloud) {
	one, other := newCluster(t, newCloud, 1), newCluster(t, newCloud, 2)
	batch, ok := one.Actuator().(actuator.BatchActuator)
	if !ok {
		t.Skip("this actuator observes each cluster separately")
	}
	for op, do := range map[Operation]func(context.Context, actuator.Target, [][]string) []error{Stop: batch.StopAll, Start: batch.StartAll} {
		if !one.Fail(t, actuator.Throttled, op) {
			t.Skip("the test's cloud cannot be throttled")
		}
		errs := do(t.Context(), one.Target(), [][]string{one.ids, other.ids})
		if len(errs) != 2 || actuator.ClassOf(errs[0]) != actuator.Throttled || actuator.ClassOf(errs[1]) != actuator.Throttled {
			t.Errorf("%s: errors %v, want two of class %q", op, errs, actuator.Throttled)
		}
	}
	one.expectSettled(actuator.Running, nil)
	other.expectSettled(actuator.Running, nil)
}

// machinesNameTheirAccount compares two clusters of one account. Only a test of the implementation can verify that
// different accounts have different names.
func machinesNameTheirAccount(t *testing.T, newCloud func(*testing.T) Cloud) {
	one, other := newCluster(t, newCloud, 1), newCluster(t, newCloud, 1)
	accounts := map[string]bool{}
	for _, c := range []testCluster{one, other} {
		machines, err := c.Actuator().Observe(t.Context(), c.Target())
		if err != nil || len(machines) != 1 {
			t.Fatalf("observe: %v and error %v, want one machine", machines, err)
		}
		accounts[machines[0].Account] = true
	}
	if len(accounts) != 1 {
		t.Errorf("machines of one account have the account names %v, want one name", slices.Sorted(maps.Keys(accounts)))
	}
}

func stopsWhatIsShutDown(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 2)
	cloud, ok := c.Cloud.(ShutdownCloud)
	if !ok {
		t.Skip("a machine of the test's cloud costs nothing after a shutdown by its guest")
	}
	cloud.ShutDown(t, c.ids[0])
	c.expectHeld(c.ids[0])
	c.mustCall(Stop, c.ids...)
	c.expectSettled(actuator.Stopped, nil)
	c.expectHeld()
	c.mustCall(Start, c.ids...)
	c.expectSettled(actuator.Running, nil)
	cloud.ShutDown(t, c.ids[1])
	c.mustCall(Start, c.ids...)
	c.expectSettled(actuator.Running, nil)
	c.expectHeld()
}

// expectHeld expects that exactly these stopped machines still occupy capacity.
func (c testCluster) expectHeld(ids ...string) {
	c.t.Helper()
	machines, err := c.Actuator().Observe(c.t.Context(), c.Target())
	if err != nil {
		c.t.Fatalf("observe: %v", err)
	}
	var held []string
	for _, m := range machines {
		if m.HoldsCapacity && m.State == actuator.Stopped {
			held = append(held, m.ID)
		}
	}
	if !slices.Equal(held, ids) {
		c.t.Errorf("stopped machines that hold capacity: %v, want %v", held, ids)
	}
}

func ordersDespiteLag(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 2)
	cloud, ok := c.Cloud.(LateCloud)
	if !ok {
		t.Skip("observations of the test's cloud are never late")
	}
	cloud.Delay(t)
	for range 2 {
		// A caller that observes a stopped machine as running repeats the stop.
		c.mustCall(Stop, c.ids...)
		c.observeStates()
	}
	c.eventually("all machines are seen stopped", func() bool {
		for _, state := range c.observeStates() {
			if state != actuator.Stopped {
				return false
			}
		}
		return true
	})
}

// membersNameTheirGroup checks the field Group. If it is set, the manager does not stop the machine before it has
// suspended or scaled the group.
func membersNameTheirGroup(t *testing.T, newCloud func(*testing.T) Cloud) {
	c, other := newCluster(t, newCloud, 3), newCluster(t, newCloud, 1)
	cloud, ok := c.Cloud.(GroupCloud)
	if !ok {
		t.Skip("the test's cloud has no groups, or does not show them")
	}
	cloud.JoinGroup(t, c.ids[0], "workers-a")
	cloud.JoinGroup(t, c.ids[2], "workers-b")
	for range 2 { // The second observation must not lose the group through a cache.
		for _, row := range []struct {
			cluster testCluster
			want    []string
		}{{c, []string{"workers-a", "", "workers-b"}}, {other, []string{""}}} {
			machines, err := row.cluster.Actuator().Observe(t.Context(), row.cluster.Target())
			var groups []string
			for _, m := range machines {
				groups = append(groups, m.Group)
			}
			if err != nil || !slices.Equal(groups, row.want) {
				t.Errorf("groups of %s: %q and error %v, want %q", row.cluster.Target().InfraID, groups, err, row.want)
			}
		}
	}
}

func allOperations() []Operation { return []Operation{Observe, Stop, Start} }

func wrongCredentialsAreInvalid(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 1)
	target := c.Target()
	target.Credentials = map[string][]byte{}
	for key := range c.Target().Credentials {
		target.Credentials[key] = []byte("this-is-wrong-" + key)
	}
	for _, op := range allOperations() {
		expectNoSecrets(t, c.expectError(op, target, actuator.CredentialsInvalid, c.ids...), target)
	}
	c.expectSettled(actuator.Running, nil)
}

func missingCredentialsAreReported(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 1)
	target := c.Target()
	for _, none := range []map[string][]byte{nil, {}, {"unrelated": []byte("value")}} {
		target.Credentials = none
		for _, op := range allOperations() {
			_ = c.expectError(op, target, actuator.CredentialsMissing, c.ids...)
		}
	}
	c.expectSettled(actuator.Running, nil)
}

func errorClassesAreReported(t *testing.T, newCloud func(*testing.T) Cloud) {
	classes := []actuator.ErrorClass{
		actuator.CredentialsInvalid, actuator.PermissionDenied, actuator.Unreachable, actuator.Throttled,
		actuator.NoCapacity, actuator.WrongState, actuator.NotFound, actuator.Other,
	}
	reported := 0
	for _, class := range classes {
		for _, op := range allOperations() {
			t.Run(string(op)+" with "+string(class), func(t *testing.T) {
				c := newCluster(t, newCloud, 2)
				if !c.Fail(t, class, op) {
					t.Skip("the test's cloud cannot fail this way")
				}
				reported++
				// The message is shown in a condition, so each change to it would cause a write and an event for
				// every watcher.
				first := c.expectError(op, c.Target(), class, c.ids...)
				again := c.expectError(op, c.Target(), class, c.ids...)
				expectNoSecrets(t, first, c.Target())
				if first != nil && again != nil && first.Error() != again.Error() {
					t.Errorf("the message changes although the error does not:\n%s\n%s", first, again)
				}
			})
		}
	}
	if reported == 0 {
		t.Error("expected Fail to support at least one class of error, found none; errors of the actuator stay untested")
	}
}

// expectNoSecrets expects that the error contains no value of the credentials.
func expectNoSecrets(t *testing.T, err error, target actuator.Target) {
	t.Helper()
	for key, value := range target.Credentials {
		if err != nil && strings.Contains(err.Error(), string(value)) {
			t.Errorf("the error holds the value of %s: %v", key, err)
		}
	}
}

func cancelledContextReturns(t *testing.T, newCloud func(*testing.T) Cloud) {
	c := newCluster(t, newCloud, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, op := range allOperations() {
		// The goroutine prevents an actuator that ignores its context from blocking the test.
		answered := make(chan error, 1)
		go func() { answered <- c.call(ctx, op, c.Target(), c.ids) }()
		waiting, done := context.WithTimeout(t.Context(), callDeadline)
		defer done()
		select {
		case err := <-answered:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s with a cancelled context: %v, want %v", op, err, context.Canceled)
			}
		case <-waiting.Done():
			t.Fatalf("%s with a cancelled context does not return", op)
		}
	}
	c.expectSettled(actuator.Running, nil)
}

func concurrentCallsAreSafe(t *testing.T, newCloud func(*testing.T) Cloud) {
	const callers = 20
	c := newCluster(t, newCloud, 6)
	var work sync.WaitGroup
	for range callers {
		work.Go(func() {
			if err := c.call(t.Context(), Stop, c.Target(), c.ids); err != nil {
				t.Errorf("stop: %v", err)
			}
			machines, err := c.Actuator().Observe(t.Context(), c.Target())
			if err != nil || len(machines) != len(c.ids) {
				t.Errorf("observe: %d machines and error %v, want %d machines", len(machines), err, len(c.ids))
			}
		})
	}
	work.Wait()
	c.expectSettled(actuator.Stopped, nil)
}
