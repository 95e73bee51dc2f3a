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

// callCount counts the controller's requests for one ClusterDeployment. Every pass begins with one Get.
type callCount struct{ passes, writes, conflicts int }

type callCounts struct {
	mu  sync.Mutex
	per map[client.ObjectKey]callCount
}

func newCounts() *callCounts { return &callCounts{per: map[client.ObjectKey]callCount{}} }

func (c *callCounts) add(key client.ObjectKey, more callCount) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.per[key]
	c.per[key] = callCount{passes: now.passes + more.passes, writes: now.writes + more.writes, conflicts: now.conflicts + more.conflicts}
}

func (c *callCounts) of(key client.ObjectKey) callCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.per[key]
}

func (c *callCounts) all() map[client.ObjectKey]callCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.per)
}

// countingClient is the manager's client with request counters.
type countingClient struct {
	client.Client
	counts *callCounts
}

// Get implements client.Client.
func (c countingClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, ok := obj.(*hivev1.ClusterDeployment); ok {
		c.counts.add(key, callCount{passes: 1})
	}
	return c.Client.Get(ctx, key, obj, opts...)
}

// Status implements client.Client.
func (c countingClient) Status() client.SubResourceWriter {
	return countingStatus{SubResourceWriter: c.SubResource("status"), counts: c.counts}
}

type countingStatus struct {
	client.SubResourceWriter
	counts *callCounts
}

// Patch implements client.SubResourceWriter.
func (c countingStatus) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	key := client.ObjectKeyFromObject(obj)
	c.counts.add(key, callCount{writes: 1})
	err := c.SubResourceWriter.Patch(ctx, obj, patch, opts...)
	if k8serrors.IsConflict(err) {
		c.counts.add(key, callCount{conflicts: 1})
	}
	return err
}
