// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	hiveinternalv1alpha1 "github.com/torpor-dev/torpor/api/hiveinternal/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestBenchSync measures how long a hundred clusters take to receive twenty objects each, and to catch up after a
// hibernation.
func TestBenchSync(t *testing.T) {
	if os.Getenv("TORPOR_BENCH") == "" {
		t.Skip("TORPOR_BENCH is not set: expected `make bench NAME=sync`")
	}
	const clusters, objects = 100, 20
	e := &env{Environment: testenv.Start(t), metrics: NewMetrics()}
	e.startManager(t)
	namespace, now := e.CreateNamespace(t), clock.RealClock{}
	set := &hivev1.SyncSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "set"}}
	var fleet []*testCluster
	for i := range clusters {
		c := e.newCluster(t, namespace, fmt.Sprintf("cluster-%d", i), nil)
		fleet = append(fleet, c)
		set.Spec.ClusterDeploymentRefs = append(set.Spec.ClusterDeploymentRefs, hivev1.LocalObjectReference{Name: c.cd.Name})
	}
	fill := func(value string) {
		set.Spec.Resources = []runtime.RawExtension{}
		for i := range objects {
			set.Spec.Resources = append(set.Spec.Resources, fleet[0].configMap(fmt.Sprintf("object-%d", i), value))
		}
	}
	fill("1")
	begin := now.Now()
	e.ExpectCreated(t, set)
	for _, c := range fleet {
		c.waitForSynced(t, set)
	}
	all := now.Since(begin)
	for _, c := range fleet {
		c.sleep(t)
		c.proxy.Accepted.Store(0)
	}
	testenv.ExpectPatched(t, e.Environment, set, func(*hivev1.SyncSet) { fill("2") })
	for _, c := range fleet {
		e.WaitForCondition(t, c.sync(), hiveinternalv1alpha1.ClusterSyncedCondition, metav1.ConditionFalse, hiveinternalv1alpha1.WaitingForClusterReason)
	}
	dials, woken := int64(0), map[string]time.Time{}
	for _, c := range fleet {
		dials += c.proxy.Accepted.Load()
	}
	for _, c := range fleet {
		c.wake(t, new(metav1.NewTime(now.Now()).Rfc3339Copy()))
		woken[c.cd.Name] = now.Now()
	}
	var took []float64
	var again int64
	for _, c := range fleet {
		cs := c.waitForSynced(t, set)
		at := meta.FindStatusCondition(cs.Status.Conditions, hiveinternalv1alpha1.ClusterSyncedCondition).LastTransitionTime
		took = append(took, max(0, at.Sub(woken[c.cd.Name]).Seconds()))
		again += c.proxy.Accepted.Load()
	}
	slices.Sort(took)
	const percentile = 95
	testenv.SaveFigures(t, "sync.json", map[string]any{
		"sync_all_seconds_100x20": all.Seconds(), "catch_up_p95_seconds": took[len(took)*percentile/100], "dials_while_asleep": dials, "connections_after_resume": again,
	})
}
