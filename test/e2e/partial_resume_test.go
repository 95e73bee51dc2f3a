// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestMachineWithoutCapacityDelaysNoOtherNode resumes a cluster with expired certificates while the cloud lacks
// capacity for one of its machines: the other nodes must get their certificates and become Ready, and the last one
// must join once there is capacity.
func TestMachineWithoutCapacityDelaysNoOtherNode(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	s := w.createCluster(t, "poor", shortCertificates)
	w.startManager(t)
	s.reachPowerState(t, hivev1.PowerStateHibernating)
	s.waitForExpiredCertificates(t)
	poor, other := s.InfraID+"-worker-1", s.InfraID+"-worker-0"
	s.cloud.InjectFault(t, testenv.CloudFault{
		Action: "StartInstances", Code: "InsufficientInstanceCapacity", Message: "No room.", InstanceIDs: []string{s.findMachine(t, poor).ID},
	})
	s.requestPowerState(t, hivev1.PowerStateRunning)
	testenv.Eventually(t, "the other node is Ready while the cloud lacks capacity", func() error { return s.checkNodeReady(t, other, s.findMachine(t, other).ChangedAt) })
	testenv.Eventually(t, "the condition names the machine, and that the cluster answers", func() error {
		cd := s.getClusterDeployment(t)
		if err := checkCondition(cd, hivev1.ClusterUnreachableCondition, metav1.ConditionFalse, hivev1.ClusterReachableReason); err != nil {
			return err
		}
		if err := checkCondition(cd, hivev1.ClusterReadyCondition, metav1.ConditionFalse, hivev1.FailedToStartMachinesReason); err != nil {
			return err
		}
		message := meta.FindStatusCondition(cd.Status.Conditions, hivev1.ClusterReadyCondition).Message
		return testenv.ErrorIf(!strings.Contains(message, s.findMachine(t, poor).ID), "expected the machine to be named, found %q", message)
	})
	s.cloud.ClearFaults(t)
	s.waitForRunning(t)
}

func (s *powerCycledCluster) findMachine(t *testing.T, name string) testenv.CloudInstance {
	t.Helper()
	for _, m := range s.cloud.ListInstances(t, s.InfraID) {
		if m.Name == name {
			return m
		}
	}
	t.Fatalf("expected a machine %s, found none", name)
	return testenv.CloudInstance{}
}

func (s *powerCycledCluster) checkNodeReady(t *testing.T, name string, since time.Time) error {
	t.Helper()
	seen, err := s.observeNodes(t.Context())
	if err != nil {
		return err
	}
	for _, n := range seen {
		if n.name == name && n.ready && n.lastSeen.After(since) {
			return nil
		}
	}
	return fmt.Errorf("expected node %s to be Ready since %s, found %+v", name, since, seen)
}
