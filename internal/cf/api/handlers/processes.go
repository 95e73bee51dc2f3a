// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

func processes(ctx context.Context, c *Call) (Answer, error) {
	in, err := c.visibleSpaces(ctx)
	if err != nil {
		return Answer{}, err
	}
	all, err := c.Store.ProcessesIn(in)
	if err != nil {
		return Answer{}, err
	}
	q := c.Request.URL.Query()
	ofApps, types, guids := payloads.FilterOf(q, "app_guids"), payloads.FilterOf(q, "types"), payloads.FilterOf(q, "guids")
	all = slices.DeleteFunc(all, func(p *korifiv1alpha1.CFProcess) bool {
		return !ofApps.Has(p.Spec.AppRef.Name) || !types.Has(p.Spec.ProcessType) || !guids.Has(p.Name)
	})
	slices.SortFunc(all, repositories.Older)
	if !strings.Contains(q.Get("embed"), "process_instances") {
		return page(c, all, c.process)
	}
	running, err := c.Store.AppsIn(in)
	if err != nil {
		return Answer{}, err
	}
	byGUID := make(map[string]*korifiv1alpha1.CFApp, len(running))
	for _, a := range running {
		byGUID[a.Name] = a
	}
	now := c.Clock.Now()
	return page(c, all, func(p *korifiv1alpha1.CFProcess) presenter.Process {
		if a := byGUID[p.Spec.AppRef.Name]; a != nil {
			return c.process(p).WithInstances(presenter.Instances(a, p), now)
		}
		return c.process(p)
	})
}

func (c *Call) process(p *korifiv1alpha1.CFProcess) presenter.Process {
	return presenter.ProcessOf(c.Base, p)
}

func appProcesses(ctx context.Context, c *Call) (Answer, error) {
	found, err := c.app(ctx)
	if err != nil {
		return Answer{}, err
	}
	all, err := c.Store.ProcessesOf(ctx, found)
	if err != nil {
		return Answer{}, err
	}
	types := payloads.FilterOf(c.Request.URL.Query(), "types")
	all = slices.DeleteFunc(all, func(p *korifiv1alpha1.CFProcess) bool { return !types.Has(p.Spec.ProcessType) })
	return page(c, all, c.process)
}

// found is the process in the path: by its GUID, or by its app and its type.
func (c *Call) found(ctx context.Context) (*korifiv1alpha1.CFProcess, error) {
	kind := c.Request.PathValue("type")
	if kind == "" {
		return c.Store.Process(ctx, c.Caller, c.guid())
	}
	a, err := c.app(ctx)
	if err != nil {
		return nil, err
	}
	return c.Store.ProcessOf(ctx, a, kind)
}

func process(ctx context.Context, c *Call) (Answer, error) {
	p, err := c.found(ctx)
	if err != nil {
		return Answer{}, err
	}
	return ok(c.process(p))
}

func updateProcess(ctx context.Context, c *Call) (Answer, error) {
	var body payloads.Process
	if err := payloads.Decode(c.Request.Body, &body); err != nil {
		return Answer{}, err
	}
	change := repositories.Change{Command: body.Command}
	if h := body.HealthCheck; h != nil {
		change.CheckType, change.Endpoint, change.Timeout, change.Invocation = h.Type, h.Data.Endpoint, h.Data.Timeout, h.Data.InvocationTimeout
	}
	return c.change(ctx, change, http.StatusOK)
}

func scale(ctx context.Context, c *Call) (Answer, error) {
	var body payloads.Scale
	if err := payloads.Decode(c.Request.Body, &body); err != nil {
		return Answer{}, err
	}
	return c.change(ctx, repositories.Change{Instances: body.Instances, MemoryMB: body.MemoryMB, DiskMB: body.DiskMB}, http.StatusAccepted)
}

func (c *Call) change(ctx context.Context, change repositories.Change, status int) (Answer, error) {
	p, err := c.found(ctx)
	if err != nil {
		return Answer{}, err
	}
	if p, err = c.Store.ChangeProcess(ctx, c.Caller, p, change); err != nil {
		return Answer{}, err
	}
	return Answer{Status: status, Body: c.process(p)}, nil
}

func stopInstance(ctx context.Context, c *Call) (Answer, error) {
	p, err := c.found(ctx)
	if err != nil {
		return Answer{}, err
	}
	a, err := c.Store.LiveApp(ctx, c.Caller, p.Spec.AppRef.Name)
	if err != nil {
		return Answer{}, err
	}
	index, err := strconv.ParseUint(c.Request.PathValue("index"), 10, 31)
	if err != nil {
		return Answer{}, apierrors.NotFound(repositories.InstanceThing)
	}
	if err := c.Store.StopInstance(ctx, c.Caller, a, p, strconv.FormatUint(index, 10)); err != nil {
		return Answer{}, err
	}
	return Answer{Status: http.StatusNoContent}, nil
}

// stats says what the instances of the app's current revision do. The app is read afresh, so that no answer is about a
// revision that is over; what its process reports counts only for that revision.
func stats(ctx context.Context, c *Call) (Answer, error) {
	p, err := c.found(ctx)
	if err != nil {
		return Answer{}, err
	}
	a, err := c.Store.LiveApp(ctx, c.Caller, p.Spec.AppRef.Name)
	if err != nil {
		return Answer{}, err
	}
	rows := presenter.Instances(a, p)
	if !presenter.Settled(a, rows) && c.Patience.Waits(c.Caller.Name, a.Name, p.Name) {
		if p, rows, err = c.settled(ctx, a, p); err != nil {
			return Answer{}, err
		}
	}
	if presenter.Settled(a, rows) {
		c.Patience.Seen(c.Caller.Name, a.Name, p.Name)
	}
	return ok(presenter.StatsOf(p, rows, c.Clock.Now()))
}

// settled holds the answer until there is something to tell.
func (c *Call) settled(ctx context.Context, a *korifiv1alpha1.CFApp, p *korifiv1alpha1.CFProcess) (*korifiv1alpha1.CFProcess, []presenter.Instance, error) {
	held, cancel := held(ctx, hold)
	defer cancel()
	rows := presenter.Instances(a, p)
	err := c.Store.Until(held, p.Name, func() (bool, error) {
		newer, err := c.Store.Process(ctx, c.Caller, p.Name)
		if err != nil {
			return false, err
		}
		p, rows = newer, presenter.Instances(a, newer)
		return presenter.Settled(a, rows), nil
	})
	if err != nil {
		return nil, nil, err
	}
	// Meanwhile somebody else may have stopped or restarted it.
	if a, err = c.Store.LiveApp(ctx, c.Caller, a.Name); err != nil {
		return nil, nil, err
	}
	return p, presenter.Instances(a, p), nil
}
