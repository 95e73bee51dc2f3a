// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cfapi/fault"
	"github.com/torpor-dev/torpor/internal/cfapi/payload"
	"github.com/torpor-dev/torpor/internal/cfapi/view"
	"github.com/torpor-dev/torpor/internal/restart"
)

const deploymentThing = "Deployment"

// suffix is how many characters tell the deployments of one app apart.
const suffix = 8

// newDeployment is a GUID that says whose it is, so that one which the app has gone past is still known.
func newDeployment(app string) string { return app + "-" + uuid.NewString()[:suffix] }

func appOfDeployment(guid string) string { return guid[:max(0, len(guid)-suffix-1)] }

func createDeployment(ctx context.Context, c *Call) (Answer, error) {
	var body payload.Deployment
	if err := payload.Decode(c.Request.Body, &body); err != nil {
		return Answer{}, err
	}
	if body.Strategy != "" && body.Strategy != "rolling" {
		return Answer{}, fault.Unprocessable("expected the strategy rolling, found " + body.Strategy + ", which is not built yet; use rolling")
	}
	app, err := c.Store.App(ctx, c.Caller, body.Relationships.App.Data.GUID)
	if err != nil {
		return Answer{}, err
	}
	droplet := body.Droplet.GUID
	if droplet == "" && body.Revision.GUID != "" {
		if droplet, err = dropletOf(app, body.Revision.GUID); err != nil {
			return Answer{}, err
		}
	}
	if droplet == "" && app.Spec.CurrentDropletRef == nil {
		return Answer{}, fault.Unprocessable("Invalid droplet. Please specify a droplet in the request or set a current droplet for the app.")
	}
	guid := newDeployment(app.Name)
	if app, err = c.Store.Deploy(ctx, c.Caller, app, guid, droplet); err != nil {
		return Answer{}, err
	}
	c.Patience.Begin(c.Caller.Name, app.Name)
	all, err := c.Store.ProcessesOf(ctx, app)
	if err != nil {
		return Answer{}, err
	}
	return created(view.DeploymentOf(c.Base, guid, app, all))
}

// dropletOf a revision of an app.
func dropletOf(app *korifiv1alpha1.CFApp, revision string) (string, error) {
	for _, r := range app.Status.Restarts {
		if view.RevisionGUID(app.Name, r.Revision) == revision && r.Droplet != "" {
			return r.Droplet, nil
		}
	}
	return "", fault.Unprocessable("The revision does not exist")
}

// deployment is held until it is over, except for the first look.
func deployment(ctx context.Context, c *Call) (Answer, error) {
	app, err := c.Store.LiveApp(ctx, c.Caller, appOfDeployment(c.guid()))
	if err != nil {
		return Answer{}, notDeployed(err)
	}
	atMost := hold
	if begun, err := time.Parse(time.RFC3339, app.Annotations[torporv1alpha1.RevisedAtAnnotation]); err == nil && c.Clock.Now().Sub(begun) < glance {
		atMost = glance / 2
	}
	held, cancel := held(ctx, atMost)
	defer cancel()
	var shown view.Deployment
	look := func() (bool, error) {
		all, err := c.Store.ProcessesOf(ctx, app)
		if err != nil {
			return false, err
		}
		shown = view.DeploymentOf(c.Base, c.guid(), app, all)
		return shown.Status.Over(), nil
	}
	all, err := c.Store.ProcessesOf(ctx, app)
	if err != nil {
		return Answer{}, err
	}
	if len(all) == 0 {
		_, err = look()
	} else {
		err = c.Store.Until(held, all[0].Name, look)
	}
	if err != nil {
		return Answer{}, err
	}
	return ok(shown)
}

func notDeployed(err error) error {
	if notMissing(err) == nil {
		return fault.NotFound(deploymentThing)
	}
	return err
}

func cancelDeployment(ctx context.Context, c *Call) (Answer, error) {
	app, err := c.Store.LiveApp(ctx, c.Caller, appOfDeployment(c.guid()))
	if err != nil {
		return Answer{}, notDeployed(err)
	}
	all, err := c.Store.ProcessesOf(ctx, app)
	if err != nil {
		return Answer{}, err
	}
	if now := view.DeploymentOf(c.Base, c.guid(), app, all); now.Status.Over() {
		return Answer{}, fault.Unprocessable("Cannot cancel a " + now.Status.Reason + " deployment")
	}
	if _, err := c.Store.Cancel(ctx, c.Caller, app, c.guid(), former(app)); err != nil {
		return Answer{}, err
	}
	return ok(struct{}{})
}

// former is the droplet of the newest revision before the current one; empty if it is not known.
func former(app *korifiv1alpha1.CFApp) string {
	current, _, _ := restart.RevisionOf(app)
	for _, r := range app.Status.Restarts {
		if r.Revision < current && r.Droplet != "" {
			return r.Droplet
		}
	}
	return ""
}

// deployments are those that are the last of their apps; a client asks whether one is going on.
func deployments(ctx context.Context, c *Call) (Answer, error) {
	in, err := c.visibleSpaces(ctx)
	if err != nil {
		return Answer{}, err
	}
	all, err := c.Store.AppsIn(ctx, in)
	if err != nil {
		return Answer{}, err
	}
	q := c.Request.URL.Query()
	ofApps, values := payload.FilterOf(q, "app_guids"), payload.FilterOf(q, "status_values")
	var found []view.Deployment
	for _, a := range all {
		guid := a.Annotations[torporv1alpha1.DeploymentAnnotation]
		if guid == "" || !ofApps.Has(a.Name) {
			continue
		}
		processes, err := c.Store.ProcessesOf(ctx, a)
		if err != nil {
			return Answer{}, err
		}
		if d := view.DeploymentOf(c.Base, guid, a, processes); values.Has(d.Status.Value) {
			found = append(found, d)
		}
	}
	return page(c, found, func(d view.Deployment) view.Deployment { return d })
}

func revisions(ctx context.Context, c *Call) (Answer, error) {
	a, err := c.app(ctx)
	if err != nil {
		return Answer{}, err
	}
	all := view.RevisionsOf(c.Base, a)
	versions := payload.FilterOf(c.Request.URL.Query(), "versions")
	all = slices.DeleteFunc(all, func(r view.AppRevision) bool { return !versions.Has(strings.TrimPrefix(r.GUID, a.Name+"-")) })
	return page(c, all, func(r view.AppRevision) view.AppRevision { return r })
}

// deployed are the revisions that have instances.
func deployed(ctx context.Context, c *Call) (Answer, error) {
	a, err := c.app(ctx)
	if err != nil {
		return Answer{}, err
	}
	processes, err := c.Store.ProcessesOf(ctx, a)
	if err != nil {
		return Answer{}, err
	}
	running := map[int64]bool{}
	for _, p := range processes {
		for _, r := range p.Status.Revisions {
			running[r.Revision] = running[r.Revision] || r.Desired > 0
		}
	}
	all := slices.DeleteFunc(view.RevisionsOf(c.Base, a), func(r view.AppRevision) bool { return !running[r.Version] })
	return page(c, all, func(r view.AppRevision) view.AppRevision { return r })
}

func revision(ctx context.Context, c *Call) (Answer, error) {
	guid := c.guid()
	a, err := c.Store.App(ctx, c.Caller, guid[:max(0, strings.LastIndex(guid, "-"))])
	if err == nil {
		for _, r := range view.RevisionsOf(c.Base, a) {
			if r.GUID == guid {
				return ok(r)
			}
		}
	}
	if notMissing(err) == nil {
		return Answer{}, fault.NotFound("Revision")
	}
	return Answer{}, err
}
