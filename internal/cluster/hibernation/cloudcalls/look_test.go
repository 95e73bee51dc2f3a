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

// scriptedLooks returns one result after the other, and repeats the last one.
type scriptedLooks struct {
	actuator.BatchActuator
	answers []error
}

func (s *scriptedLooks) ObserveAll(_ context.Context, _ actuator.Target, infraIDs []string) (map[string][]actuator.Machine, error) {
	err := s.answers[0]
	s.answers = s.answers[min(1, len(s.answers)-1):]
	found := map[string][]actuator.Machine{}
	for _, infraID := range infraIDs {
		found[infraID] = []actuator.Machine{{ID: infraID + "-0"}}
	}
	return found, err
}

func TestUnpolledClustersGetTheErrorOfTheAccount(t *testing.T) {
	ofOne, throttled := errors.New("a machine is in an unknown state"), actuator.Errorf(actuator.Throttled, "slow down")
	for name, answers := range map[string][]error{
		"throttling in the first half of the clusters makes no cluster seem empty":     {ofOne, throttled, nil},
		"throttling in the first quarter of the clusters makes no cluster seem empty":  {ofOne, ofOne, throttled, nil},
		"throttling in the second quarter of the clusters makes no cluster seem empty": {ofOne, ofOne, nil, throttled, nil},
		"throttling in the second half of the clusters makes no cluster seem empty":    {ofOne, nil, throttled},
		"throttling of the first poll makes no cluster seem empty":                     {throttled},
	} {
		infraIDs, found := []string{"a", "b", "c", "d"}, map[string]Snapshot{}
		if err := observeParts(t.Context(), &scriptedLooks{answers: answers}, actuator.Target{}, infraIDs, found); !errors.Is(err, throttled) {
			t.Errorf("%s: expected %v, found %v", name, throttled, err)
		}
		for _, infraID := range infraIDs {
			if seen := found[infraID]; seen.Err == nil && len(seen.Machines) == 0 {
				t.Errorf("%s: %s seems to have no machines", name, infraID)
			}
		}
	}
}

func TestClustersRenamedDuringAPollArePolledAgain(t *testing.T) {
	runFleet(t, func(t *testing.T, f *fleet) {
		f.look("another", "a") // This cluster keeps the account in memory.
		f.look("before", "a")
		f.service.RefreshMachines(named("before"))
		elapse(gatherTime + callLatency/2)
		renamed := Cluster{Name: named("before"), Actuator: f.cloud, Target: actuator.Target{InfraID: "after", Region: "a"}}
		f.service.Look(t.Context(), renamed)
		f.service.RefreshMachines(named("before"))
		elapse(callLatency)
		if seen, isKnown := f.service.Look(t.Context(), renamed); isKnown {
			t.Errorf("expected no state from a poll of other machines, found %+v", seen)
		}
		elapse(5 * time.Second)
		if seen, isKnown := f.service.Look(t.Context(), renamed); !isKnown || len(seen.Machines) != 2 {
			t.Errorf("expected two machines, found %+v, %t", seen, isKnown)
		}
	})
}

// accountOfClusters returns an account of clusters that are off, in the order of their last poll. The clusters have
// the given numbers of machines.
func accountOfClusters(now time.Time, machines ...int) *account {
	a := newAccount("key", nil, now)
	for i, count := range machines {
		name := named(fmt.Sprintf("c%d", i))
		a.clusters[name] = &cluster{Cluster: Cluster{Name: name}, account: a, snapshot: Snapshot{
			At: now.Add(time.Duration(i) - time.Hour), Machines: slices.Repeat([]actuator.Machine{{State: actuator.Stopped}}, count),
		}}
	}
	return a
}

func TestLargeStoppedClusterDoesNotDelayOthers(t *testing.T) {
	now := time.Now()
	for name, row := range map[string]struct {
		machines []int
		turns    int
	}{
		"clusters that fit into one call are all polled within two turns":                          {[]int{200, 300, 1}, 2},
		"cluster of more than one call and a small cluster are both polled within two turns":       {[]int{machinesPerCall + 1, 1}, 2},
		"cluster that exactly fills one call and a small cluster are both polled within two turns": {[]int{machinesPerCall, 1}, 2},
		"two clusters of two calls each and a small cluster are all polled within three turns":     {[]int{2 * machinesPerCall, 2 * machinesPerCall, 3}, 3},
	} {
		a := accountOfClusters(now, row.machines...)
		for turn := range row.turns {
			at := now.Add(time.Duration(turn+1) * turnInterval)
			a.queueOffClusters(at)
			for name := range a.wanted {
				a.clusters[name].snapshot.At = at
			}
			clear(a.wanted)
		}
		for cluster, c := range a.clusters {
			if c.snapshot.At.Before(now) {
				t.Errorf("%s: %s was not polled in %d turns", name, cluster.Name, row.turns)
			}
		}
	}
}

func TestAwaitedClustersArePolledFirst(t *testing.T) {
	now := time.Now()
	const count = maxDriftLook + 50
	for name, row := range map[string]struct {
		// lastPoll is the age of the newest result; negative if the cluster was never polled.
		lastPoll time.Duration
		want     int
	}{
		"poll with a cluster that was polled a second ago has at most maxLook clusters": {time.Second, maxLook},
		"poll with a cluster that was never polled has at most maxLook clusters":        {-1, maxLook},
		"poll of settled clusters has up to maxDriftLook clusters":                      {time.Hour, maxDriftLook},
	} {
		a := accountOfClusters(now, slices.Repeat([]int{1}, count)...)
		for i := range count {
			a.want(named(fmt.Sprintf("c%d", i)), demand{due: now.Add(-time.Duration(i)), isAwaited: i < 10})
		}
		if a.clusters[named("c99")].snapshot.At = now.Add(-row.lastPoll); row.lastPoll < 0 {
			a.clusters[named("c99")].snapshot = Snapshot{}
		}
		names := a.listDue(now)
		for i := range 10 {
			if cluster := named(fmt.Sprintf("c%d", i)); !slices.Contains(names, cluster) {
				t.Errorf("%s: %s, which a pass waits for, is not among the %d polled clusters", name, cluster.Name, len(names))
			}
		}
		if oldest := named(fmt.Sprintf("c%d", count-1)); names[10] != oldest || len(names) != row.want {
			t.Errorf("%s: expected %s, which is due for longest, to be the next of %d, found %s of %d", name, oldest.Name, row.want, names[10].Name, len(names))
		}
	}
}
