// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	testenv "github.com/torpor-dev/torpor/test/env"
)

// TestAHibernationIsRefusedWhereItsConditionIsRequired creates the first NodeClaim of Karpenter after the first survey
// of a cluster. The cluster hibernates once the NodeClaim is deleted.
func TestAHibernationIsRefusedWhereItsConditionIsRequired(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.InstallCRDs(t, "testdata/karpenter.yaml")
	e.startManager(t, clouds())
	s := e.newCluster(t, nil)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernationPossibleCondition, "True", hivev1.NothingFoundReason, nil})
	node := &unstructured.Unstructured{}
	node.SetGroupVersionKind(schema.GroupVersionKind{Group: "karpenter.sh", Version: "v1", Kind: "NodeClaim"})
	node.SetName("default-x7k2p")
	e.ExpectCreated(t, node)
	s.patch(t, requestingUser, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"powerState":"Hibernating"}}`, hivev1.RequireAnnotation, hivev1.RequireHibernationPossible))
	s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "False", hivev1.RefusedHibernationReason, []string{torporv1alpha1.KarpenterReplacesNodesFinding, "default-x7k2p"}})
	s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernationPossibleCondition, "False", torporv1alpha1.KarpenterReplacesNodesFinding, nil})
	s.awaitCondition(t, expectedCondition{hivev1.ClusterReadyCondition, "True", hivev1.RunningHibernationReason, nil})
	s.awaitEvents(t, torporv1alpha1.KarpenterReplacesNodesFinding, hivev1.RefusedHibernationReason)
	if record := s.get(t).Status.Hibernation; record != nil {
		t.Errorf("expected no record of a hibernation, found %+v", record)
	}
	testenv.ExpectNoError(t, s.cloud.ExpectState(t, s.infraID, "running"))

	testenv.ExpectNoError(t, e.Client.Delete(t.Context(), node))
	s.touchAnnotation(t, 1) // Otherwise the next survey would run minutes later.
	s.awaitSettled(t, hivev1.PowerStateHibernating)
}

// TestAHibernationIsRefusedForACancelledReservation uses a machine that would not start again. The finding follows from
// the machines, without another survey.
func TestAHibernationIsRefusedForACancelledReservation(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.startManager(t, clouds())
	s := e.newCluster(t, nil)
	s.awaitSettled(t, hivev1.PowerStateRunning)
	s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernationPossibleCondition, "True", hivev1.NothingFoundReason, nil})
	id := s.cloud.ListInstances(t, s.infraID)[0].ID
	s.cloud.RequireReservation(t, id, "cr-0123")
	s.cloud.CancelReservation(t, id)
	s.touchAnnotation(t, 1) // Otherwise the next poll would run minutes later.
	s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernationPossibleCondition, "False", torporv1alpha1.CapacityReservationMissingFinding, []string{id}})
	s.patch(t, requestingUser, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"powerState":"Hibernating"}}`, hivev1.RequireAnnotation, hivev1.RequireHibernationPossible))
	s.awaitCondition(t, expectedCondition{hivev1.ClusterHibernatingCondition, "False", hivev1.RefusedHibernationReason, []string{torporv1alpha1.CapacityReservationMissingFinding, id}})
	testenv.ExpectNoError(t, s.cloud.ExpectState(t, s.infraID, "running"))

	s.cloud.RequireReservation(t, id, "") // The machine requires no reservation any more.
	passes := 1
	testenv.Eventually(t, "a pass with a newer poll", func() error {
		passes++
		s.touchAnnotation(t, passes)
		return expectedCondition{hivev1.ClusterHibernationPossibleCondition, "True", hivev1.NothingFoundReason, nil}.check(s.get(t))
	})
	s.awaitSettled(t, hivev1.PowerStateHibernating)
}
