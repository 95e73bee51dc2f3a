// SPDX-License-Identifier: Apache-2.0

package lrp

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
)

const testStopDelay = 3 * time.Second

func leaveNow() time.Time { return time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC) }

// instanceOf returns a ready Pod of newLRP(7). The Pod left its Services the given time ago, or did not leave them if
// leftAgo is negative.
func instanceOf(index int, leftAgo time.Duration) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-" + strconv.Itoa(index), Labels: podLabels(newLRP(7))}}
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(index)
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if leftAgo >= 0 {
		return LeaveServicesOf(pod, korifiv1alpha1.WebProcess, leaveNow().Add(-leftAgo))
	}
	return pod
}

func startingInstance(index int) *corev1.Pod {
	pod := instanceOf(index, -1)
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	return pod
}

// runningSet returns the StatefulSet of newLRP(7) with the given number of replicas, which its controller has observed.
func runningSet(replicas int32) *appsv1.StatefulSet {
	set := BuildStatefulSet(newLRP(7), PodOptions{PullPolicy: corev1.PullAlways})
	set.Spec.Replicas, set.Status.Replicas = &replicas, replicas
	return set
}

// An instance continues to serve for the stop delay after it has left its Services, if other instances serve in its
// place. A stop or a restart terminates instances immediately.
func TestReplacedInstancesServeDuringTheStopDelay(t *testing.T) {
	t.Parallel()
	const in = -1
	for name, row := range map[string]struct {
		wanted       int32
		deleted      bool
		othersServe  bool
		without      func(*Observed)
		pods         []*corev1.Pod
		do           Action
		replicas     int32
		changedPods  []string
		waitsAtLeast time.Duration
	}{
		"a stop terminates instances immediately": {
			deleted: true, pods: []*corev1.Pod{instanceOf(0, in), instanceOf(1, in)}, do: ScaleStatefulSet,
		},
		"instances of a replaced revision leave their Services": {
			deleted: true, othersServe: true, pods: []*corev1.Pod{instanceOf(0, in), instanceOf(1, in)}, do: LeaveServices, changedPods: []string{"pod-0", "pod-1"},
		},
		"instances that have just left their Services continue to serve": {
			deleted: true, othersServe: true, pods: []*corev1.Pod{instanceOf(0, time.Second), instanceOf(1, time.Second)}, waitsAtLeast: 2 * time.Second,
		},
		"instances of a replaced revision are terminated after the stop delay": {
			deleted: true, othersServe: true, pods: []*corev1.Pod{instanceOf(0, testStopDelay), instanceOf(1, testStopDelay)}, do: ScaleStatefulSet,
		},
		"a stop terminates instances during their stop delay": {
			deleted: true, pods: []*corev1.Pod{instanceOf(0, time.Second), instanceOf(1, in)}, do: ScaleStatefulSet,
		},
		"instances that are not ready are terminated immediately": {
			deleted: true, othersServe: true, pods: []*corev1.Pod{startingInstance(0), startingInstance(1)}, do: ScaleStatefulSet,
		},
		"a starting instance leaves its Services together with a ready one": {
			deleted: true, othersServe: true, pods: []*corev1.Pod{instanceOf(0, in), startingInstance(1)}, do: LeaveServices, changedPods: []string{"pod-0", "pod-1"},
		},
		"the instance with the highest index leaves its Services first in a scale-down": {
			wanted: 1, pods: []*corev1.Pod{instanceOf(0, in), instanceOf(1, in)}, do: LeaveServices, changedPods: []string{"pod-1"},
		},
		"a scale-down terminates an instance after its stop delay": {
			wanted: 1, pods: []*corev1.Pod{instanceOf(0, in), instanceOf(1, testStopDelay)}, do: ScaleStatefulSet, replicas: 1,
		},
		"a scale to zero terminates all instances immediately": {
			pods: []*corev1.Pod{instanceOf(0, in), instanceOf(1, in)}, do: ScaleStatefulSet,
		},
		"an instance is terminated after its stop delay while another instance still serves": {
			deleted: true, othersServe: true, pods: []*corev1.Pod{instanceOf(0, time.Second), instanceOf(1, testStopDelay)}, do: ScaleStatefulSet, replicas: 1,
		},
		"a leaving time in the future does not extend the stop delay": {
			deleted: true, othersServe: true, pods: []*corev1.Pod{instanceOf(0, 0), LeaveServicesOf(instanceOf(1, in), "web", leaveNow().Add(time.Hour))}, waitsAtLeast: testStopDelay,
		},
		"an instance that is desired again returns to its Services": {
			wanted: 2, pods: []*corev1.Pod{instanceOf(0, in), instanceOf(1, time.Second)}, do: ReturnToServices, changedPods: []string{"pod-1"},
		},
		"instances without a stop delay are terminated immediately": {
			wanted: 1, without: func(o *Observed) { o.StopDelay = 0 }, pods: []*corev1.Pod{instanceOf(0, in), instanceOf(1, in)}, do: ScaleStatefulSet, replicas: 1,
		},
		"instances of an LRP without a process type are terminated immediately": {
			wanted: 1, without: func(o *Observed) { o.LRP.Spec.ProcessType = "" }, pods: []*corev1.Pod{instanceOf(0, in), instanceOf(1, in)}, do: ScaleStatefulSet, replicas: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Observed{LRP: newLRP(7), StatefulSet: runningSet(2), Pods: row.pods, Now: leaveNow(), StopDelay: testStopDelay, OthersServe: row.othersServe}
			o.LRP.Finalizers, o.LRP.Spec.Instances = []string{eiriniv1.LRPFinalizer}, row.wanted
			if row.deleted {
				o.LRP.DeletionTimestamp = new(metav1.NewTime(leaveNow()))
			}
			if row.without != nil {
				row.without(&o)
			}
			p := Decide(o)
			var changed []string
			for _, pod := range p.Pods {
				changed = append(changed, pod.Name)
			}
			if p.Do != row.do || p.Replicas != row.replicas || !slices.Equal(changed, row.changedPods) || p.After != row.waitsAtLeast {
				t.Errorf("expected action %d, %d replicas, Pods %v and %s, found %+v with %v", row.do, row.replicas, row.changedPods, row.waitsAtLeast, p, changed)
			}
		})
	}
}

