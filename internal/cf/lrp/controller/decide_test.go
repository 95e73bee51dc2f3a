// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	"github.com/torpor-dev/torpor/internal/restart"
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
		s := restart.BuildStatefulSet(lrp(replicas, false))
		s.Generation, s.Status.ObservedGeneration, s.Status.Replicas = generation, observed, there
		return s
	}
	foreign := set(1, 1, 1, 1)
	foreign.OwnerReferences[0].UID = "another"
	pods := []*corev1.Pod{{}}
	const kept = eiriniv1.LRPFinalizer
	for name, row := range map[string]struct {
		seen observation
		want step
	}{
		"a new one by hand is kept first":                     {observation{lrp: lrp(1, false)}, addFinalizer},
		"a kept one gets its StatefulSet":                     {observation{lrp: lrp(1, false, kept)}, createSet},
		"it is scaled":                                        {observation{lrp: lrp(1, false, kept), set: set(3, 1, 1, 3)}, scaleSet},
		"one instance needs no budget":                        {observation{lrp: lrp(1, false, kept), set: set(1, 1, 1, 1)}, nothing},
		"two need one":                                        {observation{lrp: lrp(2, false, kept), set: set(2, 1, 1, 2)}, createBudget},
		"a budget goes when one instance is left":             {observation{lrp: lrp(1, false, kept), set: set(1, 1, 1, 1), budget: restart.BuildDisruptionBudget(lrp(2, false))}, deleteBudget},
		"another's StatefulSet is not touched":                {observation{lrp: lrp(5, false, kept), set: foreign}, nothing},
		"nor by a deletion":                                   {observation{lrp: lrp(5, true, kept), set: foreign}, nothing},
		"one that is deleted is scaled to zero first":         {observation{lrp: lrp(1, true, kept), set: set(1, 1, 1, 1), pods: pods}, scaleSet},
		"then the StatefulSet controller has to see that":     {observation{lrp: lrp(1, true, kept), set: set(0, 2, 1, 0)}, nothing},
		"but need not have counted":                           {observation{lrp: lrp(1, true, kept), set: set(0, 2, 2, 1)}, deleteSet},
		"nor may a Pod be left":                               {observation{lrp: lrp(1, true, kept), set: set(0, 2, 2, 0), pods: pods}, nothing},
		"then the StatefulSet goes":                           {observation{lrp: lrp(1, true, kept), set: set(0, 2, 2, 0)}, deleteSet},
		"Pods that somebody's StatefulSet has left go":        {observation{lrp: lrp(1, true, kept), pods: pods}, deletePods},
		"then it is let go":                                   {observation{lrp: lrp(1, true, kept)}, removeFinalizer},
		"one whose finalizer somebody took is left as it is":  {observation{lrp: lrp(1, true), set: set(1, 1, 1, 1)}, nothing},
		"a StatefulSet that somebody deletes is waited for":   {observation{lrp: lrp(1, false, kept), set: dying(set(3, 1, 1, 3))}, nothing},
		"a deletion goes on with a StatefulSet that dies too": {observation{lrp: lrp(1, true, kept), set: dying(set(3, 1, 1, 3))}, scaleSet},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if found := decide(row.seen); found.do != row.want {
				t.Errorf("expected step %d, found %d (%s)", row.want, found.do, found.why)
			}
		})
	}
}

func dying(s *appsv1.StatefulSet) *appsv1.StatefulSet {
	s.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0)))
	return s
}
