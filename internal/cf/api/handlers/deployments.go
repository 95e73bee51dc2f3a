// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
)

// createDeployment makes a CFDeployment as the caller, which is the only write; its controller asks for the revision.
// The answer is held for a moment until that is counted, so that what the client asks next is about the new revision.
func createDeployment(ctx context.Context, c *Request) (Response, error) {
	var body payloads.DeploymentCreate
	if err := payloads.DecodeJSON(c.HTTP.Body, &body); err != nil {
		return Response{}, err
	}
	strategy := torporv1alpha1.DeploymentStrategy(cmp.Or(body.Strategy, string(torporv1alpha1.RollingDeployment)))
	if strategy != torporv1alpha1.RollingDeployment && strategy != torporv1alpha1.CanaryDeployment {
		return Response{}, apierrors.NewUnprocessableEntity("expected the strategy rolling or canary, found " + body.Strategy + "; use one of them")
	}
	app, err := c.Store.GetApp(ctx, c.Caller, body.Relationships.App.Data.GUID)
	if err != nil {
		return Response{}, err
	}
	spec, err := c.deploymentSpec(ctx, app, strategy, body)
	if err != nil {
		return Response{}, err
	}
	made, err := c.Store.CreateDeployment(ctx, c.Caller, app, spec)
	if err != nil {
		return Response{}, err
	}
	c.Polls.Start(c.Caller.Name, app.Name)
	made, err = c.followed(ctx, made, maxFirstHold, func(d *torporv1alpha1.CFDeployment) bool {
		return d.Status.Revision != 0 || d.Status.Value == torporv1alpha1.FinalizedDeployment
	})
	if err != nil {
		return Response{}, err
	}
	return created(presenter.ForDeployment(c.Base, made))
}

// deploymentSpec is what a body asks for. The droplet is pinned to what it is now.
func (c *Request) deploymentSpec(ctx context.Context, app *korifiv1alpha1.CFApp, strategy torporv1alpha1.DeploymentStrategy, body payloads.DeploymentCreate) (torporv1alpha1.CFDeploymentSpec, error) {
	spec := torporv1alpha1.CFDeploymentSpec{AppRef: torporv1alpha1.AppReference{Name: app.Name}, Strategy: strategy, MaxInFlight: 1}
	if n := body.Options.MaxInFlight; n != nil {
		if spec.MaxInFlight = *n; *n < 1 {
			return spec, apierrors.NewUnprocessableEntity(fmt.Sprintf("Max in flight must be greater than 0; found %d", *n))
		}
	}
	for _, step := range body.Options.Canary.Steps {
		spec.Steps = append(spec.Steps, torporv1alpha1.CanaryStep{InstanceWeight: step.InstanceWeight})
	}
	if len(spec.Steps) > 0 && spec.Strategy != torporv1alpha1.CanaryDeployment {
		return spec, apierrors.NewUnprocessableEntity("Canary options are only for the strategy canary; found the strategy " + string(spec.Strategy))
	}
	droplet, err := c.dropletToDeploy(ctx, app, body)
	if err != nil {
		return spec, err
	}
	spec.DropletRef = &torporv1alpha1.AppReference{Name: droplet}
	return spec, nil
}

// dropletToDeploy is that of the body, of the revision in the body, or else the app's current one.
func (c *Request) dropletToDeploy(ctx context.Context, app *korifiv1alpha1.CFApp, body payloads.DeploymentCreate) (string, error) {
	guid := body.Droplet.GUID
	if guid == "" && body.Revision.GUID != "" {
		all := presenter.ForRevisions(c.Base, app)
		i := slices.IndexFunc(all, func(r presenter.AppRevision) bool { return r.GUID == body.Revision.GUID })
		switch {
		case i < 0:
			return "", apierrors.NewUnprocessableEntity("The revision does not exist")
		case !all[i].Deployable:
			return "", apierrors.NewUnprocessableEntity("Unable to deploy this revision, the droplet for this revision no longer exists.")
		}
		guid = all[i].Droplet.GUID
	}
	if guid == "" && app.Spec.CurrentDropletRef != nil {
		guid = app.Spec.CurrentDropletRef.Name
	}
	b, err := c.dropletFor(ctx, app, guid)
	switch {
	case err != nil:
		return "", err
	case b == nil:
		return "", apierrors.NewUnprocessableEntity("Invalid droplet. Please specify a droplet in the request or set a current droplet for the app.")
	}
	return b.Name, nil
}

// getDeployment is held until it is over or waits for somebody, except for the first look.
func getDeployment(ctx context.Context, c *Request) (Response, error) {
	d, err := c.Store.GetLiveDeployment(ctx, c.Caller, c.guid())
	if err != nil {
		return Response{}, err
	}
	atMost := maxHold
	if c.Clock.Now().Sub(d.CreationTimestamp.Time) < maxFirstHold {
		atMost = maxFirstHold / 2
	}
	d, err = c.followed(ctx, d, atMost, func(d *torporv1alpha1.CFDeployment) bool {
		now := presenter.ForDeployment(c.Base, d).Status
		return now.IsFinal() || now.IsPaused()
	})
	if err != nil {
		return Response{}, err
	}
	return ok(presenter.ForDeployment(c.Base, d))
}

