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
func (e *clusterEnv) startRollout(t *testing.T) {
	t.Helper()
	e.addCluster(t, nil)
	e.waitUntilReconciled(t)
	e.reportRevision(t, "one")
	for i := range 3 {
		e.addPod(t, i, "one")
	}
	e.reportHealthy(t, 1)
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionTrue)
	e.setImage(t, "mysql:2")
	e.waitUntilReconciled(t)
}

// waitUntilReplaced waits until a Pod is deleted, and makes it anew.
func (e *clusterEnv) waitUntilReplaced(t *testing.T, i int) {
	t.Helper()
	e.waitUntilGone(t, podName(i), &corev1.Pod{})
	for other := range 3 {
		if err := e.get(t, podName(other), &corev1.Pod{}); other != i && err != nil {
			t.Errorf("while Pod %d is replaced, Pod %d: %v", i, other, err)
		}
	}
	e.addPod(t, i, "two")
}

func TestRolloutReplacesThePrimaryLast(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.startRollout(t)
	e.reportRevision(t, "two")
	e.waitUntilReplaced(t, 0)
	e.waitUntilReplaced(t, 2)
	testenv.Eventually(t, "a switchover is asked for", func() error {
		pod := &corev1.Pod{}
		if err := e.get(t, podName(1), pod); err != nil {
			t.Fatalf("the primary's Pod: %v", err)
		}
		if pod.Annotations[mocov1beta2.DemoteAnnotation] != "true" {
			return errors.New("the primary's Pod has no annotation")
		}
		return nil
	})
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionFalse, "switchover", podName(1))
	e.reportHealthy(t, 0)
	e.waitUntilReplaced(t, 1)
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionTrue)
	testenv.Eventually(t, "events tell of replaced Pods", func() error {
		if e.countEvents(t, podReplaced) == 0 {
			return errors.New("found none")
		}
		return nil
	})
}

func TestRolloutWaitsWhileClusteringIsStopped(t *testing.T) {
	t.Parallel()
	e := newClusterEnv(t, shared.Get(t))
	e.startRollout(t)
	e.annotate(t, mocov1beta2.ClusteringStoppedAnnotation, "true")
	e.reportRevision(t, "two")
	e.waitForCondition(t, mocov1beta2.StatefulSetReadyCondition, metav1.ConditionFalse,
		"the rollout waits while clustering is stopped", podName(0), "kubectl moco start clustering test")
	e.waitUntilSettled(t, func() error { return nil })
	for i := range 3 {
		if err := e.get(t, podName(i), &corev1.Pod{}); k8serrors.IsNotFound(err) {
			t.Errorf("Pod %d is replaced while clustering is stopped", i)
		}
	}
	e.annotate(t, mocov1beta2.ClusteringStoppedAnnotation, "")
	e.waitUntilReplaced(t, 0)
}

// TestAFailingReconcileDoesNotDelayAStop has both controllers of the kind: upstream honours a stop only after everything
// else has succeeded.
func TestAFailingReconcileDoesNotDelayAStop(t *testing.T) {
	t.Parallel()
	both := newTestEnv(t)
	both.startClustering(t)
	e := newClusterEnv(t, both)
	e.addCluster(t, func(c *mocov1beta2.MySQLCluster) { c.Spec.MySQLConfigMapName = new("missing") })
	e.waitForCondition(t, mocov1beta2.ReconcileSuccessCondition, metav1.ConditionFalse, "missing")
	e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, metav1.ConditionTrue)
	e.annotate(t, mocov1beta2.ClusteringStoppedAnnotation, "true")
	e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, metav1.ConditionFalse)
	e.annotate(t, mocov1beta2.ReconciliationStoppedAnnotation, "true")
	e.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionFalse)
	stops := e.cluster(t).Status.Pause
	if stops == nil || stops.Clustering == nil || stops.Reconciliation == nil {
		t.Errorf("expected both stops in status.pause, found %+v", stops)
	}
	e.annotate(t, mocov1beta2.ClusteringStoppedAnnotation, "")
	e.waitForCondition(t, mocov1beta2.ClusteringActiveCondition, metav1.ConditionTrue)
	e.waitForCondition(t, mocov1beta2.ReconciliationActiveCondition, metav1.ConditionFalse)
	if p := e.cluster(t).Status.Pause; p == nil || p.Reconciliation == nil {
		t.Errorf("the other controller has dropped a stop: %+v", p)
	}
}
