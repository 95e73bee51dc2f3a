// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"slices"
	"strings"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
)

func listRevisions(_ context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	versionOf := func(revision presenter.AppRevision) string { return strings.TrimPrefix(revision.GUID, app.Name+"-") }
	return respondList(r, resourceList[presenter.AppRevision]{
		items: presenter.ForRevisions(r.Base, app), filters: map[string]func(presenter.AppRevision) string{"versions": versionOf},
	}, unchanged)
}

// listDeployedRevisions lists the revisions that have instances.
func listDeployedRevisions(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	processes, err := r.Store.ListProcessesOfApp(ctx, app)
	if err != nil {
		return Response{}, err
	}
	deployed := map[int64]bool{}
	for _, process := range processes {
		for _, revision := range process.Status.Revisions {
			deployed[revision.Revision] = deployed[revision.Revision] || revision.Desired > 0
		}
	}
	revisions := slices.DeleteFunc(presenter.ForRevisions(r.Base, app), func(revision presenter.AppRevision) bool { return !deployed[revision.Version] })
	return respondList(r, resourceList[presenter.AppRevision]{items: revisions}, unchanged)
}

func getRevision(ctx context.Context, r *Request) (Response, error) {
	guid := r.guid()
	// The GUID of a revision is that of its app, a dash and the number.
	app, err := r.Store.GetApp(ctx, r.Caller, guid[:max(0, strings.LastIndex(guid, "-"))])
	if err == nil {
		for _, revision := range presenter.ForRevisions(r.Base, app) {
			if revision.GUID == guid {
				return ok(revision)
			}
		}
	}
	if ignoreNotFound(err) == nil {
		return Response{}, apierrors.NewNotFound("Revision")
	}
	return Response{}, err
}
