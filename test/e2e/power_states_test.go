// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// settledLooks is the number of polls of a settled cluster in which the manager must reach the last kill points, such
// as events.
const settledLooks = 60

// reachPowerState brings the cluster to a power state while the manager is killed at each of the points, in order,
// and restarted. It returns the manager's requests, and fails the test if a point was not reached.
func (s *powerCycledCluster) reachPowerState(t *testing.T, want hivev1.PowerState, points ...killPoint) []managerRequest {
	t.Helper()
	settled, lastEvent := s.checkHibernating, "record "+hivev1.HibernatingHibernationReason
	if want == hivev1.PowerStateRunning {
		settled, lastEvent = s.checkRunning, "record "+hivev1.RunningHibernationReason
		s.holdResume(t)
	}
	s.traffic.armKillPoints(points...)
	s.requestPowerState(t, want)
	met, looks := 0, 0
	testenv.Eventually(t, fmt.Sprintf("%s is %s, killed at %v", s.Name, want, points), func() error {
		s.releaseReportedStages(t)
		select {
		case <-s.traffic.killed:
			met++
			s.startManager(t)
			return errors.New("the manager was killed just now")
		default:
		}
		if err := settled(t); err != nil {
			return err
		}
		if len(points) == 0 && s.traffic.countRequests(lastEvent) == 0 {
			return errors.New("expected the last event, found none yet")
		}
		looks++
		return testenv.ErrorIf(met < len(points) && looks < settledLooks, "expected the manager to be killed, found it alive")
	})
	if left := s.traffic.disarmKillPoints(); len(left) > 0 {
		t.Errorf("expected the manager to be killed at %v, found %v not reached", points, left)
	}
	return s.traffic.listRequests()
}

// holdResume makes every stage of a resume visible, regardless of the speed of this machine: the API server does not
// answer and the nodes do not start until the manager has reported that it waits for them.
func (s *powerCycledCluster) holdResume(t *testing.T) {
	t.Helper()
	s.proxy.isShut.Store(true)
	testenv.ExpectNoError(t, os.WriteFile(s.holdFile, nil, 0o600))
}

func (s *powerCycledCluster) releaseReportedStages(t *testing.T) {
	t.Helper()
	if s.traffic.countRequests(saveNoAPI) > 0 {
		s.proxy.isShut.Store(false)
	}
	if s.traffic.countRequests(saveNoNodes) > 0 {
		s.releaseNodes(t)
	}
}

