// SPDX-License-Identifier: Apache-2.0

// Package podstatus reads the state of apps from their Pods.
package podstatus

import (
	"cmp"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// crashLoop is the waiting reason of a container that the kubelet will restart after a delay.
const crashLoop = "CrashLoopBackOff"

// isStartFailure reports whether a waiting container with this reason is unlikely to start soon.
func isStartFailure(reason string) bool {
	switch reason {
	case "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return true
	default:
		return false
	}
}

// InstanceIndex returns the index of the app instance in a Pod. It returns "" if no StatefulSet has created the Pod.
func InstanceIndex(pod *corev1.Pod) string { return pod.Labels[appsv1.PodIndexLabel] }

// IsTerminating reports whether the deletion of a Pod was requested. A terminating Pod no longer counts as an instance,
// regardless of its status.
func IsTerminating(pod *corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() }

// LeftServicesAt returns the time at which a Pod left its Services before its termination. It returns the zero time if
// the Pod has not left them.
func LeftServicesAt(pod *corev1.Pod) time.Time {
	if _, left := pod.Labels[torporv1alpha1.LeftServicesLabel]; !left {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, pod.Annotations[torporv1alpha1.LeftServicesAtAnnotation])
	if err != nil {
		return pod.CreationTimestamp.Time // Another client has removed the time.
	}
	return at
}

// IsEnding reports whether a Pod is terminating, or has left its Services and will soon be terminated.
func IsEnding(pod *corev1.Pod) bool { return IsTerminating(pod) || !LeftServicesAt(pod).IsZero() }

// InstanceStatus returns the status of the instance in a Pod.
func InstanceStatus(pod *corev1.Pod) korifiv1alpha1.InstanceStatus {
	scheduled, ready := findCondition(pod, corev1.PodScheduled), findCondition(pod, corev1.PodReady)
	crash := describeCrash(pod)
	switch {
	case crash != "":
		return korifiv1alpha1.InstanceStatus{State: korifiv1alpha1.CrashedInstance, Timestamp: lastTransition(pod, ready), Details: crash}
	case ready != nil && ready.Status == corev1.ConditionTrue:
		return korifiv1alpha1.InstanceStatus{State: korifiv1alpha1.RunningInstance, Timestamp: lastTransition(pod, ready)}
	case scheduled == nil || scheduled.Status != corev1.ConditionTrue:
		down := korifiv1alpha1.InstanceStatus{State: korifiv1alpha1.DownInstance, Timestamp: lastTransition(pod, scheduled)}
		if scheduled != nil {
			down.Details = scheduled.Message
		}
		return down
	default:
		return korifiv1alpha1.InstanceStatus{State: korifiv1alpha1.StartingInstance, Timestamp: lastTransition(pod, ready), Details: describeWaiting(pod)}
	}
}

// deletionRequestedAt returns the time at which the deletion of a Pod was requested. The deletion timestamp is the
// deadline by which the Pod must terminate.
func deletionRequestedAt(pod *corev1.Pod) time.Time {
	var grace int64
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		grace = *g
	}
	return pod.DeletionTimestamp.Add(-time.Duration(grace) * time.Second)
}

// describeCrash describes how the instance in a Pod has terminated, or why its container cannot be started. It returns
// "" if neither is the case.
func describeCrash(pod *corev1.Pod) string {
	if pod.Status.Phase == corev1.PodFailed {
		return cmp.Or(pod.Status.Message, pod.Status.Reason, "the Pod has failed")
	}
	for _, c := range pod.Status.ContainerStatuses {
		w := c.State.Waiting
		switch {
		case w != nil && w.Reason == crashLoop:
			return describeExit(pod, c.LastTerminationState.Terminated)
		case w != nil && isStartFailure(w.Reason):
			return describeReason(w)
		case c.State.Terminated != nil: // App processes should not exit, so status 0 is a crash, too.
			return describeExit(pod, c.State.Terminated)
		}
	}
	return ""
}

func describeExit(pod *corev1.Pod, t *corev1.ContainerStateTerminated) string {
	if t == nil {
		return crashLoop
	}
	return DescribeExit(t) + describeFailedCheck(pod, t)
}

// DescribeExit describes how a container has terminated.
func DescribeExit(t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("exited with status %d", t.ExitCode)
	switch {
	case t.Message != "":
		text += ": " + t.Message
	case t.Reason != "":
		text += " (" + t.Reason + ")"
	}
	return text
}

// describeFailedCheck returns the health check that has probably failed, if an instance was killed at the end of its
// start timeout. The kubelet does not report this in the Pod's status.
func describeFailedCheck(pod *corev1.Pod, t *corev1.ContainerStateTerminated) string {
	var startup *corev1.Probe
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == eiriniv1.ApplicationContainer {
			startup = c.StartupProbe
		}
	}
	if startup == nil {
		return ""
	}
	limit := time.Duration(startup.PeriodSeconds*(startup.FailureThreshold-1)) * time.Second
	var grace time.Duration
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = time.Duration(*g) * time.Second
	}
	// A check may be a period early or late, and timestamps have whole seconds.
	slack := time.Duration(startup.PeriodSeconds)*time.Second + time.Second
	if lived := t.FinishedAt.Sub(t.StartedAt.Time); lived < limit-slack || lived > limit+grace+slack {
		return ""
	}
	check := "port"
	if startup.HTTPGet != nil {
		check = "http"
	}
	return fmt.Sprintf("; the instance ended at about the deadline of its %s health check, %s after its start",
		check, limit)
}

// describeWaiting returns the reason why the containers do not run, such as ErrImagePull, or the reason for their last
// restart.
func describeWaiting(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		switch w, last := c.State.Waiting, c.LastTerminationState.Terminated; {
		case last != nil:
			return "started again: " + describeExit(pod, last)
		case w != nil:
			return describeReason(w)
		}
	}
	return ""
}

// DescribePullFailure returns the reason why an image is not pulled. It returns "" if the Pod does not wait for an
// image.
func DescribePullFailure(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && (w.Reason == "ErrImagePull" || w.Reason == "ImagePullBackOff") {
			return describeReason(w)
		}
	}
	return ""
}

func describeReason(w *corev1.ContainerStateWaiting) string {
	if w.Message == "" {
		return w.Reason
	}
	return w.Reason + ": " + w.Message
}

func findCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

func lastTransition(pod *corev1.Pod, c *corev1.PodCondition) *metav1.Time {
	if c == nil || c.LastTransitionTime.IsZero() {
		return new(pod.CreationTimestamp)
	}
	return new(c.LastTransitionTime)
}
