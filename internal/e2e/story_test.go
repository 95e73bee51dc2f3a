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

// late is how often a settled story is looked at for points that come after the last word, such as events.
const late = 60

// through brings the cluster to what is wanted while the manager is killed at the points, each time it gets there and in
// that order, and is started anew. It returns the acts, and fails the test if a point was not reached.
func (s *sleeper) through(t *testing.T, want hivev1.PowerState, points ...point) []act {
	t.Helper()
	settled, lastWord := s.asleep, "tell "+hivev1.HibernatingHibernationReason
	if want == hivev1.PowerStateRunning {
		settled, lastWord = s.awake, "tell "+hivev1.RunningHibernationReason
		s.slowDown(t)
	}
	s.wire.arm(points...)
	s.ask(t, want)
	met, looks := 0, 0
	testenv.Eventually(t, fmt.Sprintf("%s is %s, killed at %v", s.Name, want, points), func() error {
		s.letGo(t)
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

// slowDown makes sure that every stage of a wake-up is seen, however fast this machine is: the API server is silent and
// the nodes are held until the manager has said that it waits for them.
func (s *sleeper) slowDown(t *testing.T) {
	t.Helper()
	s.tap.shut.Store(true)
	if err := os.WriteFile(s.hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *sleeper) letGo(t *testing.T) {
	t.Helper()
	if s.wire.count(saveNoAPI) > 0 {
		s.tap.shut.Store(false)
	}
	if s.wire.count(saveNoNodes) > 0 {
		s.release(t)
	}
}

// release lets held nodes come up.
func (s *sleeper) release(t *testing.T) {
	t.Helper()
	if err := os.Remove(s.hold); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
}
