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

func listProcesses(ctx context.Context, c *Request) (Response, error) {
	in, err := c.visibleSpaces(ctx)
	if err != nil {
		return Response{}, err
	}
	all, err := c.Store.ListProcesses(in)
	if err != nil {
		return Response{}, err
	}
	q := c.HTTP.URL.Query()
	ofApps, types, guids := payloads.ParseFilter(q, "app_guids"), payloads.ParseFilter(q, "types"), payloads.ParseFilter(q, "guids")
	all = slices.DeleteFunc(all, func(p *korifiv1alpha1.CFProcess) bool {
		return !ofApps.Matches(p.Spec.AppRef.Name) || !types.Matches(p.Spec.ProcessType) || !guids.Matches(p.Name)
	})
	slices.SortFunc(all, repositories.CompareByAge)
	if !strings.Contains(q.Get("embed"), "process_instances") {
		return page(c, all, c.process)
	}
	running, err := c.Store.ListApps(in)
	if err != nil {
		return Response{}, err
	}
	byGUID := make(map[string]*korifiv1alpha1.CFApp, len(running))
	for _, a := range running {
		byGUID[a.Name] = a
	}
	now := c.Clock.Now()
	return page(c, all, func(p *korifiv1alpha1.CFProcess) presenter.Process {
		if a := byGUID[p.Spec.AppRef.Name]; a != nil {
			return c.process(p).WithInstances(presenter.ListInstances(a, p), now)
		}
		return c.process(p)
	})
}

func (c *Request) process(p *korifiv1alpha1.CFProcess) presenter.Process {
	return presenter.ForProcess(c.Base, p)
}

func listAppProcesses(ctx context.Context, c *Request) (Response, error) {
	found, err := c.app(ctx)
	if err != nil {
		return Response{}, err
	}
	all, err := c.Store.ListProcessesOfApp(ctx, found)
	if err != nil {
		return Response{}, err
	}
	types := payloads.ParseFilter(c.HTTP.URL.Query(), "types")
	all = slices.DeleteFunc(all, func(p *korifiv1alpha1.CFProcess) bool { return !types.Matches(p.Spec.ProcessType) })
	return page(c, all, c.process)
}

// found is the process in the path: by its GUID, or by its app and its type.
func (c *Request) found(ctx context.Context) (*korifiv1alpha1.CFProcess, error) {
	kind := c.HTTP.PathValue("type")
	if kind == "" {
		return c.Store.GetProcess(ctx, c.Caller, c.guid())
	}
	a, err := c.app(ctx)
	if err != nil {
		return nil, err
	}
	return c.Store.GetProcessByType(ctx, a, kind)
}

func getProcess(ctx context.Context, c *Request) (Response, error) {
	p, err := c.found(ctx)
	if err != nil {
		return Response{}, err
	}
	return ok(c.process(p))
}

func updateProcess(ctx context.Context, c *Request) (Response, error) {
	var body payloads.ProcessPatch
	if err := payloads.DecodeJSON(c.HTTP.Body, &body); err != nil {
		return Response{}, err
	}
	change := repositories.PatchProcessMessage{Command: body.Command}
	if h := body.HealthCheck; h != nil {
		change.CheckType, change.Endpoint, change.Timeout, change.Invocation = h.Type, h.Data.Endpoint, h.Data.Timeout, h.Data.InvocationTimeout
	}
	return c.change(ctx, change, http.StatusOK)
}

func scaleProcess(ctx context.Context, c *Request) (Response, error) {
	var body payloads.ProcessScale
	if err := payloads.DecodeJSON(c.HTTP.Body, &body); err != nil {
		return Response{}, err
	}
	return c.change(ctx, repositories.PatchProcessMessage{Instances: body.Instances, MemoryMB: body.MemoryMB, DiskMB: body.DiskMB}, http.StatusAccepted)
}

func (c *Request) change(ctx context.Context, change repositories.PatchProcessMessage, status int) (Response, error) {
	p, err := c.found(ctx)
	if err != nil {
		return Response{}, err
	}
	if p, err = c.Store.PatchProcess(ctx, c.Caller, p, change); err != nil {
		return Response{}, err
	}
	return Response{Status: status, Body: c.process(p)}, nil
}

func restartInstance(ctx context.Context, c *Request) (Response, error) {
	p, err := c.found(ctx)
	if err != nil {
		return Response{}, err
	}
	a, err := c.Store.GetLiveApp(ctx, c.Caller, p.Spec.AppRef.Name)
	if err != nil {
		return Response{}, err
	}
	index, err := strconv.ParseUint(c.HTTP.PathValue("index"), 10, 31)
	if err != nil {
		return Response{}, apierrors.NewNotFound(repositories.InstanceResourceType)
	}
	if err := c.Store.DeleteInstance(ctx, c.Caller, a, p, strconv.FormatUint(index, 10)); err != nil {
		return Response{}, err
	}
	return Response{Status: http.StatusNoContent}, nil
}

// getProcessStats says what the instances of the app's current revision do. The app is read afresh, so that no answer is about a
// revision that is over; what its process reports counts only for that revision.
func getProcessStats(ctx context.Context, c *Request) (Response, error) {
	p, err := c.found(ctx)
	if err != nil {
		return Response{}, err
	}
	a, err := c.Store.GetLiveApp(ctx, c.Caller, p.Spec.AppRef.Name)
	if err != nil {
		return Response{}, err
	}
	rows := presenter.ListInstances(a, p)
	if !presenter.IsSettled(a, rows) && c.Polls.IsPolling(c.Caller.Name, a.Name, p.Name) {
		if p, rows, err = c.settled(ctx, a, p); err != nil {
			return Response{}, err
		}
	}
	if presenter.IsSettled(a, rows) {
		c.Polls.Finish(c.Caller.Name, a.Name, p.Name)
	}
	return ok(presenter.ForStats(p, rows, c.Clock.Now()))
}

// settled holds the answer until there is something to tell.
func (c *Request) settled(ctx context.Context, a *korifiv1alpha1.CFApp, p *korifiv1alpha1.CFProcess) (*korifiv1alpha1.CFProcess, []presenter.Instance, error) {
	held, cancel := withDeadline(ctx, maxHold)
	defer cancel()
	rows := presenter.ListInstances(a, p)
	err := c.Store.WaitFor(held, p.Name, func() (bool, error) {
		newer, err := c.Store.GetProcess(ctx, c.Caller, p.Name)
		if err != nil {
			return false, err
		}
		p, rows = newer, presenter.ListInstances(a, newer)
		return presenter.IsSettled(a, rows), nil
	})
	if err != nil {
		return nil, nil, err
	}
	// Meanwhile somebody else may have stopped or restarted it.
	if a, err = c.Store.GetLiveApp(ctx, c.Caller, a.Name); err != nil {
		return nil, nil, err
	}
	return p, presenter.ListInstances(a, p), nil
}
