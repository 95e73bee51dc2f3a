// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"sync"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/torpor-dev/torpor/api/hive/v1"
)

// count is what the controller did for one ClusterDeployment. Every pass begins with one Get.
type count struct{ passes, writes, conflicts int }

type counts struct {
	mu  sync.Mutex
	per map[client.ObjectKey]count
}

func newCounts() *counts { return &counts{per: map[client.ObjectKey]count{}} }

func (c *counts) add(key client.ObjectKey, more count) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.per[key]
	c.per[key] = count{passes: now.passes + more.passes, writes: now.writes + more.writes, conflicts: now.conflicts + more.conflicts}
}

func (c *counts) of(key client.ObjectKey) count {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.per[key]
}

func (c *counts) all() map[client.ObjectKey]count {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.per)
}

// counting is the manager's client with a meter in it.
type counting struct {
	client.Client
	counts *counts
}

// Get implements client.Client.
func (c counting) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, ok := obj.(*hivev1.ClusterDeployment); ok {
		c.counts.add(key, count{passes: 1})
	}
	return c.Client.Get(ctx, key, obj, opts...)
}

// Status implements client.Client.
func (c counting) Status() client.SubResourceWriter {
	return countingStatus{SubResourceWriter: c.SubResource("status"), counts: c.counts}
}

type countingStatus struct {
	client.SubResourceWriter
	counts *counts
}

// Patch implements client.SubResourceWriter.
func (c countingStatus) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	key := client.ObjectKeyFromObject(obj)
	c.counts.add(key, count{writes: 1})
	err := c.SubResourceWriter.Patch(ctx, obj, patch, opts...)
	if k8serrors.IsConflict(err) {
		c.counts.add(key, count{conflicts: 1})
	}
	return err
}
