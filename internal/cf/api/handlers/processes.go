// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
	"github.com/torpor-dev/torpor/internal/cf/revision"
)

// maxEmbeddedInstances limits the instances in one response. Each takes a few hundred bytes.
const maxEmbeddedInstances = 100_000

func listProcesses(ctx context.Context, r *Request) (Response, error) {
	spaces, err := r.spacesOfApps(ctx, "app_guids")
	if err != nil {
		return Response{}, err
	}
	processes, err := r.Store.ListProcesses(spaces)
	if err != nil {
		return Response{}, err
	}
	list := resourceList[*korifiv1alpha1.CFProcess]{
		items: processes,
		filters: map[string]func(*korifiv1alpha1.CFProcess) string{
			"app_guids": func(p *korifiv1alpha1.CFProcess) string { return p.Spec.AppRef.Name },
			"types":     typeOfProcess,
			"guids":     func(p *korifiv1alpha1.CFProcess) string { return p.Name },
		},
		compare: revision.CompareByAge[*korifiv1alpha1.CFProcess],
	}
	// Clients that support the version in presenter.Version also request the instances.
	if !strings.Contains(r.query().Get("embed"), "process_instances") {
		return respondList(r, list, r.presentProcess)
	}
	apps, err := r.Store.ListApps(spaces)
	if err != nil {
		return Response{}, err
	}
	appsByKey := make(map[client.ObjectKey]*korifiv1alpha1.CFApp, len(apps))
	for _, app := range apps {
		appsByKey[client.ObjectKeyFromObject(app)] = app
	}
	now, instances := r.Clock.Now(), 0
	response, err := respondList(r, list, func(p *korifiv1alpha1.CFProcess) presenter.ProcessResponse {
		app := appsByKey[client.ObjectKey{Namespace: p.Namespace, Name: p.Spec.AppRef.Name}]
		if app == nil || instances > maxEmbeddedInstances {
			return r.presentProcess(p)
		}
		reported := presenter.ReportInstances(app, p, now)
		if instances += len(reported); instances <= maxEmbeddedInstances {
			return r.presentProcess(p).WithInstances(reported, now)
		}
		return r.presentProcess(p)
	})
	if instances > maxEmbeddedInstances {
		return Response{}, apierrors.NewUnprocessableEntity(fmt.Sprintf("expected at most %d instances in one response, found more; request fewer processes with per_page or space_guids", maxEmbeddedInstances))
	}
	return response, err
}

// spacesOfApps returns the spaces of the apps in a query parameter. Without that parameter, it returns the spaces that
// are visible to the caller and selected by the query.
func (r *Request) spacesOfApps(ctx context.Context, parameter string) ([]string, error) {
	if !r.query().Has(parameter) {
		return r.visibleSpaces(ctx)
	}
	apps, err := r.appsOfQuery(ctx, parameter)
	wanted := payloads.ParseFilter(r.query(), "space_guids")
	var spaces []string
	for _, app := range apps {
		if wanted.Matches(app.Namespace) && !slices.Contains(spaces, app.Namespace) {
			spaces = append(spaces, app.Namespace)
		}
	}
	return spaces, err
}

func typeOfProcess(p *korifiv1alpha1.CFProcess) string { return p.Spec.ProcessType }

func (r *Request) presentProcess(p *korifiv1alpha1.CFProcess) presenter.ProcessResponse {
	return presenter.ForProcess(r.Base, p)
}

func listAppProcesses(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	processes, err := r.Store.ListProcessesOfApp(ctx, app)
	if err != nil {
		return Response{}, err
	}
	return respondList(r, resourceList[*korifiv1alpha1.CFProcess]{
		items: processes, filters: map[string]func(*korifiv1alpha1.CFProcess) string{"types": typeOfProcess},
	}, r.presentProcess)
}

// process returns the process in the path, identified by its GUID or by its app and type.
func (r *Request) process(ctx context.Context) (*korifiv1alpha1.CFProcess, error) {
	processType := r.HTTP.PathValue("type")
	if processType == "" {
		return r.Store.GetProcess(ctx, r.Caller, r.guid())
	}
	app, err := r.Store.GetApp(ctx, r.Caller, r.guid())
	if err != nil {
		return nil, err
	}
	return r.Store.GetProcessByType(ctx, app, processType)
}

// processWithLiveApp returns the process in the path and its app. It reads the app from the API server instead of the
// cache.
func (r *Request) processWithLiveApp(ctx context.Context) (*korifiv1alpha1.CFProcess, *korifiv1alpha1.CFApp, error) {
	process, err := r.process(ctx)
	if err != nil {
		return nil, nil, err
	}
	app, err := r.Store.GetLiveApp(ctx, r.Caller, process.Namespace, process.Spec.AppRef.Name)
	return process, app, err
}

