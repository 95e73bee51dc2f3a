// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// shortCertificates is a validity that is long enough for renewals in time while a cluster runs.
const shortCertificates = 25 * time.Second

// managerAbsence is the time without a manager; it is longer than the allowed difference between the clocks of the
// hub and of a cluster.
const managerAbsence = 15 * time.Second

// TestManagerIsKilledAtEveryRequest kills the manager with SIGKILL before and after each of its requests, and
// expects the transition to succeed each time. The requests are recorded in an undisturbed transition, so that none
// is missed. Approvals need expired certificates, which take time, so only one of the two clusters has them.
func TestManagerIsKilledAtEveryRequest(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	full := testenv.IsFull()
	t.Logf("killing at every request: %t; without TORPOR_E2E=full only at stop, start, approval and record", full)
	expiring := w.createCluster(t, "expiring", shortCertificates)

	var hibernating, resuming []managerRequest
	t.Run("hibernate and resume without disturbance make the expected requests", func(t *testing.T) {
		w.startManager(t)
		hibernating = expiring.reachPowerState(t, hivev1.PowerStateHibernating)
		expiring.waitForExpiredCertificates(t)
		resuming = expiring.reachPowerState(t, hivev1.PowerStateRunning)
		t.Logf("to hibernate: %v\nto resume: %v", writeNames(hibernating), writeNames(resuming))
		expectRequests(t, writeNames(hibernating), writeNames(resuming))
	})
	t.Run("the manager is killed before and after record, stop, start and approval", func(t *testing.T) {
		w.startManager(t)
		expiring.reachPowerState(t, hivev1.PowerStateHibernating,
			killPoint{saveRecord, before}, killPoint{saveRecord, after}, killPoint{stopMachines, before}, killPoint{stopMachines, after})
		expiring.waitForExpiredCertificates(t)
		expiring.reachPowerState(t, hivev1.PowerStateRunning, killPoint{startMachines, before}, killPoint{startMachines, after},
			killPoint{approveClient, before}, killPoint{approveClient, after}, killPoint{recordApproval, before})
	})
	if t.Failed() || !full {
		return
	}
	testenv.ExpectNoError(t, w.hub.Client.Delete(t.Context(), expiring.getClusterDeployment(t)))
	quick := w.createCluster(t, "quick", time.Hour)
	testKilledAtEachPoint(t, quick, killPointsAtWrites(hibernating), killPointsAtWrites(resuming))
	t.Run("the manager is killed at every read", func(t *testing.T) {
		w.startManager(t)
		quick.reachPowerState(t, hivev1.PowerStateHibernating, killPointsAtReads(hibernating)...)
		quick.reachPowerState(t, hivev1.PowerStateRunning, killPointsAtReads(resuming)...)
	})
}

// testKilledAtEachPoint kills the manager once in each of several hibernations and resumes.
func testKilledAtEachPoint(t *testing.T, s *powerCycledCluster, hibernating, resuming []killPoint) {
	t.Helper()
	for i := range max(len(hibernating), len(resuming)) {
		down, up := hibernating[i%len(hibernating)], resuming[i%len(resuming)]
		t.Run("the manager is killed "+down.String()+" and "+up.String(), func(t *testing.T) {
			s.startManager(t)
			s.reachPowerState(t, hivev1.PowerStateHibernating, down)
			s.reachPowerState(t, hivev1.PowerStateRunning, up)
			if err := s.cloud.ExpectState(t, s.InfraID, "running"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestResumeContinuesAfterAManagerOutage kills the manager after it has started the machines. It starts the next
// manager when the nodes' certificate requests are older than the allowed difference between clocks.
func TestResumeContinuesAfterAManagerOutage(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	s := w.createCluster(t, "late", shortCertificates)
	w.startManager(t)
	s.reachPowerState(t, hivev1.PowerStateHibernating)
	s.waitForExpiredCertificates(t)
	w.traffic.armKillPoints(killPoint{startMachines, after})
	s.requestPowerState(t, hivev1.PowerStateRunning)
	testenv.Eventually(t, "the manager is killed", func() error {
		select {
		case <-w.traffic.killed:
			return nil
		default:
			return errors.New("it is still alive")
		}
	})
	testenv.Eventually(t, "every node has waited for its certificate long enough", func() error { return s.checkRequestsOlderThan(t, managerAbsence) })
	w.startManager(t)
	s.waitForRunning(t)
}

// writeNames returns the names of the writing requests, without duplicates.
func writeNames(acts []managerRequest) []string {
	var names []string
	for _, a := range acts {
		if a.isWrite && !slices.Contains(names, a.name) {
			names = append(names, a.name)
		}
	}
	return names
}

// expectRequests expects at least the requests that every transition needs.
func expectRequests(t *testing.T, hibernating, resuming []string) {
	t.Helper()
	saves := func(names []string) int {
		return len(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, "save ") }))
	}
	for _, e := range []struct {
		names   []string
		request string
	}{{hibernating, saveRecord}, {hibernating, stopMachines}, {resuming, startMachines}, {resuming, approveClient}, {resuming, recordApproval}} {
		if !slices.Contains(e.names, e.request) {
			t.Errorf("expected the request %q, found %v", e.request, e.names)
		}
	}
	if s, w := saves(hibernating), saves(resuming); s < 2 || w < 2 || s+w < 4 {
		t.Errorf("expected two status patches each way at least, found %d and %d", s, w)
	}
	if i, j := slices.Index(hibernating, saveRecord), slices.Index(hibernating, stopMachines); i > j {
		t.Error("expected the nodes to be written down before the machines are stopped")
	}
}

// killPointsAtWrites returns the points before and after each writing request, without those that need
// expired certificates.
func killPointsAtWrites(acts []managerRequest) []killPoint {
	var list []killPoint
	for _, name := range writeNames(acts) {
		if !strings.HasPrefix(name, "approve ") && name != recordApproval {
			list = append(list, killPoint{name, before}, killPoint{name, after})
		}
	}
	return list
}

// killPointsAtReads returns the points before each request that reads from the cloud or the cluster, or a Secret.
// Reads from the hub fill caches and do not belong to a transition.
func killPointsAtReads(acts []managerRequest) []killPoint {
	var list []killPoint
	for _, a := range acts {
		p := killPoint{a.name, before}
		meant := a.server != toHub || strings.HasPrefix(a.name, readSecret)
		if !a.isWrite && meant && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

func TestKillPointsAreDerivedFromRequests(t *testing.T) {
	acts := []managerRequest{
		{"GET /api", toHub, false},
		{stopMachines, toCloud, true},
		{listNodes, toCluster, false},
		{approveClient, toCluster, true},
		{stopMachines, toCloud, true},
		{listNodes, toCluster, false},
	}
	testenv.ExpectEqual(t, "points of writes", []killPoint{{stopMachines, before}, {stopMachines, after}}, killPointsAtWrites(acts), cmp.AllowUnexported(killPoint{}))
	testenv.ExpectEqual(t, "points of reads", []killPoint{{listNodes, before}}, killPointsAtReads(acts), cmp.AllowUnexported(killPoint{}))
}
