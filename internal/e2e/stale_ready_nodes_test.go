// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	"github.com/torpor-dev/torpor/internal/testenv"
)

const (
	// minHoldLooks and minHoldTime are how often and for how long the manager looks at held nodes, at least, before the test
	// takes its report for final.
	minHoldLooks = 20
	minHoldTime  = 10 * time.Second
)

// TestNeverRunningOnStaleReady holds the kubelets back after their machines have started. The API server answers and shows
// every node as Ready, because that was true when it hibernated. That must not count.
func TestNeverRunningOnStaleReady(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	s := w.createCluster(t, "stale", time.Hour)
	w.startManager(t)
	s.reachPowerState(t, hivev1.PowerStateHibernating)
	if err := os.WriteFile(s.holdFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	history := s.recordVersions(t)
	w.traffic.armKillPoints()
	s.requestPowerState(t, hivev1.PowerStateRunning)
	testenv.Eventually(t, "the manager waits for the nodes", func() error {
		return checkCondition(s.getClusterDeployment(t), hivev1.ClusterReadyCondition, metav1.ConditionFalse, hivev1.WaitingForNodesReason)
	})
	began, looks := time.Now(), w.traffic.countRequests(listNodes)
	testenv.Eventually(t, "the manager has looked at the nodes many times", func() error {
		s.expectStaleReadyNodes(t)
		if n := w.traffic.countRequests(listNodes) - looks; n < minHoldLooks || time.Since(began) < minHoldTime {
			return fmt.Errorf("expected %d looks in %s, found %d in %s", minHoldLooks, minHoldTime, n, time.Since(began))
		}
		return nil
	})
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

// expectStaleReadyNodes expects what could be mistaken: nodes that are Ready and were last seen before the hibernation.
func (s *powerCycledCluster) expectStaleReadyNodes(t *testing.T) {
	t.Helper()
	record := s.getClusterDeployment(t).Status.Hibernation
	seen, err := s.observeNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range seen {
		if !n.ready || !n.lastSeen.Before(record.ResumeStartedAt.Time) {
			t.Fatalf("expected node %s to be held and to look ready, found ready %t and last seen %s", n.name, n.ready, n.lastSeen)
		}
	}
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
