// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// GetEnvironment returns an app's own environment variables, read as the caller.
func (s *Store) GetEnvironment(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) (map[string]string, error) {
	vars := map[string]string{}
	if app.Spec.EnvSecretName == "" {
		return vars, nil
	}
	secret := &corev1.Secret{}
	err := caller.Client.Get(ctx, client.ObjectKey{Namespace: app.Namespace, Name: app.Spec.EnvSecretName}, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, apierrors.FromError(err, AppResourceType)
	}
	for name, value := range secret.Data {
		vars[name] = string(value)
	}
	return vars, nil
}

// SetEnvironment changes the environment variables of an app's next revision; nil removes a variable.
func (s *Store) SetEnvironment(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, vars map[string]*string) error {
	// An app that was not made by this API may have no Secret yet.
	if app.Spec.EnvSecretName == "" {
		var err error
		if app, err = patch(ctx, s, caller, app.DeepCopy(), jsonObject{"spec": jsonObject{"envSecretName": app.Name + "-env"}}); err != nil {
			return err
		}
	}
	secret := &corev1.Secret{ObjectMeta: ownedByApp(app, app.Spec.EnvSecretName)}
	if err := client.IgnoreAlreadyExists(caller.Client.Create(ctx, secret)); err != nil {
		return apierrors.FromError(err, AppResourceType)
	}
	data := jsonObject{}
	for name, value := range vars {
		data[name] = nil
		if value != nil {
			data[name] = []byte(*value)
		}
	}
	if err := patchAsCaller(ctx, caller, secret, jsonObject{"data": data}); err != nil {
		return apierrors.FromError(err, AppResourceType)
	}
	return nil
}
