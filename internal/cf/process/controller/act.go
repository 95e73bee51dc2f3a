// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/appenvironment"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/reconcile"
)

// act performs the action of a plan. It returns ErrStale if the objects in the API server differ from the observation.
func (c Controller) act(ctx context.Context, seen *observation, plan process.Plan) error {
	ctx, cancel := context.WithTimeout(ctx, reconcile.APITimeout)
	defer cancel()
	var err error
	switch do := plan.Do.(type) {
	case process.Nothing:
	case process.CreateLRP:
		err = c.createLRP(ctx, seen, do)
	case process.ScaleLRP:
		err = c.scaleLRP(ctx, seen, do)
	case process.DeleteLRPs:
		err = c.deleteLRPs(ctx, seen, do)
	}
	if k8serrors.IsAlreadyExists(err) {
		return reconcile.ErrStale
	}
	if k8serrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // The process will be deleted together with its space.
	}
	return err
}

// createLRP creates an LRP if the API server has the observed app, process and LRPs. The caches of these kinds lag
// independently. Without this check, two revisions could start at the same time, or a revision could start with an
// outdated size or command.
func (c Controller) createLRP(ctx context.Context, seen *observation, do process.CreateLRP) error {
	var environment map[string][]byte
	// The objects are read in parallel, because every restart waits for these reads.
	var surroundings process.Surroundings
	var errs [5]error
	var reads sync.WaitGroup
	reads.Go(func() { errs[0] = c.requireSameApp(ctx, seen.app) })
	reads.Go(func() { errs[1] = c.requireNoUnseenLRP(ctx, seen) })
	reads.Go(func() { errs[2] = c.requireSameProcess(ctx, seen.process) })
	reads.Go(func() { environment, errs[3] = appenvironment.Read(ctx, c.client, seen.app) })
	reads.Go(func() { surroundings, errs[4] = c.readSurroundings(ctx, seen.app) })
	reads.Wait()
	if err := joinFailures(errs[:]); err != nil {
		return err
	}
	settings, err := process.BuildSettingsSecret(seen.process, process.SettingsOf(seen.process, environment))
	if err != nil {
		return err
	}
	err = c.client.Create(ctx, settings, client.FieldOwner(Name))
	if client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("store the settings of the revision: %w", err)
	}
	isNew := err == nil
	lrp := process.BuildLRP(process.LRPSource{App: seen.app, Process: seen.process, Droplet: seen.droplet, Settings: settings, Surroundings: surroundings}, do)
	if err := c.client.Create(ctx, lrp, client.FieldOwner(Name)); err != nil {
		return fmt.Errorf("create the LRP: %w", err)
	}
	if isNew {
		return c.pruneSettings(ctx, seen)
	}
	return nil
}

// pruneSettings deletes the process's settings that neither a recorded revision nor an LRP needs. It keeps settings
// that are younger than an hour, because they may belong to a revision that has not been recorded yet.
func (c Controller) pruneSettings(ctx context.Context, seen *observation) error {
	needed := map[string]bool{}
	for _, r := range seen.app.Status.Restarts {
		needed[r.Settings[seen.process.Spec.ProcessType]] = true
	}
	for i := range seen.lrps {
		needed[seen.lrps[i].Annotations[torporv1alpha1.SettingsAnnotation]] = true
	}
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	err := c.live.List(ctx, all, client.InNamespace(seen.process.Namespace), client.HasLabels{torporv1alpha1.SettingsLabel},
		client.MatchingLabels{korifiv1alpha1.ProcessGUIDLabel: seen.process.Name})
	if err != nil {
		return fmt.Errorf("list the settings of earlier revisions: %w", err)
	}
	var errs []error
	for i := range all.Items {
		s := &all.Items[i]
		s.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		if !needed[s.Name] && c.Clock.Now().Sub(s.CreationTimestamp.Time) > time.Hour {
			errs = append(errs, reconcile.DeleteObserved(ctx, c.client, s))
		}
	}
	return errors.Join(errs...)
}

