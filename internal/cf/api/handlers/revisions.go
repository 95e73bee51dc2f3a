// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"slices"
	"strings"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/process"
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
	for _, p := range processes {
		for _, revision := range p.Status.Revisions {
			deployed[revision.Revision] = deployed[revision.Revision] || revision.Desired > 0
		}
	}
	revisions := slices.DeleteFunc(presenter.ForRevisions(r.Base, app), func(revision presenter.AppRevision) bool { return !deployed[revision.Version] })
	return respondList(r, resourceList[presenter.AppRevision]{items: revisions}, unchanged)
}

func getRevision(ctx context.Context, r *Request) (Response, error) {
	app, revision, err := r.findRevision(ctx, r.guid())
	if err != nil {
		return Response{}, err
	}
	return ok(presenter.ForRevision(r.Base, app, revision))
}

// findRevision returns the revision with a GUID. The GUID consists of the app's GUID, a dash and the revision's number.
func (r *Request) findRevision(ctx context.Context, guid string) (*korifiv1alpha1.CFApp, korifiv1alpha1.Restart, error) {
	app, err := r.Store.GetApp(ctx, r.Caller, guid[:max(0, strings.LastIndex(guid, "-"))])
	if ignoreNotFound(err) != nil {
		return nil, korifiv1alpha1.Restart{}, err
	}
	if err == nil {
		for _, revision := range presenter.KnownRevisions(app) {
			if presenter.RevisionGUID(app.Name, revision.Revision) == guid {
				return app, revision, nil
			}
		}
	}
	return nil, korifiv1alpha1.Restart{}, apierrors.NewNotFound("Revision")
}

// getRevisionEnvVars returns the environment variables of a revision.
func getRevisionEnvVars(ctx context.Context, r *Request) (Response, error) {
	app, revision, err := r.findRevision(ctx, r.guid())
	if err != nil {
		return Response{}, err
	}
	settings, err := r.Store.GetRevisionSettings(ctx, r.Caller, app, revision)
	if err != nil {
		return Response{}, err
	}
	variables := map[string]string{}
	for name, value := range process.FindAppEnvironment(settings) {
		variables[name] = string(value)
	}
	return ok(map[string]any{"var": variables, "links": presenter.Links{}})
}

// restoreRevision restores the environment, commands, ports and health checks of a revision.
func (r *Request) restoreRevision(ctx context.Context, app *korifiv1alpha1.CFApp, revision korifiv1alpha1.Restart) error {
	settings, err := r.Store.GetRevisionSettings(ctx, r.Caller, app, revision)
	if err != nil {
		return err
	}
	return r.Store.RestoreSettings(ctx, r.Caller, app, settings)
}
