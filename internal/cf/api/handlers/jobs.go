// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"strings"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
)

// Jobs are named after what they do and to what, so that nobody has to keep them and every replica knows them.
const (
	deleteJob      = "app.delete~"
	deleteOrgJob   = "organization.delete~"
	deleteSpaceJob = "space.delete~"
	manifestJob    = "space.apply_manifest~"
)

func stopApp(ctx context.Context, c *Request) (Response, error) {
	return c.act(ctx, func(app *korifiv1alpha1.CFApp) (*korifiv1alpha1.CFApp, error) {
		c.Polls.Stop(c.Caller.Name, app.Name)
		return c.Store.SetAppState(ctx, c.Caller, app, korifiv1alpha1.StoppedState)
	})
}

func startApp(ctx context.Context, c *Request) (Response, error) {
	return c.act(ctx, func(app *korifiv1alpha1.CFApp) (*korifiv1alpha1.CFApp, error) {
		return c.begin(app, func() (*korifiv1alpha1.CFApp, error) {
			return c.Store.SetAppState(ctx, c.Caller, app, korifiv1alpha1.StartedState)
		})
	})
}

func restartApp(ctx context.Context, c *Request) (Response, error) {
	return c.act(ctx, func(app *korifiv1alpha1.CFApp) (*korifiv1alpha1.CFApp, error) {
		return c.begin(app, func() (*korifiv1alpha1.CFApp, error) { return c.Store.RestartApp(ctx, c.Caller, app) })
	})
}

func (c *Request) act(ctx context.Context, do func(*korifiv1alpha1.CFApp) (*korifiv1alpha1.CFApp, error)) (Response, error) {
	found, err := c.app(ctx)
	if err != nil {
		return Response{}, err
	}
	if found, err = do(found); err != nil {
		return Response{}, err
	}
	return ok(c.show(found))
}

// begin is for whatever ends in a started app.
func (c *Request) begin(app *korifiv1alpha1.CFApp, do func() (*korifiv1alpha1.CFApp, error)) (*korifiv1alpha1.CFApp, error) {
	if app.Spec.CurrentDropletRef == nil {
		return nil, apierrors.NewUnprocessableEntity("Assign a droplet before starting this app.")
	}
	started, err := do()
	if err == nil {
		c.Polls.Start(c.Caller.Name, app.Name)
	}
	return started, err
}

// over says whether what a job does to an object is done. A job that cannot be is not found.
type over func(ctx context.Context, caller *authorization.Caller, guid string) (bool, error)

// getJob is held until it is over: a client that is told PROCESSING sleeps for 3 s.
func getJob(ctx context.Context, c *Request) (Response, error) {
	operation, of, _ := strings.Cut(c.guid(), "~")
	done, known := map[string]over{
		deleteJob: c.Store.IsAppGone, deleteOrgJob: c.Store.IsOrgGone, deleteSpaceJob: c.Store.IsSpaceGone,
		manifestJob: func(ctx context.Context, _ *authorization.Caller, space string) (bool, error) {
			return true, c.applied(ctx, space)
		},
	}[operation+"~"]
	if !known || of == "" {
		return Response{}, apierrors.NewNotFound("Job")
	}
	is, err := c.await(ctx, of, done)
	if err != nil {
		return Response{}, err
	}
	return ok(presenter.ForJob(c.Base, c.guid(), operation, is, c.Clock.Now()))
}

// applied: a manifest is applied before its job is told of.
func (c *Request) applied(ctx context.Context, space string) error {
	_, err := c.spaceOf(ctx, space)
	if err != nil && notMissing(err) == nil {
		return apierrors.NewNotFound("Job")
	}
	return err
}

// await looks again whenever the object changes, until the job is over or time is up.
func (c *Request) await(ctx context.Context, guid string, done over) (is bool, err error) {
	ctx, cancel := withDeadline(ctx, maxHold)
	defer cancel()
	err = c.Store.WaitFor(ctx, guid, func() (bool, error) {
		is, err = done(ctx, c.Caller, guid)
		return is, err
	})
	return is, err
}

// notMissing is an error that is none of something that is not there.
func notMissing(err error) error {
	if err == nil || apierrors.FromError(err, "").Code == apierrors.NewNotFound("").Code {
		return nil
	}
	return err
}
