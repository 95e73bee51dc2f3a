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

const jobResourceType = "Job"

// IsAppGone says that an app which is being deleted is gone, and its Pods with it. There is no such job while the app is not
// being deleted, nor for who may not see it.
func (s *Store) IsAppGone(ctx context.Context, caller *authorization.Caller, guid string) (bool, error) {
	var found korifiv1alpha1.CFAppList
	if err := s.cache.List(ctx, &found, client.MatchingFields{byGUID: guid}); err != nil {
		return false, fmt.Errorf("find the app: %w", err)
	}
	if len(found.Items) == 0 {
		return true, nil
	}
	app := &found.Items[0]
	if err := s.checkVisible(ctx, caller, app.Namespace, Apps, jobResourceType); err != nil {
		return false, err
	}
	return isGone(ctx, caller, app.DeepCopy())
}

// IsSpaceGone says the same of a space, and OrgGone of an org: its namespace is gone, too.
func (s *Store) IsSpaceGone(ctx context.Context, caller *authorization.Caller, guid string) (bool, error) {
	var found korifiv1alpha1.CFSpaceList
	if err := s.cache.List(ctx, &found, client.MatchingFields{byGUID: guid}); err != nil {
		return false, fmt.Errorf("find the space: %w", err)
	}
	if len(found.Items) == 0 {
		return true, nil
	}
	return isGone(ctx, caller, found.Items[0].DeepCopy())
}

// IsOrgGone: see SpaceGone.
func (s *Store) IsOrgGone(ctx context.Context, caller *authorization.Caller, guid string) (bool, error) {
	var found korifiv1alpha1.CFOrgList
	if err := s.cache.List(ctx, &found, client.MatchingFields{byGUID: guid}); err != nil {
		return false, fmt.Errorf("find the org: %w", err)
	}
	if len(found.Items) == 0 {
		return true, nil
	}
	return isGone(ctx, caller, found.Items[0].DeepCopy())
}

// isGone asks the API server, as the caller, when the cache does not show yet that an object is being deleted.
func isGone(ctx context.Context, caller *authorization.Caller, o client.Object) (gone bool, err error) {
	if !o.GetDeletionTimestamp().IsZero() {
		return false, nil
	}
	err = caller.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
	switch {
	case k8serrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, apierrors.ForbiddenAsNotFound(err, jobResourceType)
	case o.GetDeletionTimestamp().IsZero():
		return false, apierrors.NewNotFound(jobResourceType)
	default:
		return false, nil
	}
}
