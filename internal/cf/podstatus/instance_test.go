// SPDX-License-Identifier: Apache-2.0

package podstatus

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

func TestOf(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC))
	is := func(kind corev1.PodConditionType, status corev1.ConditionStatus) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: at, Message: "no node fits"}
	}
	waits := func(reason string, last *corev1.ContainerStateTerminated) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "why"}},
			LastTerminationState: corev1.ContainerState{Terminated: last},
		}}
	}
	scheduled := is(corev1.PodScheduled, corev1.ConditionTrue)
	for name, row := range map[string]struct {
		status  corev1.PodStatus
		state   korifiv1alpha1.InstanceState
		details string
	}{
		"Pod without conditions: DOWN":                           {corev1.PodStatus{}, korifiv1alpha1.DownInstance, ""},
		"Pod that fits no node: DOWN":                            {corev1.PodStatus{Conditions: []corev1.PodCondition{is(corev1.PodScheduled, corev1.ConditionFalse)}}, korifiv1alpha1.DownInstance, "no node fits"},
		"scheduled Pod: STARTING":                                {corev1.PodStatus{Conditions: []corev1.PodCondition{scheduled}}, korifiv1alpha1.StartingInstance, ""},
		"Pod after the first failed pull of its image: STARTING": {corev1.PodStatus{Conditions: []corev1.PodCondition{scheduled}, ContainerStatuses: waits("ErrImagePull", nil)}, korifiv1alpha1.StartingInstance, "ErrImagePull: why"},
		"Pod whose image is in pull back-off: CRASHED":           {corev1.PodStatus{Conditions: []corev1.PodCondition{scheduled}, ContainerStatuses: waits("ImagePullBackOff", nil)}, korifiv1alpha1.CrashedInstance, "ImagePullBackOff: why"},
		"Pod whose image would run as root: CRASHED":             {corev1.PodStatus{Conditions: []corev1.PodCondition{scheduled}, ContainerStatuses: waits("CreateContainerConfigError", nil)}, korifiv1alpha1.CrashedInstance, "CreateContainerConfigError: why"},
		"container restarted after an exit: STARTING, with the exit status": {corev1.PodStatus{Conditions: []corev1.PodCondition{scheduled}, ContainerStatuses: []corev1.ContainerStatus{{
			State:                corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 7, Reason: "Error"}},
		}}}, korifiv1alpha1.StartingInstance, "started again: exited with status 7 (Error)"},
		"container that exited with status 0: CRASHED": {corev1.PodStatus{Conditions: []corev1.PodCondition{scheduled}, ContainerStatuses: []corev1.ContainerStatus{{
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}},
		}}}, korifiv1alpha1.CrashedInstance, "exited with status 0 (Completed)"},
		"ready Pod: RUNNING":                 {corev1.PodStatus{Conditions: []corev1.PodCondition{scheduled, is(corev1.PodReady, corev1.ConditionTrue)}}, korifiv1alpha1.RunningInstance, ""},
		"container in a crash loop: CRASHED": {corev1.PodStatus{Conditions: []corev1.PodCondition{scheduled}, ContainerStatuses: waits(crashLoop, nil)}, korifiv1alpha1.CrashedInstance, crashLoop},
		"container in a crash loop with a last exit: CRASHED, with the status of the last exit": {corev1.PodStatus{Conditions: []corev1.PodCondition{scheduled}, ContainerStatuses: waits(crashLoop, &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"})}, korifiv1alpha1.CrashedInstance, "exited with status 137 (OOMKilled)"},
		"evicted Pod: CRASHED": {corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}, korifiv1alpha1.CrashedInstance, "Evicted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := InstanceStatus(&corev1.Pod{Status: row.status})
			if found.State != row.state || found.Details != row.details || found.Timestamp == nil {
				t.Errorf("expected %s %q, found %+v", row.state, row.details, found)
			}
		})
	}
}

func TestUnhealthy(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	pod := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(10)), Containers: []corev1.Container{{
		Name: eiriniv1.ApplicationContainer, StartupProbe: &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 61},
	}}}}
	const hint = "; the instance ended at about the deadline of its port health check, 1m0s after its start"
	for name, row := range map[string]struct {
		lived time.Duration
		want  string
	}{
		"exit before the deadline of the health check: no hint at the health check": {30 * time.Second, ""},
		"exit at the deadline of the health check: hint at the health check":        {time.Minute, hint},
		"exit within the grace period after the deadline: hint at the health check": {70 * time.Second, hint},
		"exit long after the deadline: no hint at the health check":                 {time.Hour, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := describeFailedCheck(pod, &corev1.ContainerStateTerminated{StartedAt: metav1.NewTime(began), FinishedAt: metav1.NewTime(began.Add(row.lived))})
			if found != row.want {
				t.Errorf("expected %q, found %q", row.want, found)
			}
		})
	}
	if found := describeFailedCheck(&corev1.Pod{}, &corev1.ContainerStateTerminated{}); found != "" {
		t.Errorf("without a health check: expected nothing, found %q", found)
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	told := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	pod := func(version string, ready corev1.ConditionStatus, end time.Time) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{korifiv1alpha1.VersionLabel: version}}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: ready}}
		if !end.IsZero() {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(end)), new(int64(10))
		}
		return p
	}
	onNode := func(node string, p *corev1.Pod) *corev1.Pod {
		p.Spec.NodeName = node
		return p
	}
	var found []RevisionPods
	for _, p := range []*corev1.Pod{
		onNode("a", pod("1", corev1.ConditionTrue, told.Add(time.Minute))), onNode("b", pod("1", corev1.ConditionTrue, told.Add(10*time.Second))),
		pod("2", corev1.ConditionTrue, time.Time{}), pod("2", corev1.ConditionFalse, time.Time{}), pod("mine", corev1.ConditionTrue, time.Time{}),
	} {
		found = CountPod(found, p)
	}
	want := []RevisionPods{{Revision: 1, Draining: 2, Since: told, EndsBy: told.Add(10 * time.Second), NodeOfEnd: "b"}, {Revision: 2, Alive: 2, Ready: 1}, {Revision: revision.UnknownRevision, Alive: 1, Ready: 1}}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// If two instances must terminate by the same time, the same node is reported regardless of the order of the cache,
// because messages must be stable.
func TestNodeOfEndingInstancesIsStable(t *testing.T) {
	t.Parallel()
	end := metav1.NewTime(time.Date(2026, 7, 1, 12, 0, 10, 0, time.UTC))
	for _, nodes := range [][]string{{"a", "b"}, {"b", "a"}} {
		var found []RevisionPods
		for _, node := range nodes {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &end, Labels: map[string]string{korifiv1alpha1.VersionLabel: "1"}}}
			pod.Spec.NodeName = node
			found = CountPod(found, pod)
		}
		if found[0].NodeOfEnd != "a" {
			t.Errorf("in the order %q: expected the node a, found %s", nodes, found[0].NodeOfEnd)
		}
	}
}
