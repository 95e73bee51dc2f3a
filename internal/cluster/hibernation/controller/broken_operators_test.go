// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// TestAResumeDoesNotWaitForOperatorsThatWereBrokenBefore uses an operator that was degraded long before the
// hibernation.
func TestAResumeDoesNotWaitForOperatorsThatWereBrokenBefore(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.InstallCRDs(t, "testdata/openshift-machines.yaml", "testdata/openshift-operators.yaml")
	e.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: machineNamespace}})
	long := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	operator := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{
		map[string]any{"type": "Available", "status": "True", "lastTransitionTime": long},
		map[string]any{"type": "Degraded", "status": "True", "lastTransitionTime": long},
	}}}}
	operator.SetGroupVersionKind(schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ClusterOperator"})
	operator.SetName("image-registry")
	e.ExpectCreated(t, operator)
	e.startManager(t, clouds())
	s := e.newCluster(t, nil)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	if record := s.get(t).Status.Hibernation; record == nil || !slices.Equal(record.BrokenOperators, []string{"image-registry"}) {
		t.Errorf("expected image-registry as the broken operator of the record, found %+v", record)
	}
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterDegradedCondition, "True", hivev1.ClusterOperatorsNotReadyReason, []string{"image-registry (degraded)"}})
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "True", hivev1.RunningHibernationReason, nil})
}
