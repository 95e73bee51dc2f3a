// SPDX-License-Identifier: Apache-2.0

package lrp

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	lrp := func(instances int32, deleting bool, finalizers ...string) *eiriniv1.LRP {
		l := &eiriniv1.LRP{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "lrp", Finalizers: finalizers}, Spec: eiriniv1.LRPSpec{GUID: "a", Version: "1", Instances: instances}}
		if deleting {
			l.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0)))
		}
		return l
	}
	set := func(replicas int32, generation, observed int64, there int32) *appsv1.StatefulSet {
		s := BuildStatefulSet(lrp(replicas, false), PodOptions{PullPolicy: corev1.PullAlways})
		s.Generation, s.Status.ObservedGeneration, s.Status.Replicas = generation, observed, there
		return s
	}
	foreign := set(1, 1, 1, 1)
	foreign.OwnerReferences[0].UID = "another"
	pods := []*corev1.Pod{{}}
	const kept = eiriniv1.LRPFinalizer
	for name, row := range map[string]struct {
		seen Observed
		want Action
	}{
		"a new LRP that a user created gets its finalizer first":                                    {Observed{LRP: lrp(1, false)}, AddFinalizer},
		"an LRP with its finalizer gets a StatefulSet":                                              {Observed{LRP: lrp(1, false, kept)}, CreateStatefulSet},
		"a StatefulSet with another number of replicas is scaled":                                   {Observed{LRP: lrp(1, false, kept), StatefulSet: set(3, 1, 1, 3)}, ScaleStatefulSet},
		"an LRP with one instance gets no disruption budget":                                        {Observed{LRP: lrp(1, false, kept), StatefulSet: set(1, 1, 1, 1)}, DoNothing},
		"an LRP with two instances gets a disruption budget":                                        {Observed{LRP: lrp(2, false, kept), StatefulSet: set(2, 1, 1, 2)}, CreateBudget},
		"the disruption budget is deleted when one instance is desired":                             {Observed{LRP: lrp(1, false, kept), StatefulSet: set(1, 1, 1, 1), Budget: BuildDisruptionBudget(lrp(2, false))}, DeleteBudget},
		"a StatefulSet of another owner is not scaled":                                              {Observed{LRP: lrp(5, false, kept), StatefulSet: foreign}, DoNothing},
		"a StatefulSet of another owner is not deleted together with the LRP":                       {Observed{LRP: lrp(5, true, kept), StatefulSet: foreign}, DoNothing},
		"the StatefulSet of a deleted LRP is scaled to zero first":                                  {Observed{LRP: lrp(1, true, kept), StatefulSet: set(1, 1, 1, 1), Pods: pods}, ScaleStatefulSet},
		"a StatefulSet is kept until its controller has observed the scale to zero":                 {Observed{LRP: lrp(1, true, kept), StatefulSet: set(0, 2, 1, 0)}, DoNothing},
		"a StatefulSet without Pods is deleted even if its status still reports one":                {Observed{LRP: lrp(1, true, kept), StatefulSet: set(0, 2, 2, 1)}, DeleteStatefulSet},
		"the StatefulSet of a deleted LRP is kept while it has a Pod":                               {Observed{LRP: lrp(1, true, kept), StatefulSet: set(0, 2, 2, 0), Pods: pods}, DoNothing},
		"the StatefulSet of a deleted LRP is deleted once its last Pod is gone":                     {Observed{LRP: lrp(1, true, kept), StatefulSet: set(0, 2, 2, 0)}, DeleteStatefulSet},
		"Pods of a deleted LRP without a StatefulSet are deleted":                                   {Observed{LRP: lrp(1, true, kept), Pods: pods}, DeletePods},
		"a deleted LRP without a StatefulSet and Pods loses its finalizer":                          {Observed{LRP: lrp(1, true, kept)}, RemoveFinalizer},
		"a deleted LRP without its finalizer is not changed":                                        {Observed{LRP: lrp(1, true), StatefulSet: set(1, 1, 1, 1)}, DoNothing},
		"an LRP waits while an earlier StatefulSet is being deleted":                                {Observed{LRP: lrp(1, false, kept), StatefulSet: withDeletion(set(3, 1, 1, 3))}, DoNothing},
		"the StatefulSet of a deleted LRP is scaled to zero while the StatefulSet is being deleted": {Observed{LRP: lrp(1, true, kept), StatefulSet: withDeletion(set(3, 1, 1, 3))}, ScaleStatefulSet},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if found := Decide(row.seen); found.Do != row.want {
				t.Errorf("expected action %d, found %d (%s)", row.want, found.Do, found.Why)
			}
		})
	}
}

func withDeletion(s *appsv1.StatefulSet) *appsv1.StatefulSet {
	s.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0)))
	return s
}
