// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"errors"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/revision"
	"github.com/torpor-dev/torpor/internal/reconcile/statusannotation"
)

func appLookup() cacheLookup {
	return cacheLookup{list: &korifiv1alpha1.CFAppList{}, noun: "app", resource: appsResource, resourceType: AppResourceType}
}

// GetApp returns an app that is visible to the caller.
func (s *Store) GetApp(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFApp, error) {
	return find[*korifiv1alpha1.CFApp](ctx, s, caller, guid, appLookup())
}

// GetAppInSpace returns the app to which an object in the same space refers. Other spaces may have an app with the same
// GUID.
func (s *Store) GetAppInSpace(ctx context.Context, caller *authorization.Caller, space, guid string) (*korifiv1alpha1.CFApp, error) {
	lookup := appLookup()
	lookup.space = space
	return find[*korifiv1alpha1.CFApp](ctx, s, caller, guid, lookup)
}

// GetLiveApp reads an app from the API server with the caller's own rights.
func (s *Store) GetLiveApp(ctx context.Context, caller *authorization.Caller, space, guid string) (*korifiv1alpha1.CFApp, error) {
	cached, err := s.GetAppInSpace(ctx, caller, space, guid)
	if err != nil {
		return nil, err
	}
	live := &korifiv1alpha1.CFApp{}
	err = getLive(ctx, caller, client.ObjectKeyFromObject(cached), live)
	statusannotation.RestoreStatus(live)
	return live, err
}

// ListApps returns the apps in the given spaces in no particular order. The result must not be changed, because it
// shares objects with the cache.
func (s *Store) ListApps(spaces []string) ([]*korifiv1alpha1.CFApp, error) {
	return listInSpaces[*korifiv1alpha1.CFApp](s.apps, spaces)
}

// FindAppByName returns the app with a name in a space, or nil.
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
	Lifecycle   korifiv1alpha1.Lifecycle
	Environment map[string]string
	Metadata    *payloads.Metadata
}

// CreateApp creates a stopped app with its environment and web process, as the caller.
func (s *Store) CreateApp(ctx context.Context, caller *authorization.Caller, message CreateAppMessage) (*korifiv1alpha1.CFApp, error) {
	if err := s.checkNameIsFree(ctx, caller, message.Space, message.Name); err != nil {
		return nil, err
	}
	guid := uuid.NewString()
	app := &korifiv1alpha1.CFApp{ObjectMeta: metav1.ObjectMeta{Namespace: message.Space, Name: guid, Labels: map[string]string{
		korifiv1alpha1.GUIDLabel: guid, korifiv1alpha1.SpaceGUIDLabel: message.Space, korifiv1alpha1.DisplayNameLabel: hashName(message.Name),
	}}}
	app.Spec = korifiv1alpha1.CFAppSpec{
		DisplayName: message.Name, DesiredState: korifiv1alpha1.StoppedState, Lifecycle: message.Lifecycle,
		EnvSecretName: guid + "-env",
	}
	setMetadata(app, message.Metadata)
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
		// A partly created app would prevent the next attempt from using its name.
		return nil, errors.Join(apierrors.FromError(err, AppResourceType), client.IgnoreNotFound(caller.Client.Delete(ctx, app)))
	}
	s.WaitForCache(ctx, app)
	return app, nil
}

// SetBuildpacks changes the buildpacks and the stack for an app's next build. Empty values remain unchanged.
func (s *Store) SetBuildpacks(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, data korifiv1alpha1.LifecycleData) (*korifiv1alpha1.CFApp, error) {
	given := jsonObject{}
	if len(data.Buildpacks) > 0 {
		given["buildpacks"] = data.Buildpacks
	}
	if data.Stack != "" {
		given["stack"] = data.Stack
	}
	if len(given) == 0 {
		return app, nil
	}
	return patch(ctx, s, caller, app.DeepCopy(), jsonObject{"spec": jsonObject{"lifecycle": jsonObject{"data": given}}})
}

// setMetadata sets the client's labels and annotations on a new object.
func setMetadata(o client.Object, m *payloads.Metadata) {
	if m == nil {
		return
	}
	add := func(to map[string]string, set map[string]*string) map[string]string {
		for key, value := range set {
			if to == nil {
				to = map[string]string{}
			}
			if value != nil {
				to[key] = *value
			}
		}
		return to
	}
	o.SetLabels(add(o.GetLabels(), m.Labels))
	o.SetAnnotations(add(o.GetAnnotations(), m.Annotations))
}

// metadataPatch returns the metadata part of a patch.
func metadataPatch(m *payloads.Metadata) jsonObject {
	changed := jsonObject{}
	if m != nil && len(m.Labels) > 0 {
		changed["labels"] = m.Labels
	}
	if m != nil && len(m.Annotations) > 0 {
		changed["annotations"] = m.Annotations
	}
	return changed
}

