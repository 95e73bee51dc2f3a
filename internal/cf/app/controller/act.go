// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/app"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// createProcesses creates processes and returns those that were not there yet.
func (c Controller) createProcesses(ctx context.Context, missing []*korifiv1alpha1.CFProcess) ([]*korifiv1alpha1.CFProcess, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var created []*korifiv1alpha1.CFProcess
	for _, process := range missing {
		err := c.client.Create(ctx, process, client.FieldOwner(Name))
		if k8serrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return created, nil // The app is about to be deleted with its space.
		}
		if client.IgnoreAlreadyExists(err) != nil {
			return created, fmt.Errorf("make the process %s: %w", process.Name, err)
		}
		if err == nil {
			created = append(created, process)
		}
	}
	return created, nil
}

// finalize deletes what belongs to an app that is deleted, and lets go of it when no LRP and no Pod is left.
func (c Controller) finalize(ctx context.Context, seen app.Observed) (reconcile.Outcome, error) {
	if !controllerutil.ContainsFinalizer(seen.App, korifiv1alpha1.AppFinalizer) {
		return reconcile.Outcome{Why: "it is being deleted"}, nil
	}
	called, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var errs []error
	for i := range seen.Processes {
		errs = append(errs, c.deleteObserved(called, &seen.Processes[i]))
	}
	for i := range seen.LRPs {
		errs = append(errs, c.deleteObserved(called, &seen.LRPs[i]))
	}
	if err := errors.Join(errs...); err != nil {
		return reconcile.Outcome{}, fmt.Errorf("delete what belongs to the app: %w", err)
	}
	remaining, err := c.countRemaining(called, seen.App)
	switch {
	case err != nil:
		return reconcile.Outcome{}, err
	case remaining > 0 || len(seen.LRPs) > 0:
		return reconcile.Outcome{After: deletionInterval, Why: "wait for its Pods"}, nil
	default:
		return reconcile.Outcome{Why: "nothing is left of it"}, c.patchFinalizers(ctx, seen.App, controllerutil.RemoveFinalizer)
	}
}

// deleteObserved deletes the object that was seen, and no other of its name.
func (c Controller) deleteObserved(ctx context.Context, o client.Object) error {
	if !o.GetDeletionTimestamp().IsZero() {
		return nil
	}
	err := c.client.Delete(ctx, o, client.Preconditions{UID: new(o.GetUID())}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if k8serrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// patchFinalizers changes the finalizers of an app. A conflict is no error: the next pass looks again.
func (c Controller) patchFinalizers(ctx context.Context, obj *korifiv1alpha1.CFApp, change func(client.Object, string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	after := obj.DeepCopy()
	change(after, korifiv1alpha1.AppFinalizer)
	err := c.client.Patch(ctx, after, client.MergeFromWithOptions(obj, client.MergeFromWithOptimisticLock{}), client.FieldOwner(Name))
	if k8serrors.IsConflict(err) || k8serrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("change the finalizers: %w", err)
	}
	return nil
}
