// SPDX-License-Identifier: Apache-2.0

package podcache

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	"github.com/torpor-dev/torpor/internal/cf/lrp"
	"github.com/torpor-dev/torpor/internal/cf/podstatus"
)

// newPod returns a Pod of an app with thirty environment variables, in the form in which the API server stores it.
func newPod(n int) *corev1.Pod {
	l := &eiriniv1.LRP{Spec: eiriniv1.LRPSpec{GUID: fmt.Sprint("process-", n), Version: "7", AppGUID: "app", SpaceGUID: "space", ProcessType: "web", Ports: []int32{8080}, Health: eiriniv1.Healthcheck{Type: "port", Port: 8080}, MemoryMB: 64}}
	for i := range 30 {
		l.Spec.Environment = append(l.Spec.Environment, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d_%d", n, i), ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprint("settings-", n)}, Key: fmt.Sprintf("VARIABLE_%d_%d", n, i),
		}}})
	}
	template := lrp.BuildStatefulSet(l, lrp.PodOptions{PullPolicy: corev1.PullAlways}).Spec.Template
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "space", Name: fmt.Sprint("pod-", n), UID: types.UID(fmt.Sprint("uid-", n)), Labels: template.Labels},
		Spec:       template.Spec,
		Status: corev1.PodStatus{
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.PodScheduled, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: eiriniv1.ApplicationContainer, Image: "example.com/app:1", ContainerID: "containerd://0123456789"}},
		},
	}
}

// A cache with 10,000 Pods needs a fraction of their size. The trimmed Pods have the same instance status.
func TestTrimmedPodsAreSmall(t *testing.T) {
	const pods = 10_000
	whole, trimmed := make([]any, pods), make([]any, pods)
	measure := func(fill func(i int)) uint64 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range pods {
			fill(i)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		return after.HeapAlloc - min(before.HeapAlloc, after.HeapAlloc)
	}
	full := measure(func(i int) { whole[i] = newPod(i) })
	small := measure(func(i int) {
		var err error
		if trimmed[i], err = trim(newPod(i)); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%d Pods: %d MiB, trimmed %d MiB", pods, full>>20, small>>20)
	if small > full/3 {
		t.Errorf("expected at most a third of %d MiB, found %d MiB", full>>20, small>>20)
	}
	first, ok := trimmed[0].(*corev1.Pod)
	if original := newPod(0); !ok || podstatus.InstanceStatus(first).State != podstatus.InstanceStatus(original).State || first.Spec.Containers[0].StartupProbe == nil {
		t.Errorf("found %+v", first)
	}
	runtime.KeepAlive(whole)
}
