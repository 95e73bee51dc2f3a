// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"testing"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/testkit"
)

// late is how often a settled story is looked at for points that come after the last word, such as events.
const late = 60

// through brings the cluster to what is wanted while the manager is killed at the points, each time it gets there and in
// that order, and is started anew. It returns the acts, and fails the test if a point was not reached.
func (s *sleeper) through(t *testing.T, want hivev1.PowerState, points ...point) []act {
	t.Helper()
	s.wire.arm(points...)
	s.ask(t, want)
	settled, lastWord := s.awake, "tell "+hivev1.RunningHibernationReason
	if want == hivev1.PowerStateHibernating {
		settled, lastWord = s.asleep, "tell "+hivev1.HibernatingHibernationReason
	}
	met, looks := 0, 0
	testkit.Eventually(t, fmt.Sprintf("%s is %s, killed at %v", s.Name, want, points), func() error {
		select {
		case <-s.wire.struck:
			met++
			s.startManager(t)
			return errors.New("the manager was killed just now")
		default:
		}
		if err := settled(t); err != nil {
			return err
		}
		if len(points) == 0 && s.wire.count(lastWord) == 0 {
			return errors.New("settled, and not told yet")
		}
		if looks++; met < len(points) && looks < late {
			return errors.New("settled, and yet to be killed")
		}
		return nil
	})
	if left := s.wire.disarm(); len(left) > 0 {
		t.Errorf("expected the manager to be killed at %v, found %v not reached", points, left)
	}
	return s.wire.acts()
}
