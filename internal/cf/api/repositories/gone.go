// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"fmt"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

const jobThing = "Job"

// AppGone says that an app which is being deleted is gone, and its Pods with it. There is no such job while the app is not
// being deleted, nor for who may not see it.
func (s *Store) AppGone(ctx context.Context, caller *authorization.Caller, guid string) (bool, error) {
	var found korifiv1alpha1.CFAppList
	if err := s.cache.List(ctx, &found, client.MatchingFields{byGUID: guid}); err != nil {
		return false, fmt.Errorf("find the app: %w", err)
	}
	if len(found.Items) == 0 {
		return true, nil
	}
	app := &found.Items[0]
	if err := s.visible(ctx, caller, app.Namespace, Apps, jobThing); err != nil {
		return false, err
	}
	return goes(ctx, caller, app.DeepCopy())
}

// SpaceGone says the same of a space, and OrgGone of an org: its namespace is gone, too.
func (s *Store) SpaceGone(ctx context.Context, caller *authorization.Caller, guid string) (bool, error) {
	var found korifiv1alpha1.CFSpaceList
	if err := s.cache.List(ctx, &found, client.MatchingFields{byGUID: guid}); err != nil {
		return false, fmt.Errorf("find the space: %w", err)
	}
	if len(found.Items) == 0 {
		return true, nil
	}
	return goes(ctx, caller, found.Items[0].DeepCopy())
}

// OrgGone: see SpaceGone.
func (s *Store) OrgGone(ctx context.Context, caller *authorization.Caller, guid string) (bool, error) {
	var found korifiv1alpha1.CFOrgList
	if err := s.cache.List(ctx, &found, client.MatchingFields{byGUID: guid}); err != nil {
		return false, fmt.Errorf("find the org: %w", err)
	}
	if len(found.Items) == 0 {
		return true, nil
	}
	return goes(ctx, caller, found.Items[0].DeepCopy())
}

// goes asks the API server, as the caller, when the cache does not show yet that an object is being deleted.
func goes(ctx context.Context, caller *authorization.Caller, o client.Object) (gone bool, err error) {
	if !o.GetDeletionTimestamp().IsZero() {
		return false, nil
	}
	err = caller.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
	switch {
	case k8serrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, apierrors.Hidden(err, jobThing)
	case o.GetDeletionTimestamp().IsZero():
		return false, apierrors.NotFound(jobThing)
	default:
		return false, nil
	}
}
