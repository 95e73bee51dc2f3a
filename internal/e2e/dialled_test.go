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

// TestSleepingClusterIsNotDialled counts the connections to a cluster that sleeps: none, however often the manager looks
// at it, also right after it was started.
func TestSleepingClusterIsNotDialled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.newSleeper(t, "quiet", time.Hour)
	m := w.startManager(t)
	s.through(t, hivev1.PowerStateHibernating)
	dialled := s.tap.connections.Load()
	if dialled == 0 {
		t.Fatal("expected connections while the nodes were written down, found none: the counter is blind")
	}
	for i := range forcedPasses {
		if i == forcedPasses/2 {
			m.Kill9(t)
			w.startManager(t)
		}
		w.wire.arm()
		s.touch(t, i)
		testenv.Eventually(t, "the manager has looked at the sleeping cluster", func() error {
			if w.wire.count(listMachines) == 0 {
				return fmt.Errorf("expected the act %s, found %v", listMachines, w.wire.acts())
			}
			return s.asleep(t)
		})
	}
	if n := s.tap.connections.Load() - dialled; n != 0 {
		t.Errorf("expected no connection to a sleeping cluster in %d passes, found %d", forcedPasses, n)
	}
	s.through(t, hivev1.PowerStateRunning)
	if s.tap.connections.Load() == dialled {
		t.Error("expected connections again after the wake-up, found none")
	}
}
