// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"testing"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// settledLooks is how often a settled cluster is looked at for points that come last, such as events.
const settledLooks = 60

// reachPowerState brings the cluster to a power state while the manager is killed at each of the points, in their order, and
// restarted. It returns the manager's requests, and fails the test if a point was not reached.
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
		if looks++; met < len(points) && looks < settledLooks {
			return errors.New("expected the manager to be killed, found it alive")
		}
		return nil
	})
	if left := s.traffic.disarmKillPoints(); len(left) > 0 {
		t.Errorf("expected the manager to be killed at %v, found %v not reached", points, left)
	}
	return s.traffic.listRequests()
}

// holdResume makes every stage of a resume visible, however fast this machine is: the API server is silent and the nodes are
// held until the manager has reported that it waits for them.
func (s *powerCycledCluster) holdResume(t *testing.T) {
	t.Helper()
	s.proxy.isShut.Store(true)
	if err := os.WriteFile(s.holdFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
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

// releaseNodes lets held nodes come up.
func (s *powerCycledCluster) releaseNodes(t *testing.T) {
	t.Helper()
	if err := os.Remove(s.holdFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}
