// SPDX-License-Identifier: Apache-2.0

package lrp

import (
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
)

// decideScaleDown removes the instances whose index is at least wanted. Gateways need some time to notice that an
// instance is removed. If other instances serve in their place, the removed instances therefore first leave their
// Services and continue to serve for the stop delay. See docs/adr/0053-instances-leave-services-before-they-end.md.
func decideScaleDown(o Observed, wanted int32, why string) Plan {
	if !o.mustServeOn(wanted) {
		return Plan{Do: ScaleStatefulSet, Replicas: wanted, Why: why}
	}
	var inServices []*corev1.Pod
	servesReady, replicas, wait := false, wanted, time.Duration(math.MaxInt64)
	for _, pod := range o.Pods {
		index, known := podIndex(pod)
		if !known || index < wanted || podstatus.IsTerminating(pod) {
			continue
		}
		left := podstatus.LeftServicesAt(pod)
		if left.IsZero() {
			inServices = append(inServices, pod)
			servesReady = servesReady || podstatus.InstanceStatus(pod).State == korifiv1alpha1.RunningInstance
		} else if remaining := left.Add(o.StopDelay).Sub(o.Now); remaining > 0 {
			// A Pod's time may lie in the future if the clock that set it is ahead. This must not extend the wait.
			replicas, wait = max(replicas, index+1), min(wait, remaining, o.StopDelay)
		}
	}
	switch {
	case servesReady:
		return Plan{Do: LeaveServices, Pods: inServices, Why: "take instances out of their Services"}
	case replicas < desiredReplicas(o.StatefulSet):
		return Plan{Do: ScaleStatefulSet, Replicas: replicas, Why: why}
	default:
		return Plan{After: wait, Why: "removed instances serve until gateways have removed them"}
	}
}

// mustServeOn reports whether removed instances continue to serve for the stop delay. After a stop or a restart, no
// other instances serve in their place, so they are terminated immediately.
func (o Observed) mustServeOn(wanted int32) bool {
	return o.StopDelay > 0 && o.LRP.Spec.ProcessType != "" && (wanted > 0 || o.OthersServe)
}

// returningPods returns the Pods that have left their Services because of a scale down, and are desired again.
func (o Observed) returningPods() []*corev1.Pod {
	var returning []*corev1.Pod
	for _, pod := range o.Pods {
		index, known := podIndex(pod)
		if known && index < wantedInstances(o.LRP) && !podstatus.IsTerminating(pod) && !podstatus.LeftServicesAt(pod).IsZero() {
			returning = append(returning, pod)
		}
	}
	return returning
}

func podIndex(pod *corev1.Pod) (int32, bool) {
	index, err := strconv.ParseInt(podstatus.InstanceIndex(pod), 10, 32)
	return int32(index), err == nil
}

// LeaveServicesOf returns a copy of a Pod without the label that Torpor's Services select, with at as the time of the
// change. The StatefulSet still owns the Pod.
func LeaveServicesOf(pod *corev1.Pod, processType string, at time.Time) *corev1.Pod {
	after := pod.DeepCopy()
	delete(after.Labels, korifiv1alpha1.ProcessTypeLabel)
	after.Labels[torporv1alpha1.LeftServicesLabel] = processType
	if after.Annotations == nil {
		after.Annotations = map[string]string{}
	}
	after.Annotations[torporv1alpha1.LeftServicesAtAnnotation] = at.UTC().Format(time.RFC3339Nano)
	return after
}

// ReturnToServicesOf returns a copy of a Pod that Services select again.
func ReturnToServicesOf(pod *corev1.Pod, processType string) *corev1.Pod {
	after := pod.DeepCopy()
	delete(after.Labels, torporv1alpha1.LeftServicesLabel)
	delete(after.Annotations, torporv1alpha1.LeftServicesAtAnnotation)
	after.Labels[korifiv1alpha1.ProcessTypeLabel] = processType
	return after
}
