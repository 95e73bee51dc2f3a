// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// shortLived is long enough for certificates to be renewed in time while a cluster is awake.
const shortLived = 25 * time.Second

// absence is more than the clocks of the hub and a cluster may differ.
const absence = 15 * time.Second

// TestKilledAtEveryAct kills the manager with kill -9 wherever something leaves it, before and after it arrives, and
// wants the story to end well each time. The acts are those of a story that is not disturbed, so that none is forgotten.
// Approvals need certificates that have expired, and those need time: one cluster has them, the other is quick.
func TestKilledAtEveryAct(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	full := os.Getenv("TORPOR_E2E") == "full"
	t.Logf("killing at every act: %t; TORPOR_E2E=full does, otherwise only stop, start, approval and record", full)
	expiring := w.newSleeper(t, "expiring", shortLived)

	var sleeping, waking []act
	t.Run("the story without disturbance", func(t *testing.T) {
		w.startManager(t)
		sleeping = expiring.through(t, hivev1.PowerStateHibernating)
		expiring.awaitExpiry(t)
		waking = expiring.through(t, hivev1.PowerStateRunning)
		t.Logf("to sleep: %v\nto wake: %v", writes(sleeping), writes(waking))
		expectActs(t, writes(sleeping), writes(waking))
	})
	t.Run("killed before and after record, stop, start and approval", func(t *testing.T) {
		w.startManager(t)
		expiring.through(t, hivev1.PowerStateHibernating,
			point{saveRecord, before}, point{saveRecord, after}, point{stopMachines, before}, point{stopMachines, after})
		expiring.awaitExpiry(t)
		expiring.through(t, hivev1.PowerStateRunning, point{startMachines, before}, point{startMachines, after},
			point{approveClient, before}, point{approveClient, after}, point{tellApproval, before})
	})
	if t.Failed() || !full {
		return
	}
	if err := w.hub.Client.Delete(t.Context(), expiring.deployment(t)); err != nil {
		t.Fatal(err)
	}
	quick := w.newSleeper(t, "quick", time.Hour)
	testKilledAtEach(t, quick, points(sleeping), points(waking))
	t.Run("killed at every read", func(t *testing.T) {
		w.startManager(t)
		quick.through(t, hivev1.PowerStateHibernating, reads(sleeping)...)
		quick.through(t, hivev1.PowerStateRunning, reads(waking)...)
	})
}

// testKilledAtEach has one point in each way to sleep and one in each way back.
func testKilledAtEach(t *testing.T, s *sleeper, sleeping, waking []point) {
	t.Helper()
	for i := range max(len(sleeping), len(waking)) {
		down, up := sleeping[i%len(sleeping)], waking[i%len(waking)]
		t.Run("killed "+down.String()+" and "+up.String(), func(t *testing.T) {
			s.startManager(t)
			s.through(t, hivev1.PowerStateHibernating, down)
			s.through(t, hivev1.PowerStateRunning, up)
			if err := s.cloud.ExpectState(t, s.InfraID, "running"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWokenByNobodyForAWhile: the manager is killed when the machines have been asked to start, and the next one comes so
// late that the nodes' requests are older than any difference of clocks.
func TestWokenByNobodyForAWhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.newSleeper(t, "late", shortLived)
	w.startManager(t)
	s.through(t, hivev1.PowerStateHibernating)
	s.awaitExpiry(t)
	w.wire.arm(point{startMachines, after})
	s.ask(t, hivev1.PowerStateRunning)
	testenv.Eventually(t, "the manager is killed", func() error {
		select {
		case <-w.wire.struck:
			return nil
		default:
			return errors.New("it is alive")
		}
	})
	testenv.Eventually(t, "every node has waited for its certificate for a while", func() error { return s.requestsOlderThan(t, absence) })
	w.startManager(t)
	testenv.Eventually(t, "the cluster is awake", func() error { return s.awake(t) })
}

// writes are the names of the acts that write, each once.
func writes(acts []act) []string {
	var names []string
	for _, a := range acts {
		if a.writes && !slices.Contains(names, a.name) {
			names = append(names, a.name)
		}
	}
	return names
}

// expectActs: what a story is at least made of.
func expectActs(t *testing.T, sleeping, waking []string) {
	t.Helper()
	saves := func(names []string) int {
		return len(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, "save ") }))
	}
	for _, e := range []struct {
		names []string
		act   string
	}{{sleeping, saveRecord}, {sleeping, stopMachines}, {waking, startMachines}, {waking, approveClient}, {waking, tellApproval}} {
		if !slices.Contains(e.names, e.act) {
			t.Errorf("expected the act %q, found %v", e.act, e.names)
		}
	}
	if s, w := saves(sleeping), saves(waking); s < 2 || w < 2 || s+w < 4 {
		t.Errorf("expected two status patches each way at least, found %d and %d", s, w)
	}
	if i, j := slices.Index(sleeping, saveRecord), slices.Index(sleeping, stopMachines); i > j {
		t.Error("expected the nodes to be written down before the machines are stopped")
	}
}

// points are the points before and after each act that writes, without those that need expired certificates.
func points(acts []act) []point {
	var list []point
	for _, name := range writes(acts) {
		if !strings.HasPrefix(name, "approve ") && name != tellApproval {
			list = append(list, point{name, before}, point{name, after})
		}
	}
	return list
}

// reads are the points before each act that reads from the cloud or the cluster, or a Secret; the cache is not asked for.
func reads(acts []act) []point {
	var list []point
	for _, a := range acts {
		p := point{a.name, before}
		meant := a.via != viaHub || strings.HasPrefix(a.name, readSecret)
		if !a.writes && meant && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

func TestPointsAreDerivedFromActs(t *testing.T) {
	acts := []act{
		{"GET /api", viaHub, false},
		{stopMachines, viaCloud, true},
		{listNodes, viaCluster, false},
		{approveClient, viaCluster, true},
		{stopMachines, viaCloud, true},
		{listNodes, viaCluster, false},
	}
	if diff := cmp.Diff([]point{{stopMachines, before}, {stopMachines, after}}, points(acts), cmp.AllowUnexported(point{})); diff != "" {
		t.Errorf("points of writes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]point{{listNodes, before}}, reads(acts), cmp.AllowUnexported(point{})); diff != "" {
		t.Errorf("points of reads (-want +got):\n%s", diff)
	}
}
