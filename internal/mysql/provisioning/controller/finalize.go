// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// finalizeRetry is when to look again whether the Pods are gone.
const finalizeRetry = 2 * time.Second

// finalize lets a cluster go: first its servers end, then the garbage collector may take what they need. Neither kind of
// stop keeps a cluster from being deleted.
func (c Controller) finalize(ctx context.Context, cluster *mocov1beta2.MySQLCluster) (time.Duration, error) {
	// Live reads: a finalizer that is removed because a cache is behind leaves Pods without their configuration.
	set, err := readStatefulSet(ctx, c.live, cluster)
	if err != nil {
		return 0, err
	}
	if set != nil {
		return finalizeRetry, reconcile.DeleteObserved(ctx, c.client, set)
	}
	pods, err := listPods(ctx, c.live, cluster)
	if err != nil {
		return 0, err
	}
	if slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p != nil }) {
		return finalizeRetry, nil
	}
	return 0, nil
}
