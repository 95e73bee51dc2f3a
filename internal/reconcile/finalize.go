// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// prepareOrFinalize writes the finalizer and the defaults that an object lacks, or finalizes an object that is being
// deleted. It returns true if the pass must not observe the object afterwards.
func (p *Pass[T, S, P]) prepareOrFinalize(ctx context.Context, req ctrl.Request, before, obj T) (bool, ctrl.Result, error) {
	if !obj.GetDeletionTimestamp().IsZero() {
		if p.Finalizer == nil {
			return false, ctrl.Result{}, nil
		}
		result, err := p.finalize(ctx, req, before, obj)
		return true, result, err
	}
	if p.Finalizer == nil || p.Finalizer.Prepare == nil && controllerutil.ContainsFinalizer(obj, p.Finalizer.Name) {
		return false, ctrl.Result{}, nil // In nearly every pass nothing is missing, so nothing is copied.
	}
	prepared, _ := obj.DeepCopyObject().(T)
	if !p.prepare(prepared) {
		return false, ctrl.Result{}, nil
	}
	result, err := p.replace(ctx, req, obj, prepared)
	return true, result, err
}

func (p *Pass[T, S, P]) prepare(obj T) bool {
	if p.Finalizer.Prepare != nil {
		return p.Finalizer.Prepare(obj)
	}
	return controllerutil.AddFinalizer(obj, p.Finalizer.Name)
}

func (p *Pass[T, S, P]) finalize(ctx context.Context, req ctrl.Request, before, obj T) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(obj, p.Finalizer.Name) {
		return ctrl.Result{}, nil
	}
	lookAgainAfter, err := p.Finalizer.Finalize(ctx, obj)
	if errors.Is(err, ErrStale) {
		return p.awaitCache(req, err)
	}
	p.versions.noteFresh(req)
	if err != nil || lookAgainAfter > 0 {
		return p.save(ctx, req, versions[T]{before, obj}, FollowUp{Rule: "finalizing", RequeueAfter: lookAgainAfter}, err)
	}
	released, _ := before.DeepCopyObject().(T)
	controllerutil.RemoveFinalizer(released, p.Finalizer.Name)
	return p.replace(ctx, req, before, released)
}

// replace patches the object itself, not its status. A first conflict is not an error: the next pass reads the newer
// version.
func (p *Pass[T, S, P]) replace(ctx context.Context, req ctrl.Request, before, after T) (ctrl.Result, error) {
	err := PatchObserved(ctx, p.Client, before, after, p.Owner)
	if errors.Is(err, ErrStale) {
		return p.loseRace(req, before, err)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	p.noteWritten(req, versions[T]{before, after})
	return ctrl.Result{RequeueAfter: StaleCacheRetry}, nil
}
