// SPDX-License-Identifier: Apache-2.0

// Package podstatus reads what the Pods of apps do.
package podstatus

import (
	"cmp"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/restart"
)

// crashLoop is how the kubelet says that it waits before it starts a container again.
const crashLoop = "CrashLoopBackOff"

// failing says that a container cannot be started, and that the kubelet has no hope of it soon.
func failing(reason string) bool {
	switch reason {
	case "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return true
	default:
		return false
	}
}

// Index is which instance a Pod is; empty for a Pod that no StatefulSet has made.
func Index(pod *corev1.Pod) string { return pod.Labels[appsv1.PodIndexLabel] }

// Terminating says that a Pod was told to end: it is no instance any more, whatever it says of itself.
func Terminating(pod *corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() }

// Of is what an instance does.
func Of(pod *corev1.Pod) korifiv1alpha1.InstanceStatus {
	scheduled, ready := condition(pod, corev1.PodScheduled), condition(pod, corev1.PodReady)
	crash := crashed(pod)
	switch {
	case crash != "":
		return korifiv1alpha1.InstanceStatus{State: korifiv1alpha1.CrashedInstance, Timestamp: since(pod, ready), Details: crash}
	case ready != nil && ready.Status == corev1.ConditionTrue:
		return korifiv1alpha1.InstanceStatus{State: korifiv1alpha1.RunningInstance, Timestamp: since(pod, ready)}
	case scheduled == nil || scheduled.Status != corev1.ConditionTrue:
		down := korifiv1alpha1.InstanceStatus{State: korifiv1alpha1.DownInstance, Timestamp: since(pod, scheduled)}
		if scheduled != nil {
			down.Details = scheduled.Message
		}
		return down
	default:
		return korifiv1alpha1.InstanceStatus{State: korifiv1alpha1.StartingInstance, Timestamp: since(pod, ready), Details: waiting(pod)}
	}
}

// Count adds a Pod to the counts of its revision.
func Count(all []restart.Pods, pod *corev1.Pod) []restart.Pods {
	revision, ok := restart.ParseRevision(pod.Labels[korifiv1alpha1.VersionLabel])
	if !ok {
		revision = restart.UnknownRevision
	}
	i := 0
	for i < len(all) && all[i].Revision != revision {
		i++
	}
	if i == len(all) {
		all = append(all, restart.Pods{Revision: revision})
	}
	p := &all[i]
	if Terminating(pod) {
		p.Draining++
		if told := toldAt(pod); p.Since.IsZero() || told.Before(p.Since) {
			p.Since = told
		}
		return all
	}
	p.Alive++
	switch Of(pod).State {
	case korifiv1alpha1.RunningInstance:
		p.Ready++
	case korifiv1alpha1.CrashedInstance:
		p.Crashed++
	case korifiv1alpha1.DownInstance, korifiv1alpha1.StartingInstance:
	}
	return all
}

// toldAt is when a Pod was told to end; its timestamp is when it has to have ended.
func toldAt(pod *corev1.Pod) time.Time {
	var grace int64
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		grace = *g
	}
	return pod.DeletionTimestamp.Add(-time.Duration(grace) * time.Second)
}

// crashed says how an instance ended that is not started again soon; empty if it did not.
func crashed(pod *corev1.Pod) string {
	if pod.Status.Phase == corev1.PodFailed {
		return cmp.Or(pod.Status.Message, pod.Status.Reason, "the Pod has failed")
	}
	for _, c := range pod.Status.ContainerStatuses {
		w := c.State.Waiting
		switch {
		case w != nil && w.Reason == crashLoop:
			return ended(pod, c.LastTerminationState.Terminated)
		case w != nil && failing(w.Reason):
			return told(w)
		case c.State.Terminated != nil: // Even one that ended well was to run on.
			return ended(pod, c.State.Terminated)
		}
	}
	return ""
}

func ended(pod *corev1.Pod, t *corev1.ContainerStateTerminated) string {
	if t == nil {
		return crashLoop
	}
	text := fmt.Sprintf("exited with status %d", t.ExitCode)
	switch {
	case t.Message != "":
		text += ": " + t.Message
	case t.Reason != "":
		text += " (" + t.Reason + ")"
	}
	return text + unhealthy(pod, t)
}

// unhealthy says which health check an instance has likely failed that was ended when its time to start was over: the
// kubelet tells that in no other words than its status.
func unhealthy(pod *corev1.Pod, t *corev1.ContainerStateTerminated) string {
	var startup *corev1.Probe
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == restart.Container {
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
	// A check is up to a period early or late, and times are told in whole seconds.
	slack := time.Duration(startup.PeriodSeconds)*time.Second + time.Second
	if lived := t.FinishedAt.Sub(t.StartedAt.Time); lived < limit-slack || lived > limit+grace+slack {
		return ""
	}
	check := "port"
	if startup.HTTPGet != nil {
		check = "http"
	}
	return fmt.Sprintf("; it ended about when its %s health check had to have succeeded, %s after its start", check, limit)
}

// waiting is why the containers do not run yet, such as ErrImagePull, or why they have to start again.
func waiting(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		switch w, last := c.State.Waiting, c.LastTerminationState.Terminated; {
		case last != nil:
			return "started again: " + ended(pod, last)
		case w != nil:
			return told(w)
		}
	}
	return ""
}

func told(w *corev1.ContainerStateWaiting) string {
	if w.Message == "" {
		return w.Reason
	}
	return w.Reason + ": " + w.Message
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

func since(pod *corev1.Pod, c *corev1.PodCondition) *metav1.Time {
	if c == nil || c.LastTransitionTime.IsZero() {
		return new(pod.CreationTimestamp)
	}
	return new(c.LastTransitionTime)
}
