// SPDX-License-Identifier: Apache-2.0

package cloudcalls

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/actuator"
)

// driftingCloud is an account with clusters of six machines. It records the times of its API calls.
type driftingCloud struct {
	actuator.Actuator
	actuator.BatchActuator

	mu sync.Mutex
	// state is the state of all machines except changed. That machine is stopped if state is Running, and running
	// otherwise.
	state   actuator.MachineState
	changed string
	// total is the number of machines of an account that is always listed as a whole; zero if the cloud lists only
	// requested clusters.
	total int
	calls []time.Time
}

const (
	driftingMachines = 6
	// runningPassInterval is the interval between the passes of a running cluster.
	runningPassInterval = 10 * time.Minute
)

func (*driftingCloud) Platform() string { return "drifting" }

func (*driftingCloud) AccountOf(context.Context, actuator.Target) (string, error) { return "a", nil }

// ObserveAll makes the calls of EC2 for listed clusters, and those of Compute Engine for a whole account.
func (c *driftingCloud) ObserveAll(_ context.Context, _ actuator.Target, infraIDs []string) (map[string][]actuator.Machine, error) {
	found, calls := map[string][]actuator.Machine{}, pagesOf(c.total)
	for some := range slices.Chunk(infraIDs, clustersPerCall) {
		if c.total == 0 {
			calls += pagesOf(len(some) * driftingMachines)
		}
	}
	for range calls {
		c.mu.Lock()
		c.calls = append(c.calls, time.Now())
		c.mu.Unlock()
		elapseCall()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, infraID := range infraIDs {
		for i := range driftingMachines {
			m := actuator.Machine{ID: fmt.Sprintf("%s-%d", infraID, i), State: c.state}
			if m.ID == c.changed {
				m.State = map[actuator.MachineState]actuator.MachineState{actuator.Running: actuator.Stopped, actuator.Stopped: actuator.Running}[c.state]
			}
			found[infraID] = append(found[infraID], m)
		}
	}
	return found, nil
}

func pagesOf(machines int) int { return (machines + machinesPerCall - 1) / machinesPerCall }

// elapseCall waits for the duration of a quick call.
func elapseCall() { <-time.After(callLatency / 4) }

func (c *driftingCloud) change(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = id
}

// takeCalls returns and clears the times of the calls.
func (c *driftingCloud) takeCalls() []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

// driftingFleet runs passes as the controller does: every ten minutes for a running cluster, and every hour for a
// hibernating one.
type driftingFleet struct {
	*fleet
	cloud *driftingCloud
	names []string
	every time.Duration
	due   map[string]time.Time
}

// run runs due passes for a time. It returns early with true once the awaited cluster was enqueued because of a
// change.
func (f *driftingFleet) run(period time.Duration, awaited string) bool {
	for end := time.Now().Add(period); time.Now().Before(end); elapse(5 * time.Second) {
		enqueued := f.take()
		if slices.Contains(enqueued, awaited) {
			return true
		}
		for _, name := range enqueued {
			f.pass(name)
		}
		for _, name := range f.names {
			if at := f.due[name]; !at.After(time.Now()) {
				f.pass(name)
			}
		}
	}
	return false
}

func (f *driftingFleet) pass(name string) {
	seen, isKnown := f.service.Look(f.t.Context(), Cluster{Name: named(name), Actuator: f.cloud, Target: actuator.Target{InfraID: name}})
	isFresh := isKnown && (seen.IsAnswer || f.cloud.state == actuator.Stopped || time.Since(seen.At) < SettledLookAge)
	f.due[name] = time.Now().Add(f.every)
	if !isFresh {
		f.service.RefreshMachines(named(name))
		return
	}
	f.service.Watch(named(name), 0)
	f.service.FinishPass(named(name), f.every)
}

// TestDriftOfALargeAccountIsFoundInTime changes the state of one of 60,000 machines in an account.
func TestDriftOfALargeAccountIsFoundInTime(t *testing.T) {
	const clusters, within = 10_000, 15 * time.Minute
	for name, row := range map[string]struct {
		state actuator.MachineState
		total int
	}{
		"hibernating clusters in a cloud that lists only requested clusters": {actuator.Stopped, 0},
		"hibernating clusters in a cloud that always lists whole accounts":   {actuator.Stopped, clusters * driftingMachines},
		"running clusters in a cloud that lists only requested clusters":     {actuator.Running, 0},
		"running clusters in a cloud that always lists whole accounts":       {actuator.Running, clusters * driftingMachines},
	} {
		t.Run(name, func(t *testing.T) {
			runFleet(t, func(t *testing.T, f *fleet) {
				every := map[actuator.MachineState]time.Duration{actuator.Stopped: time.Hour, actuator.Running: runningPassInterval}[row.state]
				d := &driftingFleet{fleet: f, cloud: &driftingCloud{state: row.state, total: row.total}, every: every, due: map[string]time.Time{}}
				for i := range clusters {
					d.names = append(d.names, fmt.Sprintf("c%d", i))
					d.due[d.names[i]] = time.Now().Add(runningPassInterval * time.Duration(i) / clusters)
				}
				d.run(runningPassInterval+within, "") // Each cluster has run its first pass, and the fleet is settled.
				d.cloud.takeCalls()
				for i := range 3 {
					at := d.names[(i*3749+13)%clusters]
					began := time.Now()
					d.cloud.change(at + "-3")
					isFound := d.run(within, at)
					if took := time.Since(began); !isFound {
						t.Errorf("expected the drift of %s within %s, found none after %s", at, within, took)
					} else {
						t.Logf("drift of %s found after %s", at, took)
					}
					d.pass(at)
					d.run(runningPassInterval-1, "")
				}
				calls := d.cloud.takeCalls()
				spent := calls[len(calls)-1].Sub(calls[0])
				t.Logf("%d calls in %s, %.2f a second", len(calls), spent, float64(len(calls))/spent.Seconds())
				if float64(len(calls)) > spent.Seconds() {
					t.Errorf("expected at most one call a second, found %d in %s", len(calls), spent)
				}
			})
		})
	}
}