// releaseNodes lets held nodes start.
func (s *powerCycledCluster) releaseNodes(t *testing.T) {
	t.Helper()
	if err := os.Remove(s.holdFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}

// slowMachines is how long machines take to start or stop, so that the wanted state can change in the meantime.
const slowMachines = 3 * time.Second

// TestCancelWithRealMachines changes the wanted power state during a transition, and expects the last request to
// take effect.
func TestCancelWithRealMachines(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	s := w.createCluster(t, "fickle", time.Hour)
	w.startManager(t)
	w.cloud.SetLatency(t, slowMachines, slowMachines)

	t.Run("a cluster is resumed while its machines are stopping", func(t *testing.T) {
		s.requestPowerState(t, hivev1.PowerStateHibernating)
		testenv.Eventually(t, "machines are stopping", func() error { return s.checkSomeMachine(t, "stopping") })
		s.requestPowerState(t, hivev1.PowerStateRunning)
		s.waitForRunning(t)
	})
	t.Run("a cluster is hibernated while its machines are starting", func(t *testing.T) {
		s.hibernate(t)
		s.requestPowerState(t, hivev1.PowerStateRunning)
		testenv.Eventually(t, "machines are starting", func() error { return s.checkSomeMachine(t, "pending") })
		s.hibernate(t)
	})
	t.Run("a cluster is hibernated before its API server answers, and resumed immediately", func(t *testing.T) {
		s.requestPowerState(t, hivev1.PowerStateRunning)
		testenv.Eventually(t, "the manager waits for the API server", func() error {
			return checkCondition(s.getClusterDeployment(t), hivev1.ClusterReadyCondition, metav1.ConditionFalse, hivev1.WaitingForAPIReason)
		})
		s.requestPowerState(t, hivev1.PowerStateHibernating)
		testenv.Eventually(t, "machines are stopping", func() error { return s.checkSomeMachine(t, "stopping") })
		s.requestPowerState(t, hivev1.PowerStateRunning)
		s.waitForRunning(t)
	})
}

func (s *powerCycledCluster) hibernate(t *testing.T) {
	t.Helper()
	s.requestPowerState(t, hivev1.PowerStateHibernating)
	testenv.Eventually(t, "the cluster hibernates", func() error { return s.checkHibernating(t) })
}

func (s *powerCycledCluster) waitForRunning(t *testing.T) {
	t.Helper()
	testenv.Eventually(t, "the cluster runs, and every node was seen since the resume", func() error { return s.checkRunning(t) })
}

func (s *powerCycledCluster) checkSomeMachine(t *testing.T, state string) error {
	t.Helper()
	machines := s.cloud.ListInstances(t, s.InfraID)
	for _, m := range machines {
		if m.State == state {
			return nil
		}
	}
	return fmt.Errorf("expected some machine to be %s, found %+v", state, machines)
}

const forcedPasses = 10

// TestHibernatingClusterIsNotDialled expects no connection to a hibernating cluster, however often the
// manager reconciles it and even when the manager was just started.
func TestHibernatingClusterIsNotDialled(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	s := w.createCluster(t, "quiet", time.Hour)
	m := w.startManager(t)
	s.reachPowerState(t, hivev1.PowerStateHibernating)
	dialled := s.proxy.connections.Load()
	if dialled == 0 {
		t.Fatal("expected connections while the nodes were written down, found none: the counter is blind")
	}
	for i := range forcedPasses {
		if i == forcedPasses/2 {
			m.KillAtOnce(t)
			w.startManager(t)
		}
		w.traffic.armKillPoints()
		s.touchClusterDeployment(t, i)
		testenv.Eventually(t, "the manager has reconciled the hibernating cluster", func() error {
			if w.traffic.countRequests(listMachines) == 0 {
				return fmt.Errorf("expected the request %s, found %v", listMachines, w.traffic.listRequests())
			}
			return s.checkHibernating(t)
		})
	}
	if n := s.proxy.connections.Load() - dialled; n != 0 {
		t.Errorf("expected no connection to a hibernating cluster in %d passes, found %d", forcedPasses, n)
	}
	s.reachPowerState(t, hivev1.PowerStateRunning)
	if s.proxy.connections.Load() == dialled {
		t.Error("expected connections again after the resume, found none")
	}
}

const (
	// minHoldLooks and minHoldTime are the minimum number and duration of the manager's polls of held nodes before
	// the test treats its report as final.
	minHoldLooks = 20
	minHoldTime  = 10 * time.Second
)

// TestNeverRunningOnStaleReady delays the kubelets after the start of their machines. The API server answers and
// shows every node as Ready, because they were Ready before the hibernation. The manager must not rely on that.
func TestNeverRunningOnStaleReady(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	s := w.createCluster(t, "stale", time.Hour)
	w.startManager(t)
	s.reachPowerState(t, hivev1.PowerStateHibernating)
	testenv.ExpectNoError(t, os.WriteFile(s.holdFile, nil, 0o600))
	history := s.recordVersions(t)
	w.traffic.armKillPoints()
	s.requestPowerState(t, hivev1.PowerStateRunning)
	// The cluster's own controller reports them as ready for 12 s after its start; the manager must not report the
	// cluster as running after that, either.
	testenv.Eventually(t, "the manager polls the nodes", func() error {
		return testenv.ErrorIf(w.traffic.countRequests(listNodes) == 0, "expected the request %s, found %v", listNodes, w.traffic.listRequests())
	})
	lookedReady := s.areHeldNodesReady(t)
	testenv.Eventually(t, "the manager waits for the nodes", func() error {
		return checkCondition(s.getClusterDeployment(t), hivev1.ClusterReadyCondition, metav1.ConditionFalse, hivev1.WaitingForNodesReason)
	})
	began, looks := time.Now(), w.traffic.countRequests(listNodes)
	testenv.Eventually(t, "the manager has polled the nodes many times", func() error {
		n := w.traffic.countRequests(listNodes) - looks
		return testenv.ErrorIf(n < minHoldLooks || time.Since(began) < minHoldTime, "expected %d polls in %s, found %d in %s", minHoldLooks, minHoldTime, n, time.Since(began))
	})
	if !lookedReady {
		t.Error("expected that the nodes look ready while they are held, found that they never do")
	}
	s.expectEveryNodeNamed(t)
	versions := history()
	if len(versions) == 0 {
		t.Error("expected versions of the ClusterDeployment, found none: the watch sees nothing")
	}
	for _, cd := range versions {
		if isReportedRunning(&cd) {
			t.Errorf("expected no status that calls the cluster running while its nodes are held, found %+v", cd.Status.Conditions)
		}
	}
	s.releaseNodes(t)
	s.waitForRunning(t)
}

func isReportedRunning(cd *hivev1.ClusterDeployment) bool {
	return cd.Status.PowerState == hivev1.RunningHibernationReason || meta.IsStatusConditionTrue(cd.Status.Conditions, hivev1.ClusterReadyCondition)
}

// areHeldNodesReady reports whether all nodes have been shown as ready since the resume began, although none has
// sent a heartbeat since the hibernation. On a busy machine the cluster's own controller may have already changed
// the condition, with the time.
func (s *powerCycledCluster) areHeldNodesReady(t *testing.T) bool {
	t.Helper()
	record := s.getClusterDeployment(t).Status.Hibernation
	seen, err := s.observeNodes(t.Context())
	testenv.ExpectNoError(t, err)
	for _, n := range seen {
		if !n.lastSeen.Before(record.ResumeStartedAt.Time) {
			t.Fatalf("expected node %s to be held, found that it was last seen %s", n.name, n.lastSeen)
		}
	}
	return !slices.ContainsFunc(seen, func(n observedNode) bool { return !n.ready && n.readyChanged.Before(record.ResumeStartedAt.Time) })
}

func (s *powerCycledCluster) expectEveryNodeNamed(t *testing.T) {
	t.Helper()
	c := meta.FindStatusCondition(s.getClusterDeployment(t).Status.Conditions, hivev1.ClusterReadyCondition)
	for i := range nodeCount {
		if name := fmt.Sprintf("%s-worker-%d", s.InfraID, i); !strings.Contains(c.Message, name) {
			t.Errorf("expected the condition to name %s, found %q", name, c.Message)
		}
	}
}
