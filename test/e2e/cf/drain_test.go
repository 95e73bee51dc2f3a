// SPDX-License-Identifier: Apache-2.0

package cf

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	testenv "github.com/torpor-dev/torpor/test/env"
)

// Requests for apps fail without a manager, so the drain of a node with both managers must not end them at the same
// time. TestRollingUpdateOfTheManagersRefusesNothing shows that no request is refused when one of them ends.
func TestDrainOfTheNodeOfBothManagersLeavesOneReady(t *testing.T) {
	t.Parallel()
	hub := testenv.StartControlPlane(t, 2)
	setUnschedulable(t, hub, "node-0", true)
	hub.ApplyManifest(t, "manager/namespace.yaml")
	hub.ExpectCreated(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "torpor-manager"}})
	hub.ApplyManifest(t, "manager/deployment.yaml")
	hub.ApplyManifest(t, "manager/disruption_budget.yaml")
	testenv.Eventually(t, "both managers are ready on the remaining node, and their budget counts them", func() error {
		var budget policyv1.PodDisruptionBudget
		if err := hub.Client.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "torpor-manager"}, &budget); err != nil {
			return err
		}
		if on := listReadyManagers(t, hub)["node-1"]; len(on) != 2 || budget.Status.DisruptionsAllowed != 1 {
			return fmt.Errorf("found %d, and %d disruptions allowed", len(on), budget.Status.DisruptionsAllowed)
		}
		return nil
	})

	drain := func() (refused int, err error) {
		t.Helper()
		refused, err = drainOnce(t, hub, "node-1")
		if ready := listReadyManagers(t, hub); len(ready["node-0"])+len(ready["node-1"]) == 0 {
			t.Fatal("expected a manager to be ready at each moment of the drain, found none")
		}
		return refused, err
	}
	setUnschedulable(t, hub, "node-1", true) // No node can run another manager, however fast it starts.
	testenv.Eventually(t, "the budget refuses to evict the second before the first is replaced", func() error {
		refused, err := drain()
		return testenv.ErrorIf(refused == 0, "found no refusal, and %v", err)
	})
	setUnschedulable(t, hub, "node-0", false)
	testenv.Eventually(t, "node-1 is drained", func() error {
		_, err := drain()
		if on := listReadyManagers(t, hub)["node-0"]; err == nil && len(on) != 2 {
			err = fmt.Errorf("found %d managers ready on node-0", len(on))
		}
		return err
	})
}

// drainOnce evicts every manager of a node, as kubectl drain does in each of its rounds. It returns the number of
// evictions that the budget refused, and an error while a manager is left.
func drainOnce(t *testing.T, hub *testenv.Environment, node string) (refused int, err error) {
	t.Helper()
	for _, pod := range listReadyManagers(t, hub)[node] {
		err = errors.New("a manager was still there")
		evicted := hub.Client.SubResource("eviction").Create(t.Context(), &pod, &policyv1.Eviction{})
		switch {
		case k8serrors.IsTooManyRequests(evicted):
			refused++
		case client.IgnoreNotFound(evicted) != nil:
			return refused, evicted
		}
	}
	return refused, err
}

// listReadyManagers returns the ready and not terminating Pods of managers, by node.
func listReadyManagers(t *testing.T, hub *testenv.Environment) map[string][]corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	testenv.ExpectNoError(t, hub.Client.List(t.Context(), &pods, client.InNamespace(system), client.MatchingLabels{"app.kubernetes.io/name": "torpor"}))
	ready := map[string][]corev1.Pod{}
	for _, pod := range pods.Items {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
				ready[pod.Spec.NodeName] = append(ready[pod.Spec.NodeName], pod)
			}
		}
	}
	return ready
}

func setUnschedulable(t *testing.T, hub *testenv.Environment, node string, wanted bool) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, wanted))
	testenv.ExpectNoError(t, hub.Client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch))
}
