// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestAResumeWaitsForOperatorsThatHaveReportedSince uses an OpenShift cluster with an operator that always looks
// ready, because its conditions have not changed since before the hibernation.
func TestAResumeWaitsForOperatorsThatHaveReportedSince(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.InstallCRDs(t, "testdata/openshift-machines.yaml", "testdata/openshift-operators.yaml")
	const operatorNamespace = "openshift-etcd-operator"
	for _, name := range []string{machineNamespace, operatorNamespace} {
		e.ExpectCreated(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	long := metav1.NewTime(time.Now().Add(-time.Hour))
	operator := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
		"conditions": []any{
			map[string]any{"type": "Available", "status": "True", "lastTransitionTime": long.UTC().Format(time.RFC3339)},
			map[string]any{"type": "Degraded", "status": "False", "lastTransitionTime": long.UTC().Format(time.RFC3339)},
		},
		"relatedObjects": []any{map[string]any{"group": "", "resource": "namespaces", "name": operatorNamespace}},
	}}}
	operator.SetGroupVersionKind(schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ClusterOperator"})
	operator.SetName("etcd")
	e.ExpectCreated(t, operator)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "openshift-cluster-etcd-operator-lock"},
		Spec:       coordinationv1.LeaseSpec{AcquireTime: new(metav1.NewMicroTime(long.Time)), RenewTime: new(metav1.NewMicroTime(long.Time))},
	}
	e.ExpectCreated(t, lease)
	e.startManager(t, clouds())
	s := e.newCluster(t, nil)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.setPowerState(t, hivev1.PowerStateHibernating)
	s.awaitSettled(t, hivev1.PowerStateHibernating)
	s.setPowerState(t, hivev1.PowerStateRunning)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "False", hivev1.WaitingForClusterOperatorsReason, []string{"waiting for ClusterOperators"}})
	s.awaitCondition(t, expectedCondition{hivev1.ClusterUnreachableCondition, "False", hivev1.ClusterReachableReason, nil})

	// The operator renews the lease that it acquired earlier. A lease that was just acquired would not be a sign of
	// life.
	lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now().Add(time.Second)))
	testenv.ExpectNoError(t, e.Client.Update(t.Context(), lease))
	s.awaitSettled(t, hivev1.PowerStateRunning)
}
