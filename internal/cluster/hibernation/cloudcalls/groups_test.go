// SPDX-License-Identifier: Apache-2.0

package cloudcalls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/torpor-dev/torpor/actuator"
)

// groupCloud is a batchCloud with one group, whose processes can be suspended.
type groupCloud struct {
	*batchCloud
	group actuator.Group
	polls int
	// sizes is the number of polls that requested the size of a group.
	sizes   int
	changed int
	refused error
	// delay is the duration of each change to a group.
	delay time.Duration
}

func (c *groupCloud) ObserveGroups(_ context.Context, _ actuator.Target, queries []actuator.GroupQuery) ([]actuator.Group, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.polls++
	if slices.ContainsFunc(queries, func(q actuator.GroupQuery) bool { return q.WantsSize }) {
		c.sizes++
	}
	if !slices.ContainsFunc(queries, func(q actuator.GroupQuery) bool { return q.Name == c.group.Name }) {
		return nil, c.refused
	}
	return []actuator.Group{c.group}, c.refused
}

func (c *groupCloud) ChangeGroups(_ context.Context, _ actuator.Target, changes []actuator.GroupChange) error {
	<-time.After(c.delay)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range changes {
		c.changed++
		c.group.Suspended = slices.Concat(c.group.Suspended, change.Suspend)
	}
	return nil
}

// runGroup runs a test with the cluster c. One of its machines is a member of the group workers.
func runGroup(t *testing.T, test func(t *testing.T, f *fleet, cloud *groupCloud)) {
	t.Helper()
	runFleet(t, func(t *testing.T, f *fleet) {
		f.cloud.groups = map[string]string{"c-0": "workers"}
		test(t, f, &groupCloud{batchCloud: f.cloud, group: actuator.Group{Name: "workers", Processes: []string{"Launch", "Terminate"}}})
	})
}

func (f *fleet) lookWithGroups(cloud *groupCloud) (Snapshot, bool) {
	f.t.Helper()
	return f.service.Look(f.t.Context(), Cluster{Name: named("c"), Actuator: cloud, Target: actuator.Target{InfraID: "c", Region: "groups"}, WantsGroups: true})
}

func (f *fleet) knowGroup(cloud *groupCloud) Snapshot {
	f.t.Helper()
	for range 10 {
		if seen, isKnown := f.lookWithGroups(cloud); isKnown {
			return seen
		}
		f.service.RefreshMachines(named("c"))
		elapse(2 * time.Second)
	}
	f.t.Fatal("the cluster is not known")
	return Snapshot{}
}

func suspendAll() []actuator.GroupChange {
	return []actuator.GroupChange{{Name: "workers", Suspend: []string{"Launch", "Terminate"}}}
}

func TestGroupsArePolledOnlyOnRequest(t *testing.T) {
	runGroup(t, func(t *testing.T, f *fleet, cloud *groupCloud) {
		f.know(cloud)
		if cloud.polls != 0 {
			t.Errorf("expected no poll of groups, found %d", cloud.polls)
		}
		if seen := f.knowGroup(cloud); len(seen.Groups) != 1 || seen.Groups[0].Name != "workers" {
			t.Errorf("expected the group of the machine, found %+v", seen.Groups)
		}
		cloud.mu.Lock()
		cloud.refused = &actuator.Error{Class: actuator.PermissionDenied, Message: "no"}
		cloud.mu.Unlock()
		f.service.RefreshMachines(named("c"))
		elapse(2 * time.Second)
		if seen := f.knowGroup(cloud); actuator.ClassOf(seen.Err) != actuator.PermissionDenied {
			t.Errorf("expected the error of the groups, found %+v", seen)
		}
	})
}

