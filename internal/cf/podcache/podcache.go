// SPDX-License-Identifier: Apache-2.0

// Package podcache caches the Pods of apps with an index by process, and the StatefulSets and disruption budgets of
// these Pods. The controllers of LRPs and processes start and stop separately, and share one cache.
package podcache

import (
	"context"
	"fmt"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// ByProcess is the cache index of Pods by their process.
const ByProcess = "process"

// Cache contains the Pods of apps, and objects of other kinds that have the label of a process. Several groups of
// controllers, which start and stop separately, share it. Each kind is watched once while at least one group needs it.
type Cache struct {
	mgr        manager.Manager
	namespaces []string
	ofApps     labels.Selector

	mu    sync.Mutex
	kinds map[schema.GroupVersionKind]*sharedKind
}

// sharedKind is the cache of one kind.
type sharedKind struct {
	cache.Cache
	gvk schema.GroupVersionKind
	// users is the number of groups that use the kind. It is guarded by the mutex of the Cache.
	users int
	stop  context.CancelFunc
	ended chan struct{}
}

// New returns a cache without watches. mgr is the manager whose groups share the cache; a group's own manager stops
// together with the group. An empty list of namespaces means all namespaces.
func New(mgr manager.Manager, namespaces []string) (*Cache, error) {
	ofApps, err := labels.NewRequirement(korifiv1alpha1.ProcessGUIDLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("select the Pods of apps: %w", err)
	}
	return &Cache{mgr: mgr, namespaces: namespaces, ofApps: labels.NewSelector().Add(*ofApps), kinds: map[schema.GroupVersionKind]*sharedKind{}}, nil
}

// acquire returns the cache of an object's kind. It starts the watch if no other group uses the kind.
func (c *Cache) acquire(ctx context.Context, kind client.Object) (*sharedKind, error) {
	gvk, err := apiutil.GVKForObject(kind, c.mgr.GetScheme())
	if err != nil {
		return nil, fmt.Errorf("find the kind of %T: %w", kind, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kinds[gvk]
	if k == nil {
		if k, err = c.startKind(ctx, gvk, kind); err != nil {
			return nil, err
		}
		c.kinds[gvk] = k
	}
	k.users++
	return k, nil
}

func (c *Cache) startKind(ctx context.Context, gvk schema.GroupVersionKind, kind client.Object) (*sharedKind, error) {
	made, err := reconcile.BuildTrimmedCache(c.mgr, c.namespaces, c.ofApps, trim, kind)
	if err != nil {
		return nil, err
	}
	// The watch must outlive the group that first acquires the kind.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	if _, isPod := kind.(*corev1.Pod); isPod {
		err = made.IndexField(ctx, &corev1.Pod{}, ByProcess, func(o client.Object) []string {
			return []string{o.GetLabels()[korifiv1alpha1.ProcessGUIDLabel]}
		})
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("index Pods: %w", err)
	}
	k := &sharedKind{Cache: made, gvk: gvk, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(k.ended)
		if err := made.Start(ctx); err != nil {
			c.mgr.GetLogger().Error(err, "the cache of a kind has ended", "kind", gvk.Kind)
		}
	}()
	return k, nil
}

// release stops the watch of a kind if no other group uses it, and waits until it has stopped.
func (c *Cache) release(k *sharedKind) {
	c.mu.Lock()
	k.users--
	isLast := k.users == 0
	if isLast {
		// A cache cannot be started twice, so the next group that acquires the kind gets a new one.
		delete(c.kinds, k.gvk)
	}
	c.mu.Unlock()
	if isLast {
		k.stop()
		<-k.ended
	}
}

// trim removes the fields of Pods and StatefulSets that are never read. There may be tens of thousands of these
// objects, and their templates make up most of their size. Patches are computed against the trimmed object, so a
// template is never written.
func trim(o any) (any, error) {
	if set, ok := o.(*appsv1.StatefulSet); ok {
		set.Spec.Template = corev1.PodTemplateSpec{}
	}
	if object, ok := o.(client.Object); ok {
		reconcile.ShareTexts(object)
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
	if at, left := pod.Annotations[torporv1alpha1.LeftServicesAtAnnotation]; left {
		trimmed.Annotations = map[string]string{torporv1alpha1.LeftServicesAtAnnotation: at}
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
