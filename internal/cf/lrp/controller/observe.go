// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/restart"
)

// observe reads what the caches know.
func (c Controller) observe(ctx context.Context, lrp *eiriniv1.LRP) (observation, error) {
	o := observation{lrp: lrp, set: &appsv1.StatefulSet{}, budget: &policyv1.PodDisruptionBudget{}}
	name := client.ObjectKey{Namespace: lrp.Namespace, Name: restart.StatefulSetName(lrp)}
	err := c.client.Get(ctx, name, o.set)
	if k8serrors.IsNotFound(err) {
		o.set = nil
	} else if err != nil {
		return o, fmt.Errorf("read the StatefulSet: %w", err)
	}
	err = c.client.Get(ctx, name, o.budget)
	if k8serrors.IsNotFound(err) {
		o.budget = nil
	} else if err != nil {
		return o, fmt.Errorf("read the disruption budget: %w", err)
	}
	var pods corev1.PodList
	if err := c.pods.List(ctx, &pods, client.InNamespace(lrp.Namespace), client.MatchingFields{podstatus.ByProcess: lrp.Spec.GUID}); err != nil {
		return o, fmt.Errorf("list the Pods: %w", err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Labels[korifiv1alpha1.VersionLabel] == lrp.Spec.Version {
			o.pods = append(o.pods, p)
		}
	}
	return o, nil
}

// left are the Pods of an LRP past any cache.
func (c Controller) left(ctx context.Context, lrp *eiriniv1.LRP) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var pods corev1.PodList
	err := c.live.List(ctx, &pods, client.InNamespace(lrp.Namespace), client.MatchingLabels(restart.Selector(lrp).MatchLabels))
	if err != nil {
		return nil, fmt.Errorf("list the Pods that are left: %w", err)
	}
	return pods.Items, nil
}

// underway: the LRP is on its way to what it should be. That it was there and is not any more is told at once.
func underway(lrp *eiriniv1.LRP, before *eiriniv1.LRPStatus, p plan) bool {
	lost := before.ObservedGeneration == lrp.Generation && meta.IsStatusConditionTrue(before.Conditions, korifiv1alpha1.ReadyCondition)
	return p.trouble == "" && !lost && !meta.IsStatusConditionTrue(lrp.Status.Conditions, korifiv1alpha1.ReadyCondition)
}

// report writes what was seen into the status.
func (c Controller) report(o observation, p plan) {
	status := &o.lrp.Status
	status.Replicas, status.Instances = 0, nil
	for _, pod := range o.pods {
		if podstatus.Terminating(pod) {
			continue
		}
		is := podstatus.Of(pod)
		if is.State == korifiv1alpha1.RunningInstance {
			status.Replicas++
		}
		if status.Instances == nil {
			status.Instances = map[string]eiriniv1.InstanceStatus{}
		}
		if index := podstatus.Index(pod); index != "" {
			status.Instances[index] = eiriniv1.InstanceStatus{State: string(is.State), Since: is.Timestamp, Details: is.Details}
		}
	}
	status.DrainingReplicas = draining(o)
	status.ObservedGeneration = o.lrp.Generation
	reconcile.SetCondition(&status.Conditions, readyCondition(o, p, status.Replicas), o.lrp.Generation, c.Clock)
	reconcile.SetCondition(&status.Conditions, drainingCondition(status.DrainingReplicas), o.lrp.Generation, c.Clock)
}
