// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	mocov1beta2 "github.com/torpor-dev/torpor/api/moco/v1beta2"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// endRetry is when to look again whether the Pods are gone.
const endRetry = 2 * time.Second

// finalize lets a cluster go: first its servers end, then the garbage collector may take what they need. Nothing that is
// stopped stops that.
func (c Controller) finalize(ctx context.Context, cluster *mocov1beta2.MySQLCluster) (reconcile.Outcome, error) {
	c.applied.forgetCluster(client.ObjectKeyFromObject(cluster))
	if !controllerutil.ContainsFinalizer(cluster, mocov1beta2.Finalizer) {
		return reconcile.Outcome{Why: "deleted"}, nil
	}
	set, err := c.readLiveStatefulSet(ctx, cluster)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	if set != nil && set.GetDeletionTimestamp().IsZero() {
		return reconcile.Outcome{After: endRetry, Why: "the StatefulSet is deleted"}, c.deleteObserved(ctx, set, set.GetUID())
	}
	pods, err := listPods(ctx, c.live, cluster)
	if err != nil {
		return reconcile.Outcome{}, err
	}
	if set != nil || slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p != nil }) {
		return reconcile.Outcome{After: endRetry, Why: "the Pods end"}, nil
	}
	after := cluster.DeepCopy()
	controllerutil.RemoveFinalizer(after, mocov1beta2.Finalizer)
	return reconcile.Outcome{After: endRetry, Why: "the Pods are gone"}, c.patchCluster(ctx, cluster, after)
}

func (c Controller) readLiveStatefulSet(ctx context.Context, cluster *mocov1beta2.MySQLCluster) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	u := newUnstructured(appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	err := c.live.Get(ctx, namespacedName(cluster, cluster.ChildName()), u)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read the StatefulSet: %w", err)
	}
	if u.GetName() == "" {
		return nil, nil
	}
	return u, nil
}
