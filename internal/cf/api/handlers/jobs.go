// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"strings"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
)

// A job's GUID consists of the operation and the GUID of its object. Jobs therefore need no storage, and every replica
// can serve them.
const (
	deleteAppJob    = "app.delete~"
	deleteOrgJob    = "org.delete~"
	deleteSpaceJob  = "space.delete~"
	deleteRoleJob   = "role.delete~"
	manifestJob     = "space.apply_manifest~"
	deleteRouteJob  = "route.delete~"
	deleteDomainJob = "domain.delete~"
	// Routes without destinations are deleted before the response is sent.
	deleteUnmappedRoutesJob = "space.delete_unmapped_routes~"
)

// isJobDone reports whether the operation on an object is complete. It returns a not-found error for a job that cannot
// exist.
type isJobDone func(ctx context.Context, caller *authorization.Caller, guid string) (bool, error)

// isAlwaysDone is used for operations that are complete before the response is sent.
func isAlwaysDone(context.Context, *authorization.Caller, string) (bool, error) { return true, nil }

// getJob delays its response by at most maxHold, until the job is complete, because a client that reads PROCESSING
// waits 3 s before its next poll.
func getJob(ctx context.Context, r *Request) (Response, error) {
	operation, guid, _ := strings.Cut(r.guid(), "~")
	isDone, known := map[string]isJobDone{
		deleteAppJob: r.Store.IsAppGone, deleteOrgJob: r.Store.IsOrgGone, deleteSpaceJob: r.Store.IsSpaceGone, deleteRouteJob: r.Store.IsRouteGone,
		deleteDomainJob: r.Store.IsDomainGone, deleteRoleJob: isAlwaysDone, deleteUnmappedRoutesJob: isAlwaysDone,
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

// requireManifestJob returns an error unless the caller can see the space. The job itself is always complete, because a
// manifest is applied before its job is returned.
func (r *Request) requireManifestJob(ctx context.Context, space string) error {
	_, err := r.getSpace(ctx, space)
	if err != nil && ignoreNotFound(err) == nil {
		return apierrors.NewNotFound("Job")
	}
	return err
}
