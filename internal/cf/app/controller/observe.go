// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/app"
	"github.com/torpor-dev/torpor/internal/reconcile"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
	stoprecord "github.com/torpor-dev/torpor/internal/stop/record"
)

// observation is the observed state of an app, and the processes that the controller has created since.
type observation struct {
	app.Observed
	created []*korifiv1alpha1.CFProcess
}

// observe reads an app's objects from the cache.
func (c Controller) observe(ctx context.Context, obj *korifiv1alpha1.CFApp) (*observation, error) {
	var processes korifiv1alpha1.CFProcessList
	var lrps eiriniv1.LRPList
	var builds korifiv1alpha1.CFBuildList
	var packages korifiv1alpha1.CFPackageList
	in, of := client.InNamespace(obj.Namespace), client.MatchingFields{byApp: obj.Name}
	for _, list := range []client.ObjectList{&processes, &lrps, &builds, &packages} {
		if err := c.client.List(ctx, list, in, of); err != nil {
			return nil, fmt.Errorf("list the objects of the app: %w", err)
		}
	}
	for i := range processes.Items {
		statusannotation.RestoreStatus(&processes.Items[i])
	}
	seen := &observation{Observed: app.Observed{
		App: obj, Processes: processes.Items, LRPs: lrps.Items,
		Builds:   slices.DeleteFunc(builds.Items, func(b korifiv1alpha1.CFBuild) bool { return !b.DeletionTimestamp.IsZero() }),
		Packages: slices.DeleteFunc(packages.Items, func(p korifiv1alpha1.CFPackage) bool { return !p.DeletionTimestamp.IsZero() }),
	}}
	seen.Moment = c.Metrics.saved.Observe(obj.UID, obj.Status.Savings, c.Clock.Now())
	seen.Stops = app.NextStops(obj, c.Clock.Now())
	seen.Scheduled = stoprecord.FindScheduled(obj.Status.ScheduledStops, obj.Annotations, c.Clock.Now())
	if ref := obj.Spec.CurrentDropletRef; ref != nil && obj.DeletionTimestamp.IsZero() {
		var build korifiv1alpha1.CFBuild
		if err := c.client.Get(ctx, client.ObjectKey{Namespace: obj.Namespace, Name: ref.Name}, &build); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read the droplet: %w", err)
		}
		seen.Droplet = build.Status.Droplet
	}
	return seen, nil
}

// countRemaining counts the LRPs and Pods of an app. It bypasses the cache, because a stale count could remove the
// app's finalizer too early.
func (c Controller) countRemaining(ctx context.Context, obj *korifiv1alpha1.CFApp) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	var lrps eiriniv1.LRPList
	var pods corev1.PodList
	in, of := client.InNamespace(obj.Namespace), client.MatchingLabels{korifiv1alpha1.AppGUIDLabel: obj.Name}
	if err := errors.Join(c.live.List(ctx, &lrps, in, of), c.live.List(ctx, &pods, in, of)); err != nil {
		return 0, fmt.Errorf("list the remaining objects of the app: %w", err)
	}
	return len(lrps.Items) + len(pods.Items), nil
}
