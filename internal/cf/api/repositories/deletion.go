// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"slices"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// IsAppGone reports whether an app that is being deleted no longer exists, including its Pods. It returns a not-found
// error if the app exists and is not being deleted, or if the caller may not see it.
func (s *Store) IsAppGone(ctx context.Context, caller *authorization.Caller, guid string) (bool, error) {
	l := appLookup()
	l.resourceType = jobResourceType
	return s.isGone(ctx, caller, guid, l)
}

// IsRouteGone reports whether a route that is being deleted no longer exists. It returns the same errors as IsAppGone.
func (s *Store) IsRouteGone(ctx context.Context, caller *authorization.Caller, guid string) (bool, error) {
	l := routeLookup()
	l.resourceType = jobResourceType
	return s.isGone(ctx, caller, guid, l)
}

// IsSpaceGone reports whether a space that is being deleted no longer exists, including its namespace.
func (s *Store) IsSpaceGone(ctx context.Context, caller *authorization.Caller, guid string) (bool, error) {
	return s.isGone(ctx, caller, guid, cacheLookup{list: &korifiv1alpha1.CFSpaceList{}, noun: "space"})
}

// IsOrgGone reports whether an org that is being deleted no longer exists, including its namespace.
func (s *Store) IsOrgGone(ctx context.Context, caller *authorization.Caller, guid string) (bool, error) {
	return s.isGone(ctx, caller, guid, cacheLookup{list: &korifiv1alpha1.CFOrgList{}, noun: "org"})
}

func (s *Store) isGone(ctx context.Context, caller *authorization.Caller, guid string, l cacheLookup) (bool, error) {
	found, err := list[client.Object](ctx, s, "find the "+l.noun, l.list, client.MatchingFields{byGUID: guid})
	if err != nil || len(found) == 0 {
		return err == nil, err
	}
	cached := slices.MinFunc(found, revision.CompareByAge)
	// The cache is read only once. If it were read twice, an object deleted between the two reads would look like an
	// object that the caller may not see.
	if l.resource != "" {
		if cached, err = chooseVisible(ctx, s, caller, found, l); err != nil {
			return false, err
		}
	}
	if !cached.GetDeletionTimestamp().IsZero() {
		return false, nil
	}
	// The cache may not show the deletion yet, so the object is read from the API server as the caller.
	live, ok := cached.DeepCopyObject().(client.Object)
	if !ok {
		return false, apierrors.NewNotFound(jobResourceType)
	}
	err = caller.Client.Get(ctx, client.ObjectKeyFromObject(live), live)
	switch {
	case k8serrors.IsNotFound(err):
		return false, nil // The object is deleted, but this replica's cache still contains it.
	case err != nil:
		return false, apierrors.ForbiddenAsNotFound(err, jobResourceType)
	case live.GetDeletionTimestamp().IsZero():
		return false, apierrors.NewNotFound(jobResourceType)
	default:
		return false, nil
	}
}
