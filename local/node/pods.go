// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// runPods says of every pod bound to this node that it runs, and lets go of those that are deleted.
func runPods(ctx context.Context, client kubernetes.Interface, c Config) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", c.Name).String()
	}))
	informer := factory.Core().V1().Pods().Informer()
	act := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok {
			runPod(ctx, client, c, pod)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: act, UpdateFunc: func(_, obj any) { act(obj) }})
	if err != nil {
		return
	}
	informer.RunWithContext(ctx)
}

// runPod repeats with the next event of the pod when a request is lost.
func runPod(ctx context.Context, client kubernetes.Interface, c Config, pod *corev1.Pod) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	pods := client.CoreV1().Pods(pod.Namespace)
	switch {
	case pod.DeletionTimestamp != nil:
		_ = pods.Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
	case pod.Status.Phase == corev1.PodPending || pod.Status.Phase == "":
		running := pod.DeepCopy()
		running.Status = runningStatus(pod, c.Address)
		_, _ = pods.UpdateStatus(ctx, running, metav1.UpdateOptions{})
	}
}

func runningStatus(pod *corev1.Pod, address string) corev1.PodStatus {
	now := metav1.Now()
	s := corev1.PodStatus{Phase: corev1.PodRunning, HostIP: address, PodIP: address, StartTime: &now}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, container := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: true, Started: new(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return s
}