// A Pod that has left its Services is still selected by its StatefulSet and its disruption budget, and counts as
// draining.
func TestPodsThatLeaveTheirServicesKeepTheirOwners(t *testing.T) {
	t.Parallel()
	pod := instanceOf(0, -1)
	left := LeaveServicesOf(pod, korifiv1alpha1.WebProcess, leaveNow())
	services := labels.Set{korifiv1alpha1.AppGUIDLabel: pod.Labels[korifiv1alpha1.AppGUIDLabel], korifiv1alpha1.ProcessTypeLabel: korifiv1alpha1.WebProcess}.AsSelector()
	owner, err := metav1.LabelSelectorAsSelector(PodSelector(newLRP(7)))
	if err != nil {
		t.Fatal(err)
	}
	returned := ReturnToServicesOf(left, korifiv1alpha1.WebProcess)
	for name, row := range map[string]struct {
		pod    *corev1.Pod
		serves bool
	}{"before": {pod, true}, "left": {left, false}, "returned": {returned, true}} {
		if serves := services.Matches(labels.Set(row.pod.Labels)); serves != row.serves || podstatus.IsEnding(row.pod) == row.serves || !owner.Matches(labels.Set(row.pod.Labels)) {
			t.Errorf("%s: expected %t that Services select it, and its owner always, found the labels %v", name, row.serves, row.pod.Labels)
		}
	}
	if at := podstatus.LeftServicesAt(left); !at.Equal(leaveNow()) {
		t.Errorf("expected that it left at %s, found %s", leaveNow(), at)
	}
	if counts := podstatus.CountPod(podstatus.CountPod(nil, left), returned); counts[0].Draining != 1 || counts[0].Ready != 1 || !counts[0].Since.Equal(leaveNow()) {
		t.Errorf("expected one Pod that drains and one that is ready, found %s", fmt.Sprintf("%+v", counts))
	}
}
