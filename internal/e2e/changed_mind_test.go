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

// slowMachines is how long machines take to change, so that the wish can change meanwhile.
const slowMachines = 3 * time.Second

// TestCancelWithRealMachines changes the power state that is wanted in the middle of a transition: the last wish counts.
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
	t.Run("a cluster is hibernated while its API server is still silent, and resumed at once", func(t *testing.T) {
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
