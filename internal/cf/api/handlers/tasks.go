// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"cmp"
	"context"
	"net/http"
	"strconv"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
)

func createTask(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	var body payloads.TaskCreate
	if err := payloads.DecodeJSON(r.HTTP.Body, &body); err != nil {
		return Response{}, err
	}
	if err := r.applyTemplate(ctx, &body); err != nil {
		return Response{}, err
	}
	if err := body.Validate(); err != nil {
		return Response{}, err
	}
	if app.Spec.CurrentDropletRef == nil {
		return Response{}, apierrors.NewUnprocessableEntity("Task must have a droplet. Assign current droplet to app.")
	}
	task, err := r.Store.CreateTask(ctx, r.Caller, app, korifiv1alpha1.CFTaskSpec{
		Command: body.Command, DisplayName: body.Name, MemoryMB: body.MemoryMB, DiskQuotaMB: body.DiskMB,
	}, body.Metadata)
	return presentCreated(r, presenter.ForTask, task, err)
}

// applyTemplate sets an omitted command or size to that of the template process, if the request names one.
func (r *Request) applyTemplate(ctx context.Context, body *payloads.TaskCreate) error {
	if body.Template.Process.GUID == "" {
		return nil
	}
	process, err := r.Store.GetProcess(ctx, r.Caller, body.Template.Process.GUID)
	if err != nil {
		return err
	}
	body.Command = cmp.Or(body.Command, process.Spec.Command, process.Spec.DetectedCommand)
	body.MemoryMB, body.DiskMB = cmp.Or(body.MemoryMB, process.Spec.MemoryMB), cmp.Or(body.DiskMB, process.Spec.DiskQuotaMB)
	return nil
}

func getTask(ctx context.Context, r *Request) (Response, error) {
	task, err := r.Store.GetTask(ctx, r.Caller, r.guid())
	return present(r, presenter.ForTask, task, err)
}

func listTasks(ctx context.Context, r *Request) (Response, error) {
	spaces, err := r.visibleSpaces(ctx)
	if err != nil {
		return Response{}, err
	}
	tasks, err := r.Store.ListTasks(ctx, spaces)
	return r.respondTasks(tasks, err)
}

func listAppTasks(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	tasks, err := r.Store.ListTasksOfApp(ctx, app)
	return r.respondTasks(tasks, err)
}

func (r *Request) respondTasks(tasks []*korifiv1alpha1.CFTask, err error) (Response, error) {
	if err != nil {
		return Response{}, err
	}
	return respondList(r, resourceList[*korifiv1alpha1.CFTask]{
		items: tasks,
		filters: map[string]func(*korifiv1alpha1.CFTask) string{
			"guids":        func(t *korifiv1alpha1.CFTask) string { return t.Name },
			"names":        func(t *korifiv1alpha1.CFTask) string { return cmp.Or(t.Spec.DisplayName, t.Name) },
			"states":       presenter.TaskState,
			"sequence_ids": func(t *korifiv1alpha1.CFTask) string { return strconv.FormatInt(t.Status.SequenceID, 10) },
			"app_guids":    func(t *korifiv1alpha1.CFTask) string { return t.Spec.AppRef.Name },
		},
		reversed: r.isReversed(),
	}, func(t *korifiv1alpha1.CFTask) presenter.TaskResponse { return presenter.ForTask(r.Base, t) })
}

func cancelTask(ctx context.Context, r *Request) (Response, error) {
	task, err := r.Store.GetTask(ctx, r.Caller, r.guid())
	if err != nil {
		return Response{}, err
	}
	if state := presenter.TaskState(task); state == presenter.SucceededTask || state == presenter.FailedTask {
		return Response{}, apierrors.NewUnprocessableEntity("Task state is " + state + " and therefore cannot be canceled")
	}
	task, err = r.Store.CancelTask(ctx, r.Caller, task)
	response, err := present(r, presenter.ForTask, task, err)
	// The response is 202, because the task continues until its Job is deleted.
	response.Status = http.StatusAccepted
	return response, err
}