// UpdateApp changes the labels and annotations of an app. If name is not empty, it also renames the app. If the app
// already has that name in the cache, UpdateApp reads the app from the API server, because the cached name may be
// outdated.
func (s *Store) UpdateApp(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, name string, m *payloads.Metadata) (*korifiv1alpha1.CFApp, error) {
	if name == app.Spec.DisplayName {
		live := &korifiv1alpha1.CFApp{}
		if err := caller.Client.Get(ctx, client.ObjectKeyFromObject(app), live); err != nil {
			return nil, apierrors.FromError(err, AppResourceType)
		}
		app = live
	}
	if name != "" && name != app.Spec.DisplayName {
		renamed, err := s.RenameApp(ctx, caller, app, name)
		if err != nil {
			return nil, err
		}
		app = renamed
	}
	if m.IsEmpty() {
		return app, nil
	}
	return patch(ctx, s, caller, app.DeepCopy(), jsonObject{"metadata": metadataPatch(m)})
}

// SetAppState starts or stops an app with one patch.
func (s *Store) SetAppState(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, state korifiv1alpha1.AppState) (*korifiv1alpha1.CFApp, error) {
	changed, err := patch(ctx, s, caller, app.DeepCopy(), jsonObject{"spec": jsonObject{"desiredState": state}})
	if err == nil && state == korifiv1alpha1.StoppedState {
		err = requireNewRevision(app, changed)
	}
	return changed, err
}

// RestartApp requests a new revision, and starts the app if it is stopped. It sends a single patch that never stops the
// app, so a client that disconnects cannot leave the app stopped.
func (s *Store) RestartApp(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) (*korifiv1alpha1.CFApp, error) {
	changed, err := patch(ctx, s, caller, app.DeepCopy(), jsonObject{
		"metadata": jsonObject{"annotations": jsonObject{torporv1alpha1.RestartRequestAnnotation: uuid.NewString()}},
		"spec":     jsonObject{"desiredState": korifiv1alpha1.StartedState},
	})
	if err == nil {
		err = requireNewRevision(app, changed)
	}
	return changed, err
}

// requireNewRevision returns an error if a stop or restart of a started app was stored without a new revision. This
// means that the admission webhooks are not active, and the app does not restart. If before is older than the patched
// object, the stops and restarts in between have begun revisions, too.
func requireNewRevision(before, after *korifiv1alpha1.CFApp) error {
	was, _, _ := revision.ReadRevision(before)
	is, _, _ := revision.ReadRevision(after)
	if before.Spec.DesiredState != korifiv1alpha1.StartedState || is > was {
		return nil
	}
	return apierrors.NewServiceUnavailable("expected a revision after "+revision.FormatRevision(was)+" to begin, found none, because the admission webhook of apps is not installed; "+
		"ask the platform team to apply config/webhook, and try again", nil)
}

// SetCurrentDroplet sets the droplet for the next revision.
func (s *Store) SetCurrentDroplet(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, droplet string) (*korifiv1alpha1.CFApp, error) {
	return patch(ctx, s, caller, app.DeepCopy(), jsonObject{"spec": jsonObject{"currentDropletRef": jsonObject{"name": droplet}}})
}

// DeleteApp deletes an app, which exists until its Pods are deleted.
func (s *Store) DeleteApp(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) error {
	if err := client.IgnoreNotFound(caller.Client.Delete(ctx, app.DeepCopy())); err != nil {
		return apierrors.FromError(err, AppResourceType)
	}
	return nil
}

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

// RepairEnvironment creates the environment Secret of an app if it is missing, for example after an interrupted
// request. The app never starts without this Secret.
func (s *Store) RepairEnvironment(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) error {
	if app.Spec.EnvSecretName == "" {
		return nil
	}
	// The Secret is read first, because a full quota rejects a create request even if the object exists.
	err := caller.Client.Get(ctx, client.ObjectKey{Namespace: app.Namespace, Name: app.Spec.EnvSecretName}, &corev1.Secret{})
	if k8serrors.IsNotFound(err) {
		return s.SetEnvironment(ctx, caller, app, nil)
	}
	if err != nil {
		return apierrors.FromError(err, AppResourceType)
	}
	return nil
}

// SetEnvironment changes the environment variables for an app's next revision. A nil value removes a variable.
func (s *Store) SetEnvironment(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, vars map[string]*string) error {
	// An app that was created without this API may have no Secret yet.
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

// ListEvents returns the Kubernetes events about an app. It returns none if the caller may not read events.
func (s *Store) ListEvents(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) ([]corev1.Event, error) {
	var events corev1.EventList
	err := caller.Client.List(ctx, &events, client.InNamespace(app.Namespace), client.MatchingFields{"involvedObject.name": app.Name})
	switch {
	case k8serrors.IsForbidden(err):
		return nil, nil
	case err != nil:
		return nil, apierrors.FromError(err, "Event")
	}
	return events.Items, nil
}
