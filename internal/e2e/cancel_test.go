// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// slow is how long machines take to change, so that there is time to change one's mind.
const slow = 3 * time.Second

// TestCancelWithRealMachines changes what is wanted in the middle of things, and the last word counts.
func TestCancelWithRealMachines(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.newSleeper(t, "fickle", time.Hour)
	w.startManager(t)
	w.cloud.SetLatency(t, slow, slow)

	t.Run("woken while the machines are stopping", func(t *testing.T) {
		s.ask(t, hivev1.PowerStateHibernating)
		testenv.Eventually(t, "machines are stopping", func() error { return s.someMachine(t, "stopping") })
		s.ask(t, hivev1.PowerStateRunning)
		testenv.Eventually(t, "the cluster is awake", func() error { return s.awake(t) })
	})
	t.Run("put to sleep while the machines are starting", func(t *testing.T) {
		s.sleep(t)
		s.ask(t, hivev1.PowerStateRunning)
		testenv.Eventually(t, "machines are starting", func() error { return s.someMachine(t, "pending") })
		s.sleep(t)
	})
	t.Run("put to sleep while the API server is still silent, and woken at once", func(t *testing.T) {
		s.ask(t, hivev1.PowerStateRunning)
		testenv.Eventually(t, "the manager waits for the API server", func() error {
			return reports(s.deployment(t), hivev1.ClusterReadyCondition, metav1.ConditionFalse, hivev1.WaitingForAPIReason)
		})
		s.ask(t, hivev1.PowerStateHibernating)
		testenv.Eventually(t, "machines are stopping", func() error { return s.someMachine(t, "stopping") })
		s.ask(t, hivev1.PowerStateRunning)
		testenv.Eventually(t, "the cluster is awake", func() error { return s.awake(t) })
	})
}

func (s *sleeper) sleep(t *testing.T) {
	t.Helper()
	s.ask(t, hivev1.PowerStateHibernating)
	testenv.Eventually(t, "the cluster is asleep", func() error { return s.asleep(t) })
}

func (s *sleeper) someMachine(t *testing.T, state string) error {
	t.Helper()
	machines := s.cloud.ListInstances(t, s.InfraID)
	for _, m := range machines {
		if m.State == state {
			return nil
		}
	}
	return fmt.Errorf("expected some machine to be %s, found %+v", state, machines)
}
