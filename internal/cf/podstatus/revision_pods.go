// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// RevisionPods counts the Pods of one revision of a process.
type RevisionPods struct {
	Revision int64
	// Alive is the number of Pods that are not draining. Of these, Ready are ready, and Crashed have crashed or cannot
	// be started.
	Alive, Ready, Crashed int32
	// Draining is the number of Pods that are terminating or have left their Services. Since is the time at which the
	// first of them left its Services, or at which its deletion was requested.
	Draining int32
	Since    time.Time
	// EndsBy is the earliest termination deadline of these Pods, and NodeOfEnd is the node of the Pod with this
	// deadline. If several Pods have the same deadline, NodeOfEnd is the first node by name, so it does not depend on
	// the order of the cache.
	EndsBy    time.Time
	NodeOfEnd string
	// Trouble is the reason why a Pod cannot be scheduled or started, or has crashed. It is empty if there is no such
	// Pod.
	Trouble string
}

// earliest returns the earlier of two times, or b if a is zero.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// CountPod adds a Pod to the counts of its revision.
func CountPod(counts []RevisionPods, pod *corev1.Pod) []RevisionPods {
	version := revision.ParseVersion(pod.Labels[korifiv1alpha1.VersionLabel])
	i := 0
	for i < len(counts) && counts[i].Revision != version {
		i++
	}
	if i == len(counts) {
		counts = append(counts, RevisionPods{Revision: version})
	}
	p := &counts[i]
	if left := LeftServicesAt(pod); !left.IsZero() && !IsTerminating(pod) {
		p.Draining++
		p.Since = earliest(p.Since, left)
		return counts
	}
	if IsTerminating(pod) {
		p.Draining++
		p.Since = earliest(p.Since, deletionRequestedAt(pod))
		end, node := pod.DeletionTimestamp.Time, pod.Spec.NodeName
		if p.EndsBy.IsZero() || end.Before(p.EndsBy) || end.Equal(p.EndsBy) && node < p.NodeOfEnd {
			p.EndsBy, p.NodeOfEnd = end, node
		}
		return counts
	}
	p.Alive++
	status := InstanceStatus(pod)
	switch status.State {
	case korifiv1alpha1.RunningInstance:
		p.Ready++
	case korifiv1alpha1.CrashedInstance:
		p.Crashed++
	case korifiv1alpha1.DownInstance, korifiv1alpha1.StartingInstance:
	}
	// If several Pods are in trouble, the same one is reported each time, regardless of the order of the cache.
	inTrouble := status.State == korifiv1alpha1.CrashedInstance || status.State == korifiv1alpha1.DownInstance
	if inTrouble && status.Details != "" && (p.Trouble == "" || status.Details < p.Trouble) {
		p.Trouble = status.Details
	}
	return counts
}
