// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"strings"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
)

// A job's GUID is its operation and the GUID of what it works on, so that jobs need not be stored and every replica knows them.
const (
	deleteAppJob   = "app.delete~"
	deleteOrgJob   = "organization.delete~"
	deleteSpaceJob = "space.delete~"
	deleteRoleJob  = "role.delete~"
	manifestJob    = "space.apply_manifest~"
	deleteRouteJob = "route.delete~"
	// A domain is gone when its request is answered, and so are routes without destinations.
	deleteDomainJob         = "domain.delete~"
	deleteUnmappedRoutesJob = "space.delete_unmapped_routes~"
)

// isJobDone reports whether a job's work on an object is done. A job that cannot exist is not found.
type isJobDone func(ctx context.Context, caller *authorization.Caller, guid string) (bool, error)

// isAlwaysDone is for what is done when its request is answered.
func isAlwaysDone(context.Context, *authorization.Caller, string) (bool, error) { return true, nil }

// getJob holds its answer until the job is done: a client that reads PROCESSING sleeps for 3 s.
func getJob(ctx context.Context, r *Request) (Response, error) {
	operation, guid, _ := strings.Cut(r.guid(), "~")
	isDone, known := map[string]isJobDone{
		deleteAppJob: r.Store.IsAppGone, deleteOrgJob: r.Store.IsOrgGone, deleteSpaceJob: r.Store.IsSpaceGone, deleteRouteJob: r.Store.IsRouteGone,
		deleteDomainJob: isAlwaysDone, deleteRoleJob: isAlwaysDone, deleteUnmappedRoutesJob: isAlwaysDone,
		manifestJob: func(ctx context.Context, _ *authorization.Caller, space string) (bool, error) {
			return true, r.requireManifestJob(ctx, space)
		},
	}[operation+"~"]
	if !known || guid == "" {
		return Response{}, apierrors.NewNotFound("Job")
	}
	holdCtx, cancel := context.WithTimeout(ctx, maxHold)
	defer cancel()
	done := false
	err := r.Store.WatchUntil(holdCtx, guid, func() (_ bool, err error) {
		done, err = isDone(holdCtx, r.Caller, guid)
		return done, err
	})
	return respond(presenter.ForJob(r.Base, r.guid(), operation, done, r.Clock.Now()), err)
}

// requireManifestJob returns an error unless the caller sees the space: a manifest is applied before its job is named.
func (r *Request) requireManifestJob(ctx context.Context, space string) error {
	_, err := r.getSpace(ctx, space)
	if err != nil && ignoreNotFound(err) == nil {
		return apierrors.NewNotFound("Job")
	}
	return err
}
