// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// object is some JSON.
type object map[string]any

// SetState starts or stops an app with one patch.
func (s *Store) SetState(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, state korifiv1alpha1.AppState) (*korifiv1alpha1.CFApp, error) {
	return s.patchApp(ctx, caller, app, object{"spec": object{"desiredState": state}})
}

// Restart asks for a new revision with one patch that never leaves STARTED, so that it is done or not done, never half.
// A stopped app is started.
func (s *Store) Restart(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) (*korifiv1alpha1.CFApp, error) {
	return s.patchApp(ctx, caller, app, object{
		"metadata": object{"annotations": object{torporv1alpha1.RestartRequestAnnotation: uuid.NewString()}},
		"spec":     object{"desiredState": korifiv1alpha1.StartedState},
	})
}

// SetDroplet says what the next revision runs.
func (s *Store) SetDroplet(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, droplet string) (*korifiv1alpha1.CFApp, error) {
	return s.patchApp(ctx, caller, app, object{"spec": object{"currentDropletRef": object{"name": droplet}}})
}

// Delete deletes an app; it is gone when its Pods are.
func (s *Store) Delete(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) error {
	if err := client.IgnoreNotFound(caller.Client.Delete(ctx, app.DeepCopy())); err != nil {
		return apierrors.Of(err, AppThing)
	}
	return nil
}

// Change is what becomes of a process; nil leaves a field as it is.
type Change struct {
	Instances           *int32
	MemoryMB, DiskMB    *int64
	Command             *string
	CheckType, Endpoint *string
	Timeout, Invocation *int32
}

// ChangeProcess changes a process with one patch.
func (s *Store) ChangeProcess(ctx context.Context, caller *authorization.Caller, p *korifiv1alpha1.CFProcess, c Change) (*korifiv1alpha1.CFProcess, error) {
	p = p.DeepCopy()
	spec, check, data := object{}, object{}, object{}
	set(spec, "desiredInstances", c.Instances)
	set(spec, "memoryMB", c.MemoryMB)
	set(spec, "diskQuotaMB", c.DiskMB)
	set(spec, "command", c.Command)
	set(check, "type", c.CheckType)
	set(data, "httpEndpoint", c.Endpoint)
	set(data, "timeoutSeconds", c.Timeout)
	set(data, "invocationTimeoutSeconds", c.Invocation)
	if len(data) > 0 {
		check["data"] = data
	}
	if len(check) > 0 {
		spec["healthCheck"] = check
	}
	if len(spec) == 0 {
		return p, nil
	}
	if err := patch(ctx, caller, p, object{"spec": spec}); err != nil {
		return nil, apierrors.Of(err, ProcessThing)
	}
	s.Written(ctx, p)
	return p, nil
}

func set[T any](into object, key string, value *T) {
	if value != nil {
		into[key] = *value
	}
}

func (s *Store) patchApp(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, change object) (*korifiv1alpha1.CFApp, error) {
	app = app.DeepCopy()
	if err := patch(ctx, caller, app, change); err != nil {
		return nil, apierrors.Of(err, AppThing)
	}
	s.Written(ctx, app)
	return app, nil
}

// patch changes an object as the caller, without a resource version: it says what is wanted, whatever happened meanwhile.
func patch(ctx context.Context, caller *authorization.Caller, o client.Object, change object) error {
	raw, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("write the patch: %w", err)
	}
	return caller.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, raw))
}
