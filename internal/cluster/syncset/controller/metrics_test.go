// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cluster/syncset"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestPatchThatCannotBeReadIsNoticedBeforeAnythingIsSent uses a set with an invalid last patch. The patch is then
// fixed, and the cluster hibernates and resumes. An event reports each step, and a metric shows the cluster's
// progress.
func TestPatchThatCannotBeReadIsNoticedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	e := shared.Get(t)
	c := e.newCluster(t, e.CreateNamespace(t), "cluster", nil)
	patch := hivev1.SyncObjectPatch{APIVersion: "v1", Kind: "ConfigMap", Namespace: c.namespace, Name: "first", Patch: "data: {patched: 'yes'}"}
	wrong := patch
	wrong.Patch = "data: ["
	set := c.newSyncSet(t, "set", hivev1.SyncSetCommonSpec{
		Resources: []runtime.RawExtension{c.configMap("first", "1")}, Patches: []hivev1.SyncObjectPatch{patch, wrong},
	})
	e.WaitForCondition(t, c.sync(), hiveinternalv1alpha1.ClusterSyncFailedCondition, metav1.ConditionTrue, hiveinternalv1alpha1.SyncFailureReason)
	e.WaitForEvent(t, c.cd.Namespace, syncset.EventSyncSetsFailed, "SyncSet set: spec.patches[1]: expected the patch to be JSON or YAML")
	if found := c.configMapData(t, "first"); found != nil {
		t.Errorf("expected no request for an invalid set, found %v", found)
	}
	e.waitForProgress(t, c, hiveinternalv1alpha1.SyncFailureReason)

	testenv.ExpectPatched(t, e.Environment, set, func(s *hivev1.SyncSet) { s.Spec.Patches = s.Spec.Patches[:1] })
	c.waitForSynced(t, set)
	e.WaitForEvent(t, c.cd.Namespace, syncset.EventSyncSetsRecovered, "SyncSet set")
	testenv.ExpectEqual(t, "the ConfigMap", map[string]string{"key": "1", "patched": "yes"}, c.configMapData(t, "first"))
	e.waitForProgress(t, c, hiveinternalv1alpha1.AllAppliedReason)

	c.sleep(t)
	c.wake(t, new(metav1.NewTime(time.Now()).Rfc3339Copy()))
	e.WaitForEvent(t, c.cd.Namespace, syncset.EventCaughtUp, "All sets were applied to the cluster after the resume")
}

// waitForProgress waits until the metric has the wanted reason for a cluster, and jobs are counted.
func (e *env) waitForProgress(t *testing.T, c *testCluster, want string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	testenv.ExpectNoError(t, registry.Register(e.metrics))
	testenv.Eventually(t, "the metric has "+want, func() error {
		families, err := registry.Gather()
		if err != nil {
			return fmt.Errorf("gather: %w", err)
		}
		found, results := map[string]float64{}, map[string]float64{}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				switch {
				case family.GetName() == "torpor_cluster_sync" && labels["namespace"] == c.cd.Namespace:
					found[labels["reason"]] = m.GetGauge().GetValue()
				case family.GetName() == "torpor_cluster_sync_jobs_total":
					results[labels["result"]] = m.GetCounter().GetValue()
				}
			}
		}
		wasCounted := want == hiveinternalv1alpha1.SyncFailureReason && results["refused"] > 0 || want == hiveinternalv1alpha1.AllAppliedReason && results["applied"] > 0
		return testenv.ErrorIf(!maps.Equal(found, map[string]float64{want: 1}) || !wasCounted, "found %v and %v", found, results)
	})
}
