// SPDX-License-Identifier: Apache-2.0

// Package appenvironment reads the environment of an app: its own variables, and the credentials of its bound services.
package appenvironment

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/process"
)

// Read returns an app's environment variables. It reads bindings from the client's cache, and Secrets from the API
// server.
func Read(ctx context.Context, c client.Client, app *korifiv1alpha1.CFApp) (map[string][]byte, error) {
	variables := map[string][]byte{}
	if name := app.Spec.EnvSecretName; name != "" {
		var secret corev1.Secret
		if err := c.Get(ctx, client.ObjectKey{Namespace: app.Namespace, Name: name}, &secret); err != nil {
			return nil, fmt.Errorf("read the app's environment from the Secret in spec.envSecretName: %w", err)
		}
		maps.Copy(variables, secret.Data)
	}
	bound, err := listBoundServices(ctx, c, app)
	if err != nil || len(bound) == 0 {
		return variables, err
	}
	variables[process.ServicesVariable], err = process.FormatServices(bound)
	return variables, err
}

func listBoundServices(ctx context.Context, c client.Client, app *korifiv1alpha1.CFApp) ([]process.BoundService, error) {
	var bindings korifiv1alpha1.CFServiceBindingList
	var instances korifiv1alpha1.CFServiceInstanceList
	if err := ListServed(ctx, c, &bindings, client.InNamespace(app.Namespace)); err != nil {
		return nil, fmt.Errorf("list service bindings: %w", err)
	}
	bindings.Items = slices.DeleteFunc(bindings.Items, func(b korifiv1alpha1.CFServiceBinding) bool {
		return !process.IsBound(app, &b)
	})
	if len(bindings.Items) == 0 {
		return nil, nil
	}
	if err := ListServed(ctx, c, &instances, client.InNamespace(app.Namespace)); err != nil {
		return nil, fmt.Errorf("list services: %w", err)
	}
	var bound []process.BoundService
	for i := range bindings.Items {
		b := &bindings.Items[i]
		at := slices.IndexFunc(instances.Items, func(s korifiv1alpha1.CFServiceInstance) bool { return s.Name == b.Spec.Service.Name })
		if at < 0 || instances.Items[at].Spec.Type != korifiv1alpha1.UserProvidedService {
			continue
		}
		instance := &instances.Items[at]
		var secret corev1.Secret
		if err := c.Get(ctx, client.ObjectKey{Namespace: app.Namespace, Name: instance.Spec.SecretName}, &secret); err != nil {
			return nil, fmt.Errorf("read the credentials of the service instance %s: %w", instance.Spec.DisplayName, err)
		}
		bound = append(bound, process.NewBoundService(instance, b, secret.Data[korifiv1alpha1.CredentialsKey]))
	}
	return bound, nil
}

// ListServed is like List, but returns an empty list for a kind that is not served.
func ListServed(ctx context.Context, c client.Reader, list client.ObjectList, options ...client.ListOption) error {
	if err := c.List(ctx, list, options...); err != nil && !meta.IsNoMatchError(err) {
		return err
	}
	return nil
}
