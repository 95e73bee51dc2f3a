// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/testenv"
)

// startRollout makes a healthy cluster of three, and then another template. Instance 1 is the primary.
func (s *clusterEnv) startRollout(t *testing.T) {
	t.Helper()
	s.addCluster(t, nil)
	s.waitUntilReconciled(t)
	s.reportRevision(t, "one")
	for i := range 3 {
		s.addPod(t, i, "one")
	}
	s.reportHealthy(t, 1)
	s.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionTrue)
	s.setImage(t, "mysql:2")
	s.waitUntilReconciled(t)
}

// waitUntilReplaced waits until a Pod is deleted, and makes it anew.
func (s *clusterEnv) waitUntilReplaced(t *testing.T, i int) {
	t.Helper()
	s.waitUntilGone(t, podName(i), &corev1.Pod{})
	for other := range 3 {
		if err := s.get(t, podName(other), &corev1.Pod{}); other != i && err != nil {
			t.Errorf("while Pod %d is replaced, Pod %d: %v", i, other, err)
		}
	}
	s.addPod(t, i, "two")
}

func testRollout(t *testing.T, s *clusterEnv) {
	s.startRollout(t)
	s.reportRevision(t, "two")
	s.waitUntilReplaced(t, 0)
	s.waitUntilReplaced(t, 2)
	testenv.Eventually(t, "a switchover is asked for", func() error {
		pod := &corev1.Pod{}
		if err := s.get(t, podName(1), pod); err != nil {
			t.Fatalf("the primary's Pod: %v", err)
		}
		if pod.Annotations[mocov1beta2.DemoteAnnotation] != "true" {
			return errors.New("the primary's Pod has no annotation")
		}
		return nil
	})
	s.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionFalse, "switchover", podName(1))
	s.reportHealthy(t, 0)
	s.waitUntilReplaced(t, 1)
	s.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionTrue)
	testenv.Eventually(t, "events tell of replaced Pods", func() error {
		if s.countEvents(t, podReplaced) == 0 {
			return errors.New("found none")
		}
		return nil
	})
}

func testRolloutWhileClusteringStops(t *testing.T, s *clusterEnv) {
	s.startRollout(t)
	s.annotate(t, mocov1beta2.ClusteringStoppedAnnotation, "true")
	s.reportRevision(t, "two")
	s.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionFalse,
		"the rollout waits while clustering is stopped", podName(0), "kubectl moco start clustering test")
	s.waitUntilSettled(t, func() error { return nil })
	for i := range 3 {
		if err := s.get(t, podName(i), &corev1.Pod{}); k8serrors.IsNotFound(err) {
			t.Errorf("Pod %d is replaced while clustering is stopped", i)
		}
	}
	s.annotate(t, mocov1beta2.ClusteringStoppedAnnotation, "")
	s.waitUntilReplaced(t, 0)
}

// TestAFailingReconcileDoesNotDelayAStop has both controllers of the kind: upstream honours a stop only after everything
// else has succeeded.
func TestAFailingReconcileDoesNotDelayAStop(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.startClustering(t)
	s := w.newCluster(t)
	s.addCluster(t, func(c *mocov1beta2.MySQLCluster) { c.Spec.MySQLConfigMapName = new("missing") })
	s.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionFalse, "missing")
	s.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, metav1.ConditionTrue)
	s.annotate(t, mocov1beta2.ClusteringStoppedAnnotation, "true")
	s.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, metav1.ConditionFalse)
	s.annotate(t, mocov1beta2.ReconciliationStoppedAnnotation, "true")
	s.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionFalse)
	both := s.cluster(t).Status.Pause
	if both == nil || both.Clustering == nil || both.Reconciliation == nil {
		t.Errorf("expected both stops in status.pause, found %+v", both)
	}
	s.annotate(t, mocov1beta2.ClusteringStoppedAnnotation, "")
	s.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, metav1.ConditionTrue)
	s.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionFalse)
	if p := s.cluster(t).Status.Pause; p == nil || p.Reconciliation == nil {
		t.Errorf("the other controller has dropped a stop: %+v", p)
	}
}