// A cluster that has begun to request sizes must not use the result of a poll without sizes.
func TestSizesAreReadOnlyOnRequest(t *testing.T) {
	runGroup(t, func(t *testing.T, f *fleet, cloud *groupCloud) {
		f.knowGroup(cloud)
		if cloud.sizes != 0 {
			t.Errorf("expected no poll of sizes, found %d", cloud.sizes)
		}
		sized := Cluster{Name: named("c"), Actuator: cloud, Target: actuator.Target{InfraID: "c", Region: "groups"}, WantsGroups: true, WantsSizes: true}
		if seen, isKnown := f.service.Look(t.Context(), sized); isKnown {
			t.Errorf("expected the sizes to be unknown, found %+v", seen.Groups)
		}
		f.service.RefreshMachines(named("c"))
		elapse(2 * time.Second)
		if seen, isKnown := f.service.Look(t.Context(), sized); !isKnown || len(seen.Groups) != 1 || cloud.sizes == 0 {
			t.Errorf("expected the group with its size, found %+v after %d polls of sizes", seen.Groups, cloud.sizes)
		}
	})
}

func TestMemberIsStoppedOnlyIfItsGroupIsSuspended(t *testing.T) {
	runGroup(t, func(t *testing.T, f *fleet, cloud *groupCloud) {
		f.knowGroup(cloud)
		f.service.OrderStop(named("c"), StopOrder{IDs: []string{"c-0"}}, 0)
		elapse(2 * time.Second)
		if len(f.cloud.ordered) > 0 {
			t.Errorf("expected no order for a member of a group that acts, found %v", f.cloud.ordered)
		}
		f.service.OrderGroups(named("c"), HoldVerb, suspendAll(), 0)
		elapse(2 * time.Second)
		f.knowGroup(cloud)
		f.service.OrderStop(named("c"), StopOrder{IDs: []string{"c-0"}}, 0)
		elapse(2 * time.Second)
		if len(f.cloud.ordered) != 1 {
			t.Errorf("expected one order for a member of a suspended group, found %v", f.cloud.ordered)
		}
	})
}

// Changing the groups of 40 clusters one after another would take as long as stopping the machines of a fleet.
func TestGroupsOfClustersAreChangedInParallel(t *testing.T) {
	runGroup(t, func(t *testing.T, _ *fleet, cloud *groupCloud) {
		const clusters = 40
		cloud.delay = 400 * time.Millisecond
		var orders []*clusterOrder
		var names [][]string
		for n := range clusters {
			name := fmt.Sprint("workers-", n)
			names = append(names, []string{name})
			orders = append(orders, &clusterOrder{order: &order{changes: []actuator.GroupChange{{Name: name, Suspend: []string{"Launch"}}}}})
		}
		began := time.Now()
		errs := changeGroups(cloud, orders)(t.Context(), actuator.Target{}, names)
		if took, want := time.Since(began), clusters/parallelGroupChanges*cloud.delay; took != want {
			t.Errorf("expected %d changes at a time, which take %s, found %s", parallelGroupChanges, want, took)
		}
		if cloud.changed != clusters || len(errs) != clusters || errors.Join(errs...) != nil {
			t.Errorf("expected %d changes, found %d and %v", clusters, cloud.changed, errs)
		}
	})
}

func TestGroupsOfAClusterThatShouldRunAreNotHeld(t *testing.T) {
	runGroup(t, func(t *testing.T, f *fleet, cloud *groupCloud) {
		f.knowGroup(cloud)
		f.setRunning("c", true)
		f.service.OrderGroups(named("c"), HoldVerb, suspendAll(), 0)
		elapse(2 * time.Second)
		if cloud.changed > 0 {
			t.Errorf("expected no change to a group, found %d", cloud.changed)
		}
	})
}

// A poll from before the change returns the group's earlier state. A resume must not conclude that the group was never
// held.
func TestPollBeforeAGroupChangeIsIgnored(t *testing.T) {
	runGroup(t, func(t *testing.T, f *fleet, cloud *groupCloud) {
		cloud.delay = 5 * time.Second
		f.knowGroup(cloud)
		f.service.OrderGroups(named("c"), HoldVerb, suspendAll(), 0)
		elapse(time.Second)
		if seen, isKnown := f.lookWithGroups(cloud); isKnown {
			t.Errorf("expected the groups to be unknown during the order, found %+v", seen.Groups)
		}
		elapse(6 * time.Second)
		if seen := f.knowGroup(cloud); len(seen.Groups) != 1 || !seen.Groups[0].IsSuspended() {
			t.Errorf("expected the suspended group, found %+v", seen.Groups)
		}
	})
}
