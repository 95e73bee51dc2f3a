// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"errors"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

func appLookup() cacheLookup {
	return cacheLookup{list: &korifiv1alpha1.CFAppList{}, noun: "app", resource: appsResource, resourceType: AppResourceType}
}

// GetApp returns an app that the caller may see.
func (s *Store) GetApp(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFApp, error) {
	return find[*korifiv1alpha1.CFApp](ctx, s, caller, guid, appLookup())
}

// GetLiveApp returns an app as it is at this moment, read with the caller's own rights.
func (s *Store) GetLiveApp(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFApp, error) {
	cached, err := s.GetApp(ctx, caller, guid)
	if err != nil {
		return nil, err
	}
	live := &korifiv1alpha1.CFApp{}
	return live, getLive(ctx, caller, client.ObjectKeyFromObject(cached), live)
}

// ListApps returns the apps of some spaces in no order, as the cache holds them: they must not be changed.
func (s *Store) ListApps(spaces []string) ([]*korifiv1alpha1.CFApp, error) {
	return listInSpaces[*korifiv1alpha1.CFApp](s.apps, spaces)
}

// FindAppByName returns the app of a space that has a name; nil if there is none.
func (s *Store) FindAppByName(space, name string) (*korifiv1alpha1.CFApp, error) {
	apps, err := s.ListApps([]string{space})
	if err != nil {
		return nil, err
	}
	for _, app := range apps {
		if app.Spec.DisplayName == name {
			return app, nil
		}
	}
	return nil, nil
}

// CreateAppMessage describes an app to create.
type CreateAppMessage struct {
	Name, Space string
	Lifecycle   korifiv1alpha1.LifecycleType
	Environment map[string]string
}

// CreateApp creates a stopped app, its environment and its web process, as the caller.
func (s *Store) CreateApp(ctx context.Context, caller *authorization.Caller, message CreateAppMessage) (*korifiv1alpha1.CFApp, error) {
	if err := s.checkNameIsFree(message.Space, message.Name); err != nil {
		return nil, err
	}
	guid := uuid.NewString()
	app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: message.Space, Name: guid, Labels: map[string]string{
		korifiv1alpha1.GUIDLabel: guid, korifiv1alpha1.SpaceGUIDLabel: message.Space, korifiv1alpha1.DisplayNameLabel: hashName(message.Name),
	}}}
	app.Spec = korifiv1alpha1.CFAppSpec{
		DisplayName: message.Name, DesiredState: korifiv1alpha1.StoppedState, Lifecycle: korifiv1alpha1.Lifecycle{Type: message.Lifecycle},
		EnvSecretName: guid + "-env",
	}
	if err := caller.Client.Create(ctx, app); err != nil {
		return nil, apierrors.FromError(err, AppResourceType)
	}
	err := s.claimName(ctx, caller, app)
	if err == nil {
		err = caller.Client.Create(ctx, &corev1.Secret{ObjectMeta: ownedByApp(app, app.Spec.EnvSecretName), StringData: message.Environment})
	}
	if err == nil {
		_, err = s.CreateProcess(ctx, caller, app, korifiv1alpha1.WebProcess)
	}
	if err != nil {
		// An app that is half made would keep its name from the next try.
		return nil, errors.Join(apierrors.FromError(err, AppResourceType), client.IgnoreNotFound(caller.Client.Delete(ctx, app)))
	}
	s.WaitForCache(ctx, app)
	return app, nil
}

// SetAppState starts or stops an app with one patch.
func (s *Store) SetAppState(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, state korifiv1alpha1.AppState) (*korifiv1alpha1.CFApp, error) {
	return patch(ctx, s, caller, app.DeepCopy(), jsonObject{"spec": jsonObject{"desiredState": state}})
}

// RestartApp requests a new revision, and starts a stopped app. It is one patch that never leaves STARTED, so a client that
// goes away cannot leave the app stopped.
func (s *Store) RestartApp(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) (*korifiv1alpha1.CFApp, error) {
	return patch(ctx, s, caller, app.DeepCopy(), jsonObject{
		"metadata": jsonObject{"annotations": jsonObject{torporv1alpha1.RestartRequestAnnotation: uuid.NewString()}},
		"spec":     jsonObject{"desiredState": korifiv1alpha1.StartedState},
	})
}

// SetCurrentDroplet sets the droplet of the next revision.
func (s *Store) SetCurrentDroplet(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, droplet string) (*korifiv1alpha1.CFApp, error) {
	return patch(ctx, s, caller, app.DeepCopy(), jsonObject{"spec": jsonObject{"currentDropletRef": jsonObject{"name": droplet}}})
}

// DeleteApp deletes an app; it is gone when its Pods are.
func (s *Store) DeleteApp(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) error {
	if err := client.IgnoreNotFound(caller.Client.Delete(ctx, app.DeepCopy())); err != nil {
		return apierrors.FromError(err, AppResourceType)
	}
	return nil
}
