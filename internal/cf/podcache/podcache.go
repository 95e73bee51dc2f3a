// SPDX-License-Identifier: Apache-2.0

// Package podcache caches the Pods of apps, with an index by process, and what their Pods belong to.
package podcache

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// ByProcess is the field by which the cache finds the Pods of a process.
const ByProcess = "process"

// New makes a cache of the Pods of apps, and of other kinds that have the labels of processes; it leaves out all other objects. The
// controllers of processes and of LRPs each have one: they run in conditional groups that start and stop on their own, and a cache
// ends with the group that made it.
func New(ctx context.Context, mgr manager.Manager, namespaces []string, others ...client.Object) (cache.Cache, error) {
	ofApps, err := labels.NewRequirement(korifiv1alpha1.ProcessGUIDLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("select the Pods of apps: %w", err)
	}
	pods, err := reconcile.NewTrimmedCache(mgr, namespaces, labels.NewSelector().Add(*ofApps), trim, append(others, &corev1.Pod{})...)
	if err != nil {
		return nil, err
	}
	if err := pods.IndexField(ctx, &corev1.Pod{}, ByProcess, func(o client.Object) []string {
		return []string{o.GetLabels()[korifiv1alpha1.ProcessGUIDLabel]}
	}); err != nil {
		return nil, fmt.Errorf("index Pods: %w", err)
	}
	return pods, nil
}

// trim keeps of a Pod or a StatefulSet what decisions and reports look at. There are tens of thousands, and most of each is its template.
// What is patched is compared with what is cached, so that nothing of a template is written.
func trim(o any) (any, error) {
	if set, ok := o.(*appsv1.StatefulSet); ok {
		set.Spec.Template = corev1.PodTemplateSpec{}
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return cache.TransformStripManagedFields()(o)
	}
	trimmed := &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion, Labels: pod.Labels, CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp, DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, TerminationGracePeriodSeconds: pod.Spec.TerminationGracePeriodSeconds},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, Message: pod.Status.Message, Reason: pod.Status.Reason, Conditions: pod.Status.Conditions},
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		trimmed.Spec.Containers = append(trimmed.Spec.Containers, corev1.Container{Name: c.Name, StartupProbe: c.StartupProbe})
	}
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		trimmed.Status.ContainerStatuses = append(trimmed.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, State: c.State, LastTerminationState: c.LastTerminationState})
	}
	return trimmed, nil
}
