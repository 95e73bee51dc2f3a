// SPDX-License-Identifier: Apache-2.0

// Package podcache caches the Pods of apps, with an index by process.
package podcache

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
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

// New makes a cache of the Pods of apps and leaves out all other Pods. The controllers of processes and of LRPs each have one:
// they run in conditional groups that start and stop on their own, and a cache ends with the group that made it.
func New(ctx context.Context, mgr manager.Manager, namespaces []string) (cache.Cache, error) {
	ofApps, err := labels.NewRequirement(korifiv1alpha1.ProcessGUIDLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("select the Pods of apps: %w", err)
	}
	pods, err := reconcile.NewLabelledCache(mgr, namespaces, labels.NewSelector().Add(*ofApps), &corev1.Pod{})
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
