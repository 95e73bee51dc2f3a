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
	// holdLooks is how often the manager looks at held nodes, at least, before the test believes that it will not give in;
	// holdTime how long that takes at least.
	holdLooks = 20
	holdTime  = 10 * time.Second
)

// TestNeverRunningOnStaleReady holds the kubelets back after their machines are on. The API server answers, and says of
// every node that it is Ready, because that was true when it went to sleep. That must not count.
func TestNeverRunningOnStaleReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.newSleeper(t, "stale", time.Hour)
	w.startManager(t)
	s.through(t, hivev1.PowerStateHibernating)
	if err := os.WriteFile(s.hold, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	history := s.follow(t)
	w.wire.arm()
	s.ask(t, hivev1.PowerStateRunning)
	testenv.Eventually(t, "the manager waits for the nodes", func() error {
		return reports(s.deployment(t), hivev1.ClusterReadyCondition, metav1.ConditionFalse, hivev1.WaitingForNodesReason)
	})
	began, looks := time.Now(), w.wire.count(listNodes)
	testenv.Eventually(t, "the manager has looked at the nodes many times", func() error {
		s.stillSaysReady(t)
		if n := w.wire.count(listNodes) - looks; n < holdLooks || time.Since(began) < holdTime {
			return fmt.Errorf("expected %d looks in %s, found %d in %s", holdLooks, holdTime, n, time.Since(began))
		}
		return nil
	})
	s.namesEveryNode(t)
	versions := history()
	if len(versions) == 0 {
		t.Error("expected versions of the ClusterDeployment, found none: nobody has watched")
	}
	for _, cd := range versions {
		if saysItRuns(&cd) {
			t.Errorf("expected no status that calls the cluster running while its nodes are held, found %+v", cd.Status.Conditions)
		}
	}
	s.release(t)
	testenv.Eventually(t, "the cluster is awake, every node seen since", func() error { return s.awake(t) })
}

func saysItRuns(cd *hivev1.ClusterDeployment) bool {
	return cd.Status.PowerState == hivev1.RunningHibernationReason || meta.IsStatusConditionTrue(cd.Status.Conditions, hivev1.ClusterReadyCondition)
}

// stillSaysReady makes sure that there is something to fall for: nodes that are Ready and were last seen before the sleep.
func (s *sleeper) stillSaysReady(t *testing.T) {
	t.Helper()
	record := s.deployment(t).Status.Hibernation
	seen, err := s.nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range seen {
		if !n.ready || !n.lastSeen.Before(record.ResumeStartedAt.Time) {
			t.Fatalf("expected node %s to be held and to look ready, found ready %t and last seen %s", n.name, n.ready, n.lastSeen)
		}
	}
}

func (s *sleeper) namesEveryNode(t *testing.T) {
	t.Helper()
	c := meta.FindStatusCondition(s.deployment(t).Status.Conditions, hivev1.ClusterReadyCondition)
	for i := range nodes {
		if name := fmt.Sprintf("%s-worker-%d", s.InfraID, i); !strings.Contains(c.Message, name) {
			t.Errorf("expected the condition to name %s, found %q", name, c.Message)
		}
	}
}
