// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/testenv"
)

const forcedPasses = 10

// TestHibernatingClusterIsNotDialled expects no connection to a cluster that hibernates, however often the manager
// reconciles it and even when the manager was just started.
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
