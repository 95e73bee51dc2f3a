// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

// createDeployment creates a CFDeployment as the caller, which is the only write; its controller requests the revision. The
// answer is held for a moment until that revision is counted, so that the client's next request is about the new revision.
func createDeployment(ctx context.Context, r *Request, body payloads.DeploymentCreate) (Response, error) {
	strategy := torporv1alpha1.DeploymentStrategy(cmp.Or(body.Strategy, string(torporv1alpha1.RollingDeployment)))
	if strategy != torporv1alpha1.RollingDeployment && strategy != torporv1alpha1.CanaryDeployment {
		return Response{}, apierrors.NewUnprocessableEntity("expected the strategy rolling or canary, found " + body.Strategy + "; use one of them")
	}
	app, err := r.Store.GetApp(ctx, r.Caller, body.Relationships.App.Data.GUID)
	if err != nil {
		return Response{}, err
	}
	spec, err := r.deploymentSpec(ctx, app, strategy, body)
	if err != nil {
		return Response{}, err
	}
	if err := r.scaleWeb(ctx, app, body); err != nil {
		return Response{}, err
	}
	deployment, err := r.Store.CreateDeployment(ctx, r.Caller, app, spec)
	if err != nil {
		return Response{}, err
	}
	r.Polls.StartTracking(r.Caller.Name, app.Name)
	deployment, err = r.waitForDeployment(ctx, deployment, maxFirstHold, func(d *torporv1alpha1.CFDeployment) bool {
		return d.Status.Revision != 0 || d.Status.Value == torporv1alpha1.FinalizedDeployment
	})
	return presentCreated(r, presenter.ForDeployment, deployment, err)
}

// scaleWeb gives the web process the sizes that a push asks for together with the deployment.
func (r *Request) scaleWeb(ctx context.Context, app *korifiv1alpha1.CFApp, body payloads.DeploymentCreate) error {
	sizes := body.Options.ProcessScale
	sizes.Instances = cmp.Or(body.Options.WebInstances, sizes.Instances)
	if err := r.Limits.Check(sizes); err != nil {
		return err
	}
	message := repositories.PatchProcessMessage{Instances: sizes.Instances, MemoryMB: sizes.MemoryMB, DiskMB: sizes.DiskMB}
	if message == (repositories.PatchProcessMessage{}) {
		return nil
	}
	web, err := r.Store.GetProcessByType(ctx, app, korifiv1alpha1.WebProcess)
	if err == nil {
		_, err = r.Store.PatchProcess(ctx, r.Caller, web, message)
	}
	return err
}

// deploymentSpec returns the spec that a body describes. The droplet is pinned to the one of this moment, so that a change of
// the current droplet does not change a deployment under way.
func (r *Request) deploymentSpec(ctx context.Context, app *korifiv1alpha1.CFApp, strategy torporv1alpha1.DeploymentStrategy, body payloads.DeploymentCreate) (torporv1alpha1.CFDeploymentSpec, error) {
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
	droplet, err := r.dropletToDeploy(ctx, app, body)
	if err != nil {
		return spec, err
	}
	spec.DropletRef = &torporv1alpha1.AppReference{Name: droplet}
	return spec, nil
}

// dropletToDeploy returns the droplet of the body, of the revision in the body, or else the app's current one.
func (r *Request) dropletToDeploy(ctx context.Context, app *korifiv1alpha1.CFApp, body payloads.DeploymentCreate) (string, error) {
	guid := body.Droplet.GUID
	if guid == "" && body.Revision.GUID != "" {
		var err error
		if guid, err = r.rollBackSettings(ctx, app, body.Revision.GUID); err != nil {
			return "", err
		}
	}
	if guid == "" && app.Spec.CurrentDropletRef != nil {
		guid = app.Spec.CurrentDropletRef.Name
	}
	build, err := r.findDropletOfApp(ctx, app, guid)
	switch {
	case err != nil:
		return "", err
	case build == nil:
		return "", apierrors.NewUnprocessableEntity("Invalid droplet. Please specify a droplet in the request or set a current droplet for the app.")
	}
	return build.Name, nil
}

// rollBackSettings returns the droplet of a revision, after the app has its settings again.
func (r *Request) rollBackSettings(ctx context.Context, app *korifiv1alpha1.CFApp, guid string) (droplet string, err error) {
	of, revision, err := r.findRevision(ctx, guid)
	if ignoreNotFound(err) != nil {
		return "", err
	}
	if err != nil || of.UID != app.UID {
		return "", apierrors.NewUnprocessableEntity("The revision does not exist")
	}
	build, err := r.findDropletOfApp(ctx, app, revision.Droplet)
	switch {
	case err != nil:
		return "", err
	case build == nil:
		return "", apierrors.NewUnprocessableEntity("Unable to deploy this revision, the droplet for this revision no longer exists.")
	}
	return revision.Droplet, r.restoreRevision(ctx, app, revision)
}

// getDeployment holds its answer until the deployment is final or paused. The first answer after the deployment was created
// is held only shortly, for clients that do not want to wait.
func getDeployment(ctx context.Context, r *Request) (Response, error) {
	deployment, err := r.Store.GetLiveDeployment(ctx, r.Caller, r.guid())
	if err != nil {
		return Response{}, err
	}
	atMost := maxHold
	if r.Clock.Now().Sub(deployment.CreationTimestamp.Time) < maxFirstHold {
		atMost = maxFirstHold / 2
	}
	deployment, err = r.waitForDeployment(ctx, deployment, atMost, func(d *torporv1alpha1.CFDeployment) bool {
		status := presenter.ForDeploymentStatus(d)
		return status.IsFinal() || status.IsPaused()
	})
	return present(r, presenter.ForDeployment, deployment, err)
}