func getProcess(ctx context.Context, r *Request) (Response, error) {
	process, err := r.process(ctx)
	return present(r, presenter.ForProcess, process, err)
}

func updateProcess(ctx context.Context, r *Request, body payloads.ProcessPatch) (Response, error) {
	if err := body.Metadata.Validate(); err != nil {
		return Response{}, err
	}
	if check := body.ReadinessHealthCheck; check != nil && check.Type != nil && *check.Type != string(korifiv1alpha1.ProcessHealthCheck) {
		return Response{}, apierrors.NewUnprocessableEntity("expected no readiness health check, because an instance is ready when its health check has succeeded once; found " + *check.Type + "; set the health check")
	}
	message := repositories.PatchProcessMessage{Command: body.Command, Metadata: body.Metadata}
	if check := body.HealthCheck; check != nil {
		message.CheckType, message.Endpoint = check.Type, check.Data.Endpoint
		message.Timeout, message.Invocation = check.Data.Timeout, check.Data.InvocationTimeout
	}
	return r.patchProcess(ctx, message)
}

func scaleProcess(ctx context.Context, r *Request, body payloads.ProcessScale) (Response, error) {
	if err := r.Limits.Check(body); err != nil {
		return Response{}, err
	}
	message := repositories.PatchProcessMessage{Instances: body.Instances, MemoryMB: body.MemoryMB, DiskMB: body.DiskMB}
	return r.patchProcess(ctx, message)
}

func (r *Request) patchProcess(ctx context.Context, message repositories.PatchProcessMessage) (Response, error) {
	process, err := r.process(ctx)
	if err == nil {
		process, err = r.Store.PatchProcess(ctx, r.Caller, process, message)
	}
	return present(r, presenter.ForProcess, process, err)
}

func restartInstance(ctx context.Context, r *Request) (Response, error) {
	process, app, err := r.processWithLiveApp(ctx)
	if err != nil {
		return Response{}, err
	}
	// The index is parsed and formatted again, because the label of Pods has no leading zeros.
	index, err := strconv.ParseUint(r.HTTP.PathValue("index"), 10, 31)
	if err != nil {
		return Response{}, apierrors.NewNotFound(repositories.InstanceResourceType)
	}
	if err := r.Store.DeleteInstance(ctx, r.Caller, app, process, strconv.FormatUint(index, 10)); err != nil {
		return Response{}, err
	}
	return Response{Status: http.StatusNoContent}, nil
}

// getProcessStats describes the instances of the app's current revision. The app is read from the API server, so the
// response never describes an ended revision. The process status is used only if it describes the current revision.
func getProcessStats(ctx context.Context, r *Request) (Response, error) {
	process, app, err := r.processWithLiveApp(ctx)
	if err != nil {
		return Response{}, err
	}
	instances := presenter.ReportInstances(app, process, r.Clock.Now())
	if hold := r.Polls.HoldTime(r.Caller.Name, app.Name, process.Name); hold > 0 && !presenter.IsSettled(app, instances) {
		if process, instances, err = r.waitUntilSettled(ctx, app, process, hold); err != nil {
			return Response{}, err
		}
	}
	if presenter.IsSettled(app, instances) {
		r.Polls.EndPolls(r.Caller.Name, app.Name, process.Name)
	}
	var usage map[repositories.InstanceKey]repositories.InstanceUsage
	if slices.ContainsFunc(instances, presenter.InstanceReport.IsRunning) {
		usage = r.Store.MeasureInstances(ctx, r.Caller, process)
	}
	return ok(presenter.ForStats(app, process, instances, usage, r.Clock.Now()))
}

// waitUntilSettled waits until presenter.IsSettled returns true, or the time hold has passed.
func (r *Request) waitUntilSettled(ctx context.Context, app *korifiv1alpha1.CFApp, process *korifiv1alpha1.CFProcess, hold time.Duration) (*korifiv1alpha1.CFProcess, []presenter.InstanceReport, error) {
	holdCtx, cancel := context.WithTimeout(ctx, hold)
	defer cancel()
	err := r.Store.WatchUntil(holdCtx, process.Name, func() (bool, error) {
		newer, err := r.Store.GetProcess(ctx, r.Caller, process.Name)
		if err != nil {
			return false, err
		}
		process = newer
		return presenter.IsSettled(app, presenter.ReportInstances(app, process, r.Clock.Now())), nil
	})
	if err != nil {
		return nil, nil, err
	}
	// Another client may have stopped or restarted the app during the wait.
	if app, err = r.Store.GetLiveApp(ctx, r.Caller, app.Namespace, app.Name); err != nil {
		return nil, nil, err
	}
	return process, presenter.ReportInstances(app, process, r.Clock.Now()), nil
}
