// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/app"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// act creates missing processes, and records them in seen for events. Then it starts an app whose stop has ended, or
// deletes expired builds and packages.
func (c Controller) act(ctx context.Context, seen *observation, plan app.Plan) error {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	if err := c.createProcesses(ctx, seen, plan); err != nil {
		return err
	}
	if plan.EndsStop {
		return c.endStop(ctx, seen.App)
	}
	if len(plan.ExpiredBuilds)+len(plan.ExpiredPackages) == 0 {
		return nil
	}
	// This read bypasses the cache, because a user may have just set an old droplet.
	if err := reconcile.RequireUnchanged(ctx, c.live, seen.App, &korifiv1alpha1.CFApp{}); err != nil {
		return err
	}
	if len(plan.ExpiredPackages) > 0 {
		if err := c.requireSeenDroplets(ctx, seen.Observed); err != nil {
			return err
		}
	}
	var errs []error
	for _, b := range plan.ExpiredBuilds {
		errs = append(errs, reconcile.DeleteObserved(ctx, c.client, b))
	}
	for _, p := range plan.ExpiredPackages {
		errs = append(errs, reconcile.DeleteObserved(ctx, c.client, p))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete builds and packages that no revision needs: %w", err)
	}
	return nil
}

// requireSeenDroplets returns ErrStale if the build of a droplet in use exists but is missing from the cache.
func (c Controller) requireSeenDroplets(ctx context.Context, o app.Observed) error {
	for _, name := range app.ListUnseenDroplets(o) {
		err := c.live.Get(ctx, client.ObjectKey{Namespace: o.App.Namespace, Name: name}, &korifiv1alpha1.CFBuild{})
		if err == nil {
			return reconcile.ErrStale
		}
		if !k8serrors.IsNotFound(err) {
			return fmt.Errorf("read the build of the droplet %s: %w", name, err)
		}
	}
	return nil
}

// endStop starts an app whose stop has reached its end time, by the same change to the spec that a user would make. It
// fails if the app has changed since the observation, because the stop may have been extended.
func (c Controller) endStop(ctx context.Context, obj *korifiv1alpha1.CFApp) error {
	after := obj.DeepCopy()
	after.Spec.DesiredState = korifiv1alpha1.StartedState
	delete(after.Annotations, torporv1alpha1.UntilAnnotation)
	delete(after.Annotations, torporv1alpha1.UntilNotedAnnotation)
	delete(after.Annotations, torporv1alpha1.ReasonAnnotation)
	if err := reconcile.PatchObserved(ctx, c.client, obj, after, Name); err != nil {
		return fmt.Errorf("start the app at the end time of its stop: %w", err)
	}
	return reconcile.ErrStale // The observation still describes a stopped app.
}

func (c Controller) createProcesses(ctx context.Context, seen *observation, plan app.Plan) error {
	for _, process := range plan.Create {
		err := c.client.Create(ctx, process, client.FieldOwner(Name))
		if k8serrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil // The app will be deleted together with its space.
		}
		if client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("create the process %s: %w", process.Name, err)
		}
		if err == nil {
			seen.created = append(seen.created, process)
		}
	}
	return nil
}

// finalize deletes the processes and LRPs of an app that is being deleted. The app's finalizer is removed when no LRPs
// and no Pods are left.
func (c Controller) finalize(ctx context.Context, obj *korifiv1alpha1.CFApp) (lookAgainAfter time.Duration, err error) {
	seen, err := c.observe(ctx, obj)
	if err != nil {
		return 0, err
	}
	var errs []error
	for i := range seen.Processes {
		errs = append(errs, reconcile.DeleteObserved(ctx, c.client, &seen.Processes[i]))
	}
	for i := range seen.LRPs {
		errs = append(errs, reconcile.DeleteObserved(ctx, c.client, &seen.LRPs[i]))
	}
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("delete the objects of the app: %w", err)
	}
	// An LRP keeps its finalizer until its Pods are deleted. If another client has removed an LRP's finalizer, its Pods
	// may still exist.
	remaining, err := c.countRemaining(ctx, obj)
	if err == nil && (remaining > 0 || len(seen.LRPs) > 0) {
		return deletionInterval, nil
	}
	return 0, err
}