// waitForDeployment waits until isEnough reports true of a deployment, or time is up, and returns the newest that was seen.
func (r *Request) waitForDeployment(ctx context.Context, d *torporv1alpha1.CFDeployment, atMost time.Duration, isEnough func(*torporv1alpha1.CFDeployment) bool) (*torporv1alpha1.CFDeployment, error) {
	// What was just read live may be newer than the cache, so it is looked at before any wait.
	if isEnough(d) {
		return d, nil
	}
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	err := r.Store.WatchUntil(ctx, d.Name, func() (bool, error) {
		newer, err := r.Store.GetDeployment(ctx, r.Caller, d.Name)
		if err != nil {
			return false, err
		}
		d = newer
		return isEnough(d), nil
	})
	return d, err
}

// cancelDeployment takes a deployment back and, once its controller has, what was set for it.
func cancelDeployment(ctx context.Context, r *Request) (Response, error) {
	deployment, err := r.Store.GetLiveDeployment(ctx, r.Caller, r.guid())
	if err != nil {
		return Response{}, err
	}
	if status := presenter.ForDeploymentStatus(deployment); status.IsFinal() {
		return Response{}, apierrors.NewUnprocessableEntity("Cannot cancel a " + status.Reason + " deployment")
	}
	cancelled, err := r.Store.CancelDeployment(ctx, r.Caller, deployment)
	if err != nil {
		return Response{}, err
	}
	isDecided := func(d *torporv1alpha1.CFDeployment) bool { return d.Status.ObservedGeneration >= cancelled.Generation }
	if deployment, err = r.waitForDeployment(ctx, cancelled, maxFirstHold, isDecided); err != nil {
		return Response{}, err
	}
	response, err := ok(struct{}{})
	switch {
	case !isDecided(deployment):
		response.Warnings = []string{"The controllers have not taken the deployment back yet. What was set for it stays: look at the environment, the commands and the health checks before the next restart."}
	case deployment.Status.Reason == torporv1alpha1.CancelingState || deployment.Status.Reason == torporv1alpha1.CanceledState:
		err = r.restoreBefore(ctx, deployment)
	}
	return response, err
}

// restoreBefore gives an app the settings of the revision before that of a deployment.
func (r *Request) restoreBefore(ctx context.Context, deployment *torporv1alpha1.CFDeployment) error {
	app, err := r.Store.GetApp(ctx, r.Caller, deployment.Spec.AppRef.Name)
	if err != nil {
		return err
	}
	for _, revision := range presenter.KnownRevisions(app) {
		if revision.Revision < deployment.Status.Revision {
			return r.restoreRevision(ctx, app, revision)
		}
	}
	return nil
}

// continueDeployment lets a canary pass the step at which it is paused. It names the step, so that a request that is sent
// twice passes one step only.
func continueDeployment(ctx context.Context, r *Request) (Response, error) {
	deployment, err := r.Store.GetLiveDeployment(ctx, r.Caller, r.guid())
	if err != nil {
		return Response{}, err
	}
	if status := presenter.ForDeploymentStatus(deployment); !status.IsPaused() {
		return Response{}, apierrors.NewUnprocessableEntity("Cannot continue a deployment with status: " + status.Value + " and reason: " + status.Reason)
	}
	return respond(struct{}{}, r.Store.ContinueDeployment(ctx, r.Caller, deployment, deployment.Status.CurrentStep))
}

// deploymentsOfQuery returns the deployments of the apps that the query names, or of all spaces that the caller sees.
func (r *Request) deploymentsOfQuery(ctx context.Context) ([]*torporv1alpha1.CFDeployment, error) {
	if !r.query().Has("app_guids") {
		spaces, err := r.visibleSpaces(ctx)
		if err != nil {
			return nil, err
		}
		return r.Store.ListDeployments(ctx, spaces)
	}
	apps, err := r.appsOfQuery(ctx, "app_guids")
	if err != nil {
		return nil, err
	}
	var all []*torporv1alpha1.CFDeployment
	for _, app := range apps {
		found, err := r.Store.ListDeploymentsOfApp(ctx, app)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, repositories.CompareByAge)
	return all, nil
}

// listDeployments lists deployments in the order in which they were created.
func listDeployments(ctx context.Context, r *Request) (Response, error) {
	deployments, err := r.deploymentsOfQuery(ctx)
	if err != nil {
		return Response{}, err
	}
	return respondList(r, resourceList[*torporv1alpha1.CFDeployment]{
		items: deployments,
		filters: map[string]func(*torporv1alpha1.CFDeployment) string{
			"status_values":  func(d *torporv1alpha1.CFDeployment) string { return presenter.ForDeploymentStatus(d).Value },
			"status_reasons": func(d *torporv1alpha1.CFDeployment) string { return presenter.ForDeploymentStatus(d).Reason },
		},
		reversed: r.isReversed(),
	}, func(d *torporv1alpha1.CFDeployment) presenter.DeploymentResponse {
		return presenter.ForDeployment(r.Base, d)
	})
}
