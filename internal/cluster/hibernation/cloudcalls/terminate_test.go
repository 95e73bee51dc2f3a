// SPDX-License-Identifier: Apache-2.0

package cloudcalls

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/actuator"
)

// spotCloud is a batchCloud that terminates machines.
type spotCloud struct {
	*batchCloud
	isDenied   bool
	terminated []string
}

func (c *spotCloud) RequireTerminateRights(context.Context, actuator.Target, []string) error {
	if c.isDenied {
		return &actuator.Error{Class: actuator.PermissionDenied, Message: "no"}
	}
	return nil
}

func (c *spotCloud) TerminateAll(_ context.Context, _ actuator.Target, clusters [][]string) []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.terminated = append(c.terminated, slices.Concat(clusters...)...)
	return make([]error, len(clusters))
}

// know polls the cluster c in the given cloud.
func (f *fleet) know(cloud actuator.Actuator) Snapshot {
	f.t.Helper()
	const name = "c"
	for range 10 {
		if seen, isKnown := f.service.Look(f.t.Context(), Cluster{Name: named(name), Actuator: cloud, Target: actuator.Target{InfraID: name, Region: "spot"}}); isKnown {
			return seen
		}
		f.service.RefreshMachines(named(name))
		elapse(2 * time.Second)
	}
	f.t.Fatalf("%s is not known", name)
	return Snapshot{}
}

func TestStopsRequireTheRightsToTerminateSpotMachines(t *testing.T) {
	for name, row := range map[string]struct {
		cloud func(*batchCloud) actuator.Actuator
		want  actuator.ErrorClass
	}{
		"stop without the right to terminate is refused":            {func(c *batchCloud) actuator.Actuator { return &spotCloud{batchCloud: c, isDenied: true} }, actuator.PermissionDenied},
		"stop is refused in a cloud that cannot terminate machines": {func(c *batchCloud) actuator.Actuator { return c }, actuator.Other},
		"stop with the rights to stop and to terminate is accepted": {func(c *batchCloud) actuator.Actuator { return &spotCloud{batchCloud: c} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			runFleet(t, func(t *testing.T, f *fleet) {
				cloud := row.cloud(f.cloud)
				f.know(cloud)
				f.service.OrderStop(named("c"), StopOrder{IDs: []string{"c-0"}, TerminatedLater: []string{"c-1"}}, 0)
				elapse(2 * time.Second)
				seen := f.know(cloud)
				if isStopped := len(f.cloud.machines) > 0; isStopped != (row.want == "") || isStopped != (seen.Refused == nil) {
					t.Errorf("stopped: %t, refused: %+v", isStopped, seen.Refused)
				}
				if row.want != "" && seen.Refused != nil && actuator.ClassOf(seen.Refused.Err) != row.want {
					t.Errorf("expected the class %q, found %v", row.want, seen.Refused.Err)
				}
			})
		})
	}
}

func TestATerminationReadsTheSpecBefore(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		cloud := &spotCloud{batchCloud: f.cloud}
		f.know(cloud)
		f.setRunning("c", true)
		f.service.Order(named("c"), TerminateVerb, []string{"c-1"}, 0)
		elapse(2 * time.Second)
		if len(cloud.terminated) > 0 {
			t.Errorf("expected nothing of a cluster that should run to be terminated, found %v", cloud.terminated)
		}
		f.setRunning("c", false)
		f.service.Order(named("c"), TerminateVerb, []string{"c-1"}, 0)
		elapse(2 * time.Second)
		if !slices.Equal(cloud.terminated, []string{"c-1"}) {
			t.Errorf("expected c-1 to be terminated, found %v", cloud.terminated)
		}
		if got, want := stateOf(f.know(cloud)), states("c", actuator.Running, actuator.Stopping); got != want {
			t.Errorf("expected %q until the cloud shows it, found %q", want, got)
		}
	})
}
