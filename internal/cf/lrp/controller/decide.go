// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/restart"
)

// observation is what is seen of an LRP.
type observation struct {
	lrp *eiriniv1.LRP
	// set and budget are nil if they are not there.
	set    *appsv1.StatefulSet
	budget *policyv1.PodDisruptionBudget
	pods   []*corev1.Pod
}

// step of an LRP; at most one is done in a pass.
type step int

const (
	nothing step = iota
	addFinalizer
	createSet
	scaleSet
	createBudget
	deleteBudget
	deleteSet
	deletePods
	removeFinalizer
)

// plan is what to do and why.
type plan struct {
	do step
	// replicas is what to scale to.
	replicas int32
	why      string
	// trouble is what only a person can change; empty if there is none.
	trouble string
}

// decide says what is next. An LRP that is deleted is scaled to zero first: only when the StatefulSet controller has
// said that it saw that, and no Pod is left, can no Pod come back. It need not have counted that none is left.
func decide(o observation) plan {
	deleting := !o.lrp.DeletionTimestamp.IsZero()
	kept := controllerutil.ContainsFinalizer(o.lrp, eiriniv1.LRPFinalizer)
	switch {
	case deleting && !kept:
		return plan{why: "it is being deleted"}
	case o.set != nil && !metav1.IsControlledBy(o.set, o.lrp):
		return plan{why: "name taken", trouble: fmt.Sprintf("expected the StatefulSet %s to be this LRP's, found another owner; delete it", o.set.Name)}
	case deleting && o.set == nil && len(o.pods) > 0:
		return plan{do: deletePods, why: "delete what a StatefulSet has left"}
	case deleting && o.set == nil:
		return plan{do: removeFinalizer, why: "no Pod is left"}
	case deleting && replicas(o.set) != 0:
		return plan{do: scaleSet, why: "scale to zero"}
	case deleting && (!told(o.set) || len(o.pods) > 0):
		return plan{why: "wait for the Pods"}
	case deleting:
		return plan{do: deleteSet, why: "delete the empty StatefulSet, and let go"}
	case !kept:
		return plan{do: addFinalizer, why: "keep it until its Pods are gone"}
	case o.set == nil:
		return plan{do: createSet, why: "create the StatefulSet"}
	case !o.set.DeletionTimestamp.IsZero():
		return plan{why: "wait for a StatefulSet that is being deleted"}
	case replicas(o.set) != o.lrp.Spec.Instances:
		return plan{do: scaleSet, replicas: o.lrp.Spec.Instances, why: "scale"}
	default:
		return decideBudget(o)
	}
}

func decideBudget(o observation) plan {
	wanted := restart.BuildDisruptionBudget(o.lrp) != nil
	switch {
	case wanted && o.budget == nil:
		return plan{do: createBudget, why: "create the disruption budget"}
	case !wanted && o.budget != nil && metav1.IsControlledBy(o.budget, o.lrp):
		return plan{do: deleteBudget, why: "delete the disruption budget of a single instance"}
	default:
		return plan{why: "as it should be"}
	}
}

func replicas(set *appsv1.StatefulSet) int32 {
	if set.Spec.Replicas == nil {
		return 1
	}
	return *set.Spec.Replicas
}

// told: the StatefulSet controller has seen how many are wanted. From then on it makes no more.
func told(set *appsv1.StatefulSet) bool { return set.Status.ObservedGeneration >= set.Generation }

func draining(o observation) int32 {
	var n int32
	for _, p := range o.pods {
		if !p.DeletionTimestamp.IsZero() || !o.lrp.DeletionTimestamp.IsZero() {
			n++
		}
	}
	return n
}

func readyCondition(o observation, p plan, ready int32) metav1.Condition {
	c := metav1.Condition{
		Type: korifiv1alpha1.ReadyCondition, Status: metav1.ConditionFalse, Reason: korifiv1alpha1.StartingReason,
		Message: fmt.Sprintf("%d of %d instances are ready", ready, o.lrp.Spec.Instances),
	}
	switch {
	case p.trouble != "":
		c.Reason, c.Message = korifiv1alpha1.NameTakenReason, p.trouble
	case !o.lrp.DeletionTimestamp.IsZero():
		c.Reason, c.Message = korifiv1alpha1.StoppingReason, fmt.Sprintf("%d instances are left", len(o.pods))
	case ready >= o.lrp.Spec.Instances:
		c.Status, c.Reason = metav1.ConditionTrue, korifiv1alpha1.RunningReason
	}
	return c
}

func drainingCondition(n int32) metav1.Condition {
	c := metav1.Condition{
		Type: korifiv1alpha1.DrainingCondition, Status: metav1.ConditionFalse, Reason: korifiv1alpha1.DrainedReason,
		Message: "no instance is on its way out",
	}
	if n > 0 {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, korifiv1alpha1.DrainingReason, fmt.Sprintf("%d instances are on their way out", n)
	}
	return c
}
