// SPDX-License-Identifier: Apache-2.0

// Package lrp decides the next action for an LRP, which is one process of an app in one revision. It also builds the
// LRP's objects, such as its StatefulSet. It is pure; package controller observes and acts.
package lrp

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
	"github.com/torpor-dev/torpor/internal/decision"
)

// Observed is the observed state of an LRP and its objects.
type Observed struct {
	LRP *eiriniv1.LRP
	// StatefulSet and Budget are nil if they do not exist.
	StatefulSet *appsv1.StatefulSet
	Budget      *policyv1.PodDisruptionBudget
	Pods        []*corev1.Pod
	// Refusal is the reason why a Pod could not be created, or why its image pull Secret could not be read, or "".
	Refusal string
	Now     time.Time
	// StopDelay is the time for which an instance continues to serve after it has left its Services. It is 0 for a
	// process that does not listen.
	StopDelay time.Duration
	// OthersServe is true if another revision of the process serves and is not being deleted.
	OthersServe bool
}

// LacksPods reports whether the StatefulSet's controller has observed the desired number of Pods and has created fewer.
func (o Observed) LacksPods() bool {
	set := o.StatefulSet
	return set != nil && set.DeletionTimestamp.IsZero() && o.LRP.DeletionTimestamp.IsZero() &&
		set.Status.ObservedGeneration >= set.Generation && set.Status.Replicas < desiredReplicas(set)
}

// Action is a change that the controller makes for an LRP. Each reconciliation makes at most one.
type Action int

// These are the actions, in their usual order during the life of an LRP.
const (
	DoNothing Action = iota
	AddFinalizer
	CreateStatefulSet
	LeaveServices
	ReturnToServices
	ScaleStatefulSet
	CreateBudget
	DeleteBudget
	DeleteStatefulSet
	DeletePods
	RemoveFinalizer
)

// Plan is the next action and the reason for it.
type Plan struct {
	Do Action
	// Replicas is the new number of replicas for ScaleStatefulSet.
	Replicas int32
	// Pods are the Pods that LeaveServices and ReturnToServices change.
	Pods []*corev1.Pod
	// After is the time until the next reconciliation. If it is 0, only an event triggers it.
	After time.Duration
	// Why describes the decision, for the log and for errors.
	Why string
	// Conflict is the reason why the LRP cannot run until a user intervenes. It is empty if there is no conflict.
	Conflict string
}

// Decide is total: every Observed has exactly one Plan.
func Decide(o Observed) Plan {
	deleting := !o.LRP.DeletionTimestamp.IsZero()
	kept := slices.Contains(o.LRP.Finalizers, eiriniv1.LRPFinalizer)
	switch {
	case deleting && !kept:
		return Plan{Why: "being deleted"}
	case o.StatefulSet != nil && !metav1.IsControlledBy(o.StatefulSet, o.LRP):
		return Plan{Why: "name taken", Conflict: fmt.Sprintf("expected the StatefulSet %s to belong to this LRP, found another owner; delete that StatefulSet", o.StatefulSet.Name)}
	case deleting:
		return decideDeletion(o)
	case !kept:
		return Plan{Do: AddFinalizer, Why: "keep the LRP until its Pods are gone"}
	case o.StatefulSet == nil:
		return Plan{Do: CreateStatefulSet, Why: "create the StatefulSet"}
	case !o.StatefulSet.DeletionTimestamp.IsZero():
		return Plan{Why: "wait for a StatefulSet that is being deleted"}
	case len(o.returningPods()) > 0:
		return Plan{Do: ReturnToServices, Pods: o.returningPods(), Why: "return instances to their Services"}
	case desiredReplicas(o.StatefulSet) > wantedInstances(o.LRP):
		return decideScaleDown(o, wantedInstances(o.LRP), "scale down")
	case desiredReplicas(o.StatefulSet) < wantedInstances(o.LRP):
		return Plan{Do: ScaleStatefulSet, Replicas: wantedInstances(o.LRP), Why: "scale"}
	default:
		return decideBudget(o)
	}
}

// decideDeletion deletes an LRP in an order in which no Pod can be created again. If the StatefulSet were deleted
// first, a controller with a stale cache could still create a Pod for it. See docs/adr/0010-revisions-of-apps.md.
func decideDeletion(o Observed) Plan {
	switch {
	case o.StatefulSet == nil && len(o.Pods) > 0:
		return Plan{Do: DeletePods, Why: "delete Pods without a StatefulSet"}
	case o.StatefulSet == nil:
		return Plan{Do: RemoveFinalizer, Why: "no Pod is left"}
	case desiredReplicas(o.StatefulSet) != 0:
		return decideScaleDown(o, 0, "scale to zero")
	// Once the StatefulSet's controller has observed the scale to zero, it creates no more Pods. The status of the
	// StatefulSet need not report zero Pods yet.
	case o.StatefulSet.Status.ObservedGeneration < o.StatefulSet.Generation || len(o.Pods) > 0:
		return Plan{Why: "wait for the Pods"}
	default:
		return Plan{Do: DeleteStatefulSet, Why: "delete the empty StatefulSet, and release the LRP"}
	}
}

func decideBudget(o Observed) Plan {
	wanted := BuildDisruptionBudget(o.LRP) != nil
	switch {
	case wanted && o.Budget == nil:
		return Plan{Do: CreateBudget, Why: "create the disruption budget"}
	case !wanted && o.Budget != nil && metav1.IsControlledBy(o.Budget, o.LRP):
		return Plan{Do: DeleteBudget, Why: "delete the disruption budget, because the LRP has fewer than two instances"}
	default:
		return Plan{Why: "nothing to change"}
	}
}

func desiredReplicas(set *appsv1.StatefulSet) int32 {
	if set.Spec.Replicas == nil {
		return 1
	}
	return *set.Spec.Replicas
}

// CountDraining returns the number of Pods that are terminating or have left their Services. It counts all Pods if the
// LRP is being deleted.
func (o Observed) CountDraining() int32 {
	var n int32
	for _, pod := range o.Pods {
		if podstatus.IsEnding(pod) || !o.LRP.DeletionTimestamp.IsZero() {
			n++
		}
	}
	return n
}

// ReadyCondition returns the Ready condition of an LRP with the given number of ready instances.
func ReadyCondition(o Observed, p Plan, ready int32) decision.Condition {
	message := fmt.Sprintf("%d of %d instances are ready", ready, wantedInstances(o.LRP))
	switch {
	case p.Conflict != "":
		return decision.False(korifiv1alpha1.NameTakenReason, p.Conflict)
	case !o.LRP.DeletionTimestamp.IsZero():
		return decision.False(korifiv1alpha1.StoppingReason, fmt.Sprintf("%d instances have not ended yet", len(o.Pods)))
	case ready >= wantedInstances(o.LRP):
		return decision.True(korifiv1alpha1.RunningReason, message)
	case o.Refusal != "":
		return decision.False(korifiv1alpha1.BlockedReason, o.Refusal)
	default:
		return decision.False(korifiv1alpha1.StartingReason, message)
	}
}

// DrainingCondition returns the Draining condition of an LRP with the given number of draining instances.
func DrainingCondition(draining int32) decision.Condition {
	if draining == 0 {
		return decision.False(korifiv1alpha1.DrainedReason, "no instance is terminating")
	}
	return decision.True(korifiv1alpha1.DrainingReason, fmt.Sprintf("%d instances are terminating", draining))
}
