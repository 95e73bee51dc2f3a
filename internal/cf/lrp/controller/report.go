// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/lrp"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
	"github.com/torpor-dev/torpor/internal/decision"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// Events about missing Pods are read first after minRefusalInterval, and then at increasing intervals of at most
// maxRefusalInterval.
const (
	minRefusalInterval = 2 * time.Second
	maxRefusalInterval = time.Minute
)

// report writes the observed state to the status.
func (c Controller) report(obj *eiriniv1.LRP, o lrp.Observed, p lrp.Plan, refused *reconcile.RefusedError) reconcile.FollowUp {
	out := reconcile.FollowUp{Rule: p.Why}
	if refused != nil {
		p.Conflict = refused.Error()
		out.RequeueAfter = reconcile.OtherWriterInterval // The deletion of an object with another owner triggers no event.
	}
	before, status := obj.Status.DeepCopy(), &obj.Status
	status.Replicas, status.Instances = 0, nil
	for _, pod := range o.Pods {
		if podstatus.IsEnding(pod) {
			continue
		}
		is := podstatus.InstanceStatus(pod)
		if is.State == korifiv1alpha1.RunningInstance {
			status.Replicas++
		}
		if status.Instances == nil {
			status.Instances = map[string]eiriniv1.InstanceStatus{}
		}
		if index := podstatus.InstanceIndex(pod); index != "" {
			status.Instances[index] = eiriniv1.InstanceStatus{State: string(is.State), Since: is.Timestamp, Details: is.Details}
		}
	}
	status.DrainingReplicas = o.CountDraining()
	status.ObservedGeneration = obj.Generation
	reconcile.SetConditions(&status.Conditions, map[string]decision.Condition{
		korifiv1alpha1.ReadyCondition: lrp.ReadyCondition(o, p, status.Replicas), korifiv1alpha1.DrainingCondition: lrp.DrainingCondition(status.DrainingReplicas),
	}, obj.Generation, c.Clock)
	out.IsTransient = o.Refusal == "" && isTransient(obj, before, p)
	if p.After > 0 {
		out.RequeueAfter = p.After
	}
	if o.LacksPods() {
		// A failure to create a Pod triggers no event for a watched kind.
		out.RequeueAfter = min(max(c.Clock.Since(lackingSince(o)), minRefusalInterval), maxRefusalInterval)
	}
	return out
}

// lackingSince returns the creation time of the StatefulSet, or the time at which the LRP was last ready if that is
// later.
func lackingSince(o lrp.Observed) time.Time {
	since := o.StatefulSet.CreationTimestamp.Time
	if c := meta.FindStatusCondition(o.LRP.Status.Conditions, korifiv1alpha1.ReadyCondition); c != nil && c.Status != metav1.ConditionTrue && c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	return since
}

// isTransient reports whether the LRP is still changing to its desired state. It returns false for an LRP that has a
// conflict, or is no longer ready although its spec has not changed, so that this status is written immediately.
func isTransient(obj *eiriniv1.LRP, before *eiriniv1.LRPStatus, p lrp.Plan) bool {
	lost := before.ObservedGeneration == obj.Generation && meta.IsStatusConditionTrue(before.Conditions, korifiv1alpha1.ReadyCondition)
	return p.Conflict == "" && !lost && !meta.IsStatusConditionTrue(obj.Status.Conditions, korifiv1alpha1.ReadyCondition)
}
