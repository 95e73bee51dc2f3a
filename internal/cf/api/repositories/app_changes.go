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

// jsonObject is some JSON.
type jsonObject map[string]any

// SetAppState starts or stops an app with one patch.
func (s *Store) SetAppState(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, state korifiv1alpha1.AppState) (*korifiv1alpha1.CFApp, error) {
	return s.patchApp(ctx, caller, app, jsonObject{"spec": jsonObject{"desiredState": state}})
}

// RestartApp asks for a new revision with one patch that never leaves STARTED, so that it is done or not done, never half.
// A stopped app is started.
func (s *Store) RestartApp(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) (*korifiv1alpha1.CFApp, error) {
	return s.patchApp(ctx, caller, app, jsonObject{
		"metadata": jsonObject{"annotations": jsonObject{torporv1alpha1.RestartRequestAnnotation: uuid.NewString()}},
		"spec":     jsonObject{"desiredState": korifiv1alpha1.StartedState},
	})
}

// SetCurrentDroplet says what the next revision runs.
func (s *Store) SetCurrentDroplet(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, droplet string) (*korifiv1alpha1.CFApp, error) {
	return s.patchApp(ctx, caller, app, jsonObject{"spec": jsonObject{"currentDropletRef": jsonObject{"name": droplet}}})
}

// DeleteApp deletes an app; it is gone when its Pods are.
func (s *Store) DeleteApp(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) error {
	if err := client.IgnoreNotFound(caller.Client.Delete(ctx, app.DeepCopy())); err != nil {
		return apierrors.FromError(err, AppResourceType)
	}
	return nil
}

// PatchProcessMessage is what becomes of a process; nil leaves a field as it is.
type PatchProcessMessage struct {
	Instances           *int32
	MemoryMB, DiskMB    *int64
	Command             *string
	CheckType, Endpoint *string
	Timeout, Invocation *int32
}

// PatchProcess changes a process with one patch.
func (s *Store) PatchProcess(ctx context.Context, caller *authorization.Caller, p *korifiv1alpha1.CFProcess, c PatchProcessMessage) (*korifiv1alpha1.CFProcess, error) {
	p = p.DeepCopy()
	spec, check, data := jsonObject{}, jsonObject{}, jsonObject{}
	setIfGiven(spec, "desiredInstances", c.Instances)
	setIfGiven(spec, "memoryMB", c.MemoryMB)
	setIfGiven(spec, "diskQuotaMB", c.DiskMB)
	setIfGiven(spec, "command", c.Command)
	setIfGiven(check, "type", c.CheckType)
	setIfGiven(data, "httpEndpoint", c.Endpoint)
	setIfGiven(data, "timeoutSeconds", c.Timeout)
	setIfGiven(data, "invocationTimeoutSeconds", c.Invocation)
	if len(data) > 0 {
		check["data"] = data
	}
	if len(check) > 0 {
		spec["healthCheck"] = check
	}
	if len(spec) == 0 {
		return p, nil
	}
	if err := patchAsCaller(ctx, caller, p, jsonObject{"spec": spec}); err != nil {
		return nil, apierrors.FromError(err, ProcessResourceType)
	}
	s.WaitForCache(ctx, p)
	return p, nil
}

func setIfGiven[T any](into jsonObject, key string, value *T) {
	if value != nil {
		into[key] = *value
	}
}

func (s *Store) patchApp(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, change jsonObject) (*korifiv1alpha1.CFApp, error) {
	app = app.DeepCopy()
	if err := patchAsCaller(ctx, caller, app, change); err != nil {
		return nil, apierrors.FromError(err, AppResourceType)
	}
	s.WaitForCache(ctx, app)
	return app, nil
}

// patchAsCaller changes an object as the caller, without a resource version: it says what is wanted, whatever happened meanwhile.
func patchAsCaller(ctx context.Context, caller *authorization.Caller, o client.Object, change jsonObject) error {
	raw, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("write the patch: %w", err)
	}
	return caller.Client.Patch(ctx, o, client.RawPatch(types.MergePatchType, raw))
}