// followed is a deployment once enough is known of it, or when time is up. The newest that was seen counts.
func (c *Request) followed(ctx context.Context, d *torporv1alpha1.CFDeployment, atMost time.Duration, enough func(*torporv1alpha1.CFDeployment) bool) (*torporv1alpha1.CFDeployment, error) {
	if enough(d) {
		return d, nil
	}
	ctx, cancel := withDeadline(ctx, atMost)
	defer cancel()
	err := c.Store.WaitFor(ctx, d.Name, func() (bool, error) {
		newer, err := c.Store.GetDeployment(ctx, c.Caller, d.Name)
		if err != nil {
			return false, err
		}
		d = newer
		return enough(d), nil
	})
	return d, err
}

func cancelDeployment(ctx context.Context, c *Request) (Response, error) {
	d, err := c.Store.GetLiveDeployment(ctx, c.Caller, c.guid())
	if err != nil {
		return Response{}, err
	}
	if now := presenter.ForDeployment(c.Base, d).Status; now.IsFinal() {
		return Response{}, apierrors.NewUnprocessableEntity("Cannot cancel a " + now.Reason + " deployment")
	}
	if err := c.Store.CancelDeployment(ctx, c.Caller, d); err != nil {
		return Response{}, err
	}
	return ok(struct{}{})
}

// continueDeployment lets a canary pass the step at which it waits; asked twice it passes that step once.
func continueDeployment(ctx context.Context, c *Request) (Response, error) {
	d, err := c.Store.GetLiveDeployment(ctx, c.Caller, c.guid())
	if err != nil {
		return Response{}, err
	}
	if now := presenter.ForDeployment(c.Base, d).Status; !now.IsPaused() {
		return Response{}, apierrors.NewUnprocessableEntity("Cannot continue a deployment with status: " + now.Value + " and reason: " + now.Reason)
	}
	if err := c.Store.ContinueDeployment(ctx, c.Caller, d, d.Status.CurrentStep); err != nil {
		return Response{}, err
	}
	return ok(struct{}{})
}

// listDeployments are in the order in which they were made, or the last first.
func listDeployments(ctx context.Context, c *Request) (Response, error) {
	in, err := c.visibleSpaces(ctx)
	if err != nil {
		return Response{}, err
	}
	all, err := c.Store.ListDeployments(ctx, in)
	if err != nil {
		return Response{}, err
	}
	q := c.HTTP.URL.Query()
	ofApps, values, reasons := payloads.ParseFilter(q, "app_guids"), payloads.ParseFilter(q, "status_values"), payloads.ParseFilter(q, "status_reasons")
	var found []presenter.Deployment
	for _, one := range all {
		d := presenter.ForDeployment(c.Base, one)
		if ofApps.Matches(one.Spec.AppRef.Name) && values.Matches(d.Status.Value) && reasons.Matches(d.Status.Reason) {
			found = append(found, d)
		}
	}
	if strings.HasPrefix(q.Get("order_by"), "-") {
		slices.Reverse(found)
	}
	return page(c, found, func(d presenter.Deployment) presenter.Deployment { return d })
}

func listRevisions(ctx context.Context, c *Request) (Response, error) {
	a, err := c.app(ctx)
	if err != nil {
		return Response{}, err
	}
	all := presenter.ForRevisions(c.Base, a)
	versions := payloads.ParseFilter(c.HTTP.URL.Query(), "versions")
	all = slices.DeleteFunc(all, func(r presenter.AppRevision) bool { return !versions.Matches(strings.TrimPrefix(r.GUID, a.Name+"-")) })
	return page(c, all, func(r presenter.AppRevision) presenter.AppRevision { return r })
}

// listDeployedRevisions are the revisions that have instances.
func listDeployedRevisions(ctx context.Context, c *Request) (Response, error) {
	a, err := c.app(ctx)
	if err != nil {
		return Response{}, err
	}
	processes, err := c.Store.ListProcessesOfApp(ctx, a)
	if err != nil {
		return Response{}, err
	}
	running := map[int64]bool{}
	for _, p := range processes {
		for _, r := range p.Status.Revisions {
			running[r.Revision] = running[r.Revision] || r.Desired > 0
		}
	}
	all := slices.DeleteFunc(presenter.ForRevisions(c.Base, a), func(r presenter.AppRevision) bool { return !running[r.Version] })
	return page(c, all, func(r presenter.AppRevision) presenter.AppRevision { return r })
}

func getRevision(ctx context.Context, c *Request) (Response, error) {
	guid := c.guid()
	a, err := c.Store.GetApp(ctx, c.Caller, guid[:max(0, strings.LastIndex(guid, "-"))])
	if err == nil {
		for _, r := range presenter.ForRevisions(c.Base, a) {
			if r.GUID == guid {
				return ok(r)
			}
		}
	}
	if notMissing(err) == nil {
		return Response{}, apierrors.NewNotFound("Revision")
	}
	return Response{}, err
}