// joinFailures joins the errors other than ErrStale. It returns ErrStale only if no other error exists.
func joinFailures(errs []error) error {
	failures := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return errors.Is(err, reconcile.ErrStale) })
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// scaleLRP changes only the number of instances of an LRP.
func (c Controller) scaleLRP(ctx context.Context, seen *observation, do process.ScaleLRP) error {
	for i := range seen.lrps {
		if seen.lrps[i].Name != do.Name {
			continue
		}
		after := seen.lrps[i].DeepCopy()
		after.Spec.Instances = do.Instances
		if err := reconcile.PatchObserved(ctx, c.client, &seen.lrps[i], after, Name); err != nil {
			return fmt.Errorf("scale the LRP: %w", err)
		}
	}
	return nil
}

// deleteLRPs deletes LRPs if the API server has the observed app. An app that was started again, or that has a new
// revision, may still need them.
func (c Controller) deleteLRPs(ctx context.Context, seen *observation, do process.DeleteLRPs) error {
	if err := c.requireSameApp(ctx, seen.app); err != nil {
		return err
	}
	var errs []error
	for i := range seen.lrps {
		l := &seen.lrps[i]
		if !slices.Contains(do.Names, l.Name) {
			continue
		}
		// The Pods are deleted in the background. The UID protects a new LRP with the same name, which was not part of
		// the decision.
		err := c.client.Delete(ctx, l, client.Preconditions{UID: new(l.UID)}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if k8serrors.IsConflict(err) {
			err = reconcile.ErrStale
		}
		errs = append(errs, client.IgnoreNotFound(err))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete LRPs: %w", err)
	}
	return nil
}

// requireSameApp reads the app from the API server. It returns ErrStale unless the app has the desired state on which
// the decision is based.
func (c Controller) requireSameApp(ctx context.Context, app *korifiv1alpha1.CFApp) error {
	var live korifiv1alpha1.CFApp
	err := c.live.Get(ctx, client.ObjectKeyFromObject(app), &live)
	if k8serrors.IsNotFound(err) {
		return reconcile.ErrStale
	}
	if err != nil {
		return fmt.Errorf("read the app: %w", err)
	}
	// The resource version is not compared, because it also changes without an effect on the decision, for example
	// after a status update.
	wanted := func(a *korifiv1alpha1.CFApp) process.DesiredApp {
		return process.NewDesiredApp(process.ApplyScheduled(a, c.Clock.Now()), process.RolloutOptions{})
	}
	was, is := wanted(app), wanted(&live)
	was.Rollout.Cancelled, is.Rollout.Cancelled = revision.IsCancelled(app), revision.IsCancelled(&live)
	if live.UID != app.UID || !live.DeletionTimestamp.IsZero() || is != was {
		return reconcile.ErrStale
	}
	return nil
}

// requireSameProcess returns ErrStale if the process in the API server is deleted or has another spec than the cached
// one.
func (c Controller) requireSameProcess(ctx context.Context, process *korifiv1alpha1.CFProcess) error {
	var live korifiv1alpha1.CFProcess
	err := c.live.Get(ctx, client.ObjectKeyFromObject(process), &live)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the process: %w", err)
	}
	if err != nil || live.UID != process.UID || live.Generation != process.Generation || !live.DeletionTimestamp.IsZero() {
		return reconcile.ErrStale
	}
	return nil
}

// requireNoUnseenLRP returns ErrStale if the process has an LRP that was not observed.
func (c Controller) requireNoUnseenLRP(ctx context.Context, seen *observation) error {
	var live eiriniv1.LRPList
	err := c.live.List(ctx, &live, client.InNamespace(seen.process.Namespace),
		client.MatchingLabels{korifiv1alpha1.ProcessGUIDLabel: seen.process.Name})
	if err != nil {
		return fmt.Errorf("list the LRPs: %w", err)
	}
	known := map[types.UID]bool{}
	for i := range seen.lrps {
		known[seen.lrps[i].UID] = true
	}
	for i := range live.Items {
		if l := &live.Items[i]; metav1.IsControlledBy(l, seen.process) && !known[l.UID] {
			return reconcile.ErrStale
		}
	}
	return nil
}
