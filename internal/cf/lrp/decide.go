// SPDX-License-Identifier: Apache-2.0

// Package lrp decides what happens to the StatefulSet of an LRP, which is one process of an app in one
// revision, and builds the objects of the LRP. It is pure; its package controller observes and acts.
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
	// Refusal is why a Pod could not be created; it is read only while some are missing.
	Refusal string
	Now     time.Time
	// StopDelay is how long an instance keeps serving after it has left its Services; 0 for a process that does not
	// listen.
	StopDelay time.Duration
	// OthersServe is true if another revision of the process serves, and stays.
	OthersServe bool
}

// LacksPods reports whether the StatefulSet's controller has observed the wanted number, and created fewer
// Pods.
func (o Observed) LacksPods() bool {
	set := o.StatefulSet
	return set != nil && set.DeletionTimestamp.IsZero() && o.LRP.DeletionTimestamp.IsZero() &&
		set.Status.ObservedGeneration >= set.Generation && set.Status.Replicas < desiredReplicas(set)
}

// Action is the action of a pass on an LRP; there is at most one.
type Action int

// The actions, in the order in which an LRP usually meets them.
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
	// Replicas is the number that ScaleStatefulSet sets.
	Replicas int32
	// Pods are those that LeaveServices and ReturnToServices change.
	Pods []*corev1.Pod
	// After is the time until the next pass; 0 waits for an event.
	After time.Duration
	// Why names the decision, for the log and for errors.
	Why string
	// Conflict describes what keeps the LRP from running until a user intervenes; empty if there is no
	// conflict.
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
		return Plan{Why: "name taken", Conflict: fmt.Sprintf("expected the StatefulSet %s to belong to this LRP, found another owner; delete it", o.StatefulSet.Name)}
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

// decideDeletion ends an LRP so that no Pod of it can come back, see docs/adr/0010-revisions-of-apps.md: a
// StatefulSet that is deleted first could still get a Pod from a controller whose cache is stale.
func decideDeletion(o Observed) Plan {
	switch {
	case o.StatefulSet == nil && len(o.Pods) > 0:
		return Plan{Do: DeletePods, Why: "delete Pods without a StatefulSet"}
	case o.StatefulSet == nil:
		return Plan{Do: RemoveFinalizer, Why: "no Pod is left"}
	case desiredReplicas(o.StatefulSet) != 0:
		return decideScaleDown(o, 0, "scale to zero")
	// Once its controller has observed the scale it creates no more Pods; it need not have counted that none
	// is left.
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
		return Plan{Do: DeleteBudget, Why: "delete the disruption budget of a single instance"}
	default:
		return Plan{Why: "as it should be"}
	}
}

func desiredReplicas(set *appsv1.StatefulSet) int32 {
	if set.Spec.Replicas == nil {
		return 1
	}
	return *set.Spec.Replicas
}

// CountDraining returns the number of Pods that are ending: all, if the LRP is being deleted.
func (o Observed) CountDraining() int32 {
	var n int32
	for _, pod := range o.Pods {
		if podstatus.IsEnding(pod) || !o.LRP.DeletionTimestamp.IsZero() {
			n++
		}
	}
	return n
}

// ReadyCondition returns the condition Ready of an LRP with the given number of ready instances.
func ReadyCondition(o Observed, p Plan, ready int32) decision.Condition {
	message := fmt.Sprintf("%d of %d instances are ready", ready, wantedInstances(o.LRP))
	switch {
	case p.Conflict != "":
		return decision.False(korifiv1alpha1.NameTakenReason, p.Conflict)
	case !o.LRP.DeletionTimestamp.IsZero():
		return decision.False(korifiv1alpha1.StoppingReason, fmt.Sprintf("%d instances are left", len(o.Pods)))
	case ready >= wantedInstances(o.LRP):
		return decision.True(korifiv1alpha1.RunningReason, message)
	case o.Refusal != "":
		return decision.False(korifiv1alpha1.BlockedReason, o.Refusal)
	default:
		return decision.False(korifiv1alpha1.StartingReason, message)
	}
}

// DrainingCondition returns the condition Draining of an LRP with the given number of ending instances.
func DrainingCondition(draining int32) decision.Condition {
	if draining == 0 {
		return decision.False(korifiv1alpha1.DrainedReason, "no instance is terminating")
	}
	return decision.True(korifiv1alpha1.DrainingReason, fmt.Sprintf("%d instances are terminating", draining))
}
