// SPDX-License-Identifier: Apache-2.0

package route

import (
	"context"
	"strings"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cfapi/fault"
	"github.com/torpor-dev/torpor/internal/cfapi/view"
)

// Jobs are named after what they do and to what, so that nobody has to keep them.
const (
	deleteJob   = "app.delete~"
	manifestJob = "space.apply_manifest~"
)

func stopApp(ctx context.Context, c *Call) (Answer, error) {
	return c.act(ctx, func(app *korifiv1alpha1.CFApp) (*korifiv1alpha1.CFApp, error) {
		c.Patience.End(c.Caller.Name, app.Name)
		return c.Store.SetState(ctx, c.Caller, app, korifiv1alpha1.StoppedState)
	})
}

func startApp(ctx context.Context, c *Call) (Answer, error) {
	return c.act(ctx, func(app *korifiv1alpha1.CFApp) (*korifiv1alpha1.CFApp, error) {
		return c.begin(app, func() (*korifiv1alpha1.CFApp, error) {
			return c.Store.SetState(ctx, c.Caller, app, korifiv1alpha1.StartedState)
		})
	})
}

func restartApp(ctx context.Context, c *Call) (Answer, error) {
	return c.act(ctx, func(app *korifiv1alpha1.CFApp) (*korifiv1alpha1.CFApp, error) {
		return c.begin(app, func() (*korifiv1alpha1.CFApp, error) { return c.Store.Restart(ctx, c.Caller, app) })
	})
}

func (c *Call) act(ctx context.Context, do func(*korifiv1alpha1.CFApp) (*korifiv1alpha1.CFApp, error)) (Answer, error) {
	found, err := c.app(ctx)
	if err != nil {
		return Answer{}, err
	}
	if found, err = do(found); err != nil {
		return Answer{}, err
	}
	return ok(c.show(found))
}

// begin is for whatever ends in a started app.
func (c *Call) begin(app *korifiv1alpha1.CFApp, do func() (*korifiv1alpha1.CFApp, error)) (*korifiv1alpha1.CFApp, error) {
	if app.Spec.CurrentDropletRef == nil {
		return nil, fault.Unprocessable("Assign a droplet before starting this app.")
	}
	started, err := do()
	if err == nil {
		c.Patience.Begin(c.Caller.Name, app.Name)
	}
	return started, err
}

// job is held until it is over: a client that is told PROCESSING sleeps for 3 s.
func job(ctx context.Context, c *Call) (Answer, error) {
	name := c.guid()
	switch {
	case strings.HasPrefix(name, manifestJob):
		return ok(view.JobOf(c.Base, name, strings.TrimSuffix(manifestJob, "~"), true, c.Clock.Now()))
	case strings.HasPrefix(name, deleteJob):
		gone, err := c.gone(ctx, strings.TrimPrefix(name, deleteJob))
		if err != nil {
			return Answer{}, err
		}
		return ok(view.JobOf(c.Base, name, strings.TrimSuffix(deleteJob, "~"), gone, c.Clock.Now()))
	default:
		return Answer{}, fault.NotFound("Job")
	}
}

// gone waits until an app is. One that the caller may not see is gone as well.
func (c *Call) gone(ctx context.Context, app string) (bool, error) {
	ctx, cancel := held(ctx, hold)
	defer cancel()
	gone := false
	err := c.Store.Until(ctx, app, func() (bool, error) {
		found, err := c.Store.App(ctx, c.Caller, app)
		if gone = found == nil && err != nil; gone {
			return true, notMissing(err)
		}
		return err != nil, notMissing(err)
	})
	return gone, err
}

// notMissing is an error that is none of something that is not there.
func notMissing(err error) error {
	if err == nil || fault.Of(err, "").Code == fault.NotFound("").Code {
		return nil
	}
	return err
}
