// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
	"github.com/torpor-dev/torpor/internal/cf/process"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// createDeployment creates a CFDeployment with the caller's rights. The controller of deployments then requests the
// revision. The response is delayed briefly until the revision has its number, so that the client's next request finds
// the new revision.
func createDeployment(ctx context.Context, r *Request, body payloads.DeploymentCreate) (Response, error) {
	strategy := torporv1alpha1.DeploymentStrategy(cmp.Or(body.Strategy, string(torporv1alpha1.RollingDeployment)))
	if strategy != torporv1alpha1.RollingDeployment && strategy != torporv1alpha1.CanaryDeployment {
		return Response{}, apierrors.NewUnprocessableEntity("expected the strategy rolling or canary, found " + body.Strategy + "; use one of them")
	}
	if err := body.Metadata.Validate(); err != nil {
		return Response{}, err
	}
	app, err := r.Store.GetApp(ctx, r.Caller, body.Relationships.App.Data.GUID)
	if err != nil {
		return Response{}, err
	}
	spec, rollback, err := r.deploymentSpec(ctx, app, strategy, body)
	if err != nil {
		return Response{}, err
	}
	sizes, err := r.sizesOfDeployment(body)
	if err != nil {
		return Response{}, err
	}
	deployment, err := r.deployWith(ctx, app, deploymentWish{spec, rollback, sizes, body.Metadata})
	if err != nil {
		return Response{}, err
	}
	r.Polls.StartTracking(r.Caller.Name, app.Name)
	deployment, err = r.waitForDeployment(ctx, deployment, maxDecisionHold, func(d *torporv1alpha1.CFDeployment) bool {
		return d.Status.Revision != 0 || d.Status.Value == torporv1alpha1.FinalizedDeployment
	})
	return presentCreated(r, presenter.ForDeployment, deployment, err)
}

// sizesOfDeployment returns the new sizes of the web process, which a push sets in the same request as the deployment.
func (r *Request) sizesOfDeployment(body payloads.DeploymentCreate) (repositories.PatchProcessMessage, error) {
	sizes := body.Options.ProcessScale
	sizes.Instances = cmp.Or(body.Options.WebInstances, sizes.Instances)
	return repositories.PatchProcessMessage{Instances: sizes.Instances, MemoryMB: sizes.MemoryMB, DiskMB: sizes.DiskMB}, r.Limits.Check(sizes)
}

// deploymentWish is a deployment to create. If rollback is set, the settings of that revision are restored. If sizes
// are set, the web process is resized.
type deploymentWish struct {
	spec     torporv1alpha1.CFDeploymentSpec
	rollback *korifiv1alpha1.Restart
	sizes    repositories.PatchProcessMessage
	metadata *payloads.Metadata
}

// deployWith deploys the app. If requested, it first restores the settings of a revision and resizes the web process,
// because the new revision is created from them. It does so only after a dry run of the deployment, so a deployment
// that would be rejected changes nothing.
func (r *Request) deployWith(ctx context.Context, app *korifiv1alpha1.CFApp, wish deploymentWish) (*torporv1alpha1.CFDeployment, error) {
	message := repositories.CreateDeploymentMessage{App: app, Spec: wish.spec, Metadata: wish.metadata}
	scales := wish.sizes != (repositories.PatchProcessMessage{})
	if wish.rollback != nil || scales {
		if _, err := r.Store.CreateDeployment(ctx, r.Caller, message, client.DryRunAll); err != nil {
			return nil, err
		}
	}
	if wish.rollback != nil {
		if err := r.restoreRevision(ctx, app, *wish.rollback); err != nil {
			return nil, err
		}
	}
	if scales {
		web, err := r.Store.GetProcessByType(ctx, app, korifiv1alpha1.WebProcess)
		if err == nil {
			_, err = r.Store.PatchProcess(ctx, r.Caller, web, wish.sizes)
		}
		if err != nil {
			return nil, err
		}
	}
	return r.Store.CreateDeployment(ctx, r.Caller, message)
}

// deploymentSpec returns the spec that a request body describes, and the revision to roll back to if the body refers to
// one. The spec pins the droplet, so changing the app's current droplet does not affect a deployment in progress.
func (r *Request) deploymentSpec(ctx context.Context, app *korifiv1alpha1.CFApp, strategy torporv1alpha1.DeploymentStrategy, body payloads.DeploymentCreate) (torporv1alpha1.CFDeploymentSpec, *korifiv1alpha1.Restart, error) {
	spec := torporv1alpha1.CFDeploymentSpec{AppRef: torporv1alpha1.AppReference{Name: app.Name}, Strategy: strategy, MaxInFlight: 1}
	if n := body.Options.MaxInFlight; n != nil {
		if spec.MaxInFlight = *n; *n < 1 {
			return spec, nil, apierrors.NewUnprocessableEntity(fmt.Sprintf("Max in flight must be greater than 0; found %d", *n))
		}
	}
	for _, step := range body.Options.Canary.Steps {
		spec.Steps = append(spec.Steps, torporv1alpha1.CanaryStep{InstanceWeight: step.InstanceWeight})
	}
	if len(spec.Steps) > 0 && spec.Strategy != torporv1alpha1.CanaryDeployment {
		return spec, nil, apierrors.NewUnprocessableEntity("Canary options are only for the strategy canary; found the strategy " + string(spec.Strategy))
	}
	droplet, rollback, err := r.dropletToDeploy(ctx, app, body)
	spec.DropletRef = &torporv1alpha1.AppReference{Name: droplet}
	return spec, rollback, err
}

