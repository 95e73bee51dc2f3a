// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	eiriniv1 "github.com/torpor-dev/torpor/api/eirini/v1"
	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/process"
)

// act does what was decided. It says whether what was decided on is behind what the API server knows: then nothing was done.
func (c Controller) act(ctx context.Context, seen *observation, do process.Action) (stale bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	switch do := do.(type) {
	case process.Nothing:
		return false, nil
	case process.CreateLRP:
		stale, err = c.createLRP(ctx, seen, do)
	case process.ScaleLRP:
		stale, err = false, c.scaleLRP(ctx, seen, do)
	case process.DeleteLRPs:
		stale, err = c.deleteLRPs(ctx, seen, do)
	}
	if k8serrors.IsConflict(err) || k8serrors.IsAlreadyExists(err) {
		return true, nil
	}
	if k8serrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return false, nil // The process is about to be deleted with its space.
	}
	return stale, err
}

// createLRP makes an LRP if the API server knows the same app and the same LRPs: two views that are each behind in their own
// way could else run two revisions at once.
func (c Controller) createLRP(ctx context.Context, seen *observation, do process.CreateLRP) (stale bool, err error) {
	var sameApp, sameLRPs bool
	var environment []corev1.EnvVar
	var wrong [3]error
	var reads sync.WaitGroup
	reads.Go(func() { sameApp, wrong[0] = c.isAppUnchanged(ctx, seen.app) })
	reads.Go(func() { sameLRPs, wrong[1] = c.knowsEveryLRP(ctx, seen) })
	reads.Go(func() { environment, wrong[2] = c.buildEnvironment(ctx, seen.app) })
	reads.Wait()
	if err := errors.Join(wrong[:]...); err != nil {
		return false, err
	}
	if !sameApp || !sameLRPs {
		return true, nil
	}
	lrp := process.BuildLRP(process.LRPSource{App: seen.app, Process: seen.process, Droplet: seen.droplet, Environment: environment}, do)
	if err := c.client.Create(ctx, lrp, client.FieldOwner(Name)); err != nil {
		return false, fmt.Errorf("create the LRP: %w", err)
	}
	return false, nil
}

func (c Controller) scaleLRP(ctx context.Context, seen *observation, do process.ScaleLRP) error {
	for i := range seen.lrps {
		if seen.lrps[i].Name != do.Name {
			continue
		}
		before := &seen.lrps[i]
		after := before.DeepCopy()
		after.Spec.Instances = do.Instances
		if err := c.client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(Name)); err != nil {
			return fmt.Errorf("scale the LRP: %w", err)
		}
	}
	return nil
}

// deleteLRPs deletes LRPs if the API server knows the same app: one that was started again, or is at another revision, may
// need what the decision would end.
func (c Controller) deleteLRPs(ctx context.Context, seen *observation, do process.DeleteLRPs) (stale bool, err error) {
	if same, err := c.isAppUnchanged(ctx, seen.app); err != nil || !same {
		return true, err
	}
	var all []error
	for i := range seen.lrps {
		for _, name := range do.Names {
			if l := &seen.lrps[i]; l.Name == name {
				err := c.client.Delete(ctx, l, client.Preconditions{UID: new(l.UID)}, client.PropagationPolicy(metav1.DeletePropagationBackground))
				all = append(all, client.IgnoreNotFound(err))
			}
		}
	}
	if err := errors.Join(all...); err != nil {
		return false, fmt.Errorf("delete LRPs: %w", err)
	}
	return false, nil
}

// isAppUnchanged reports whether the app is past any cache what the decision was made on.
func (c Controller) isAppUnchanged(ctx context.Context, app *korifiv1alpha1.CFApp) (bool, error) {
	var live korifiv1alpha1.CFApp
	err := c.live.Get(ctx, client.ObjectKeyFromObject(app), &live)
	if k8serrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the app: %w", err)
	}
	was, is := process.NewDesiredApp(app, process.RolloutOptions{}), process.NewDesiredApp(&live, process.RolloutOptions{})
	return live.UID == app.UID && live.DeletionTimestamp.IsZero() && is == was, nil
}

// knowsEveryLRP reports whether the LRPs of a process are past any cache what the decision was made on.
func (c Controller) knowsEveryLRP(ctx context.Context, seen *observation) (bool, error) {
	var live eiriniv1.LRPList
	err := c.live.List(ctx, &live, client.InNamespace(seen.process.Namespace),
		client.MatchingLabels{korifiv1alpha1.ProcessGUIDLabel: seen.process.Name})
	if err != nil {
		return false, fmt.Errorf("list the LRPs: %w", err)
	}
	known := map[types.UID]bool{}
	for i := range seen.lrps {
		known[seen.lrps[i].UID] = true
	}
	for i := range live.Items {
		if l := &live.Items[i]; metav1.IsControlledBy(l, seen.process) && !known[l.UID] {
			return false, nil
		}
	}
	return true, nil
}