// dropletToDeploy returns the droplet in the body, the droplet of the revision in the body, or else the app's current
// droplet. If the revision determines the droplet, it also returns the revision.
func (r *Request) dropletToDeploy(ctx context.Context, app *korifiv1alpha1.CFApp, body payloads.DeploymentCreate) (droplet string, rollback *korifiv1alpha1.Restart, err error) {
	guid, missing := body.Droplet.GUID, "Invalid droplet. Please specify a droplet in the request or set a current droplet for the app."
	switch {
	case guid != "":
	case body.Revision.GUID != "":
		of, revision, err := r.findRevision(ctx, body.Revision.GUID)
		if ignoreNotFound(err) != nil {
			return "", nil, err
		}
		if err != nil || of.UID != app.UID {
			return "", nil, apierrors.NewUnprocessableEntity("The revision does not exist")
		}
		guid, rollback, missing = revision.Droplet, &revision, "Unable to deploy this revision, the droplet for this revision no longer exists."
	case app.Spec.CurrentDropletRef != nil:
		guid = app.Spec.CurrentDropletRef.Name
	}
	build, err := r.findDropletOfApp(ctx, app, guid)
	switch {
	case err != nil:
		return "", nil, err
	case build == nil:
		return "", nil, apierrors.NewUnprocessableEntity(missing)
	}
	return build.Name, rollback, nil
}

// getDeployment delays its response by at most maxHold, until the deployment is final or paused. The response about a
// new deployment is delayed only briefly, for clients that do not want to wait.
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

// waitForDeployment waits until isEnough returns true for the deployment, or until atMost has passed. It returns the
// newest version that it has read.
func (r *Request) waitForDeployment(ctx context.Context, d *torporv1alpha1.CFDeployment, atMost time.Duration, isEnough func(*torporv1alpha1.CFDeployment) bool) (*torporv1alpha1.CFDeployment, error) {
	// The deployment was read from the API server and may be newer than the cached one, so it is checked before the
	// wait.
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

// cancelDeployment cancels a deployment. After the controller has cancelled it, cancelDeployment restores the earlier
// settings.
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
	if deployment, err = r.waitForDeployment(ctx, cancelled, maxDecisionHold, isDecided); err != nil {
		return Response{}, err
	}
	response, err := ok(struct{}{})
	switch {
	case !isDecided(deployment):
		response.Warnings = []string{"The controllers have not cancelled the deployment yet, so the earlier settings of the app were not restored. Check the environment variables, the commands and the health checks of the app before you restart it."}
	case deployment.Status.Reason == torporv1alpha1.CancelingState || deployment.Status.Reason == torporv1alpha1.CanceledState:
		err = r.restoreBefore(ctx, deployment)
	default:
		err = apierrors.NewUnprocessableEntity(deployment.Status.Message)
	}
	return response, err
}

// restoreBefore restores the settings of the revision that serves after a cancellation. If that revision is no longer
// recorded, restoreBefore uses the newest recorded revision before that one. The revision just before the deployment
// may have been cancelled itself, so subtracting one from the deployment's revision is not enough.
func (r *Request) restoreBefore(ctx context.Context, deployment *torporv1alpha1.CFDeployment) error {
	app, err := r.Store.GetAppInSpace(ctx, r.Caller, deployment.Namespace, deployment.Spec.AppRef.Name)
	if err != nil {
		return err
	}
	web, err := r.Store.GetProcessByType(ctx, app, korifiv1alpha1.WebProcess)
	if ignoreNotFound(err) != nil {
		return err
	}
	before := deployment.Status.Revision - 1
	if web != nil {
		before = min(before, process.ReadRevisionBefore(app, web))
	}
	for _, revision := range presenter.KnownRevisions(app) {
		if revision.Revision <= before {
			return r.restoreRevision(ctx, app, revision)
		}
	}
	return nil
}

// continueDeployment lets a canary proceed past the step at which it is paused. The request contains the step, so a
// repeated request does not skip the next step.
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

// deploymentsOfQuery returns the deployments of the apps in the query. Without apps, it returns the deployments in the
// spaces that the query selects and the caller can see.
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
	slices.SortFunc(all, revision.CompareByAge)
	return all, nil
}

// listDeployments lists deployments in the order of their creation, or in reverse.
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
