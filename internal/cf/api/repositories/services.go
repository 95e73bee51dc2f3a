// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
)

// GetServiceInstance returns a service that is visible to the caller.
func (s *Store) GetServiceInstance(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFServiceInstance, error) {
	return s.GetServiceInstanceInSpace(ctx, caller, everySpace, guid)
}

// GetServiceInstanceInSpace returns the service to which an object in the same space refers. Other spaces may have a
// service with the same GUID.
func (s *Store) GetServiceInstanceInSpace(ctx context.Context, caller *authorization.Caller, space, guid string) (*korifiv1alpha1.CFServiceInstance, error) {
	return find[*korifiv1alpha1.CFServiceInstance](ctx, s, caller, guid, cacheLookup{
		list: &korifiv1alpha1.CFServiceInstanceList{}, noun: "service", resource: servicesResource, resourceType: ServiceResourceType, space: space,
	})
}

// GetServiceBinding returns a binding that is visible to the caller.
func (s *Store) GetServiceBinding(ctx context.Context, caller *authorization.Caller, guid string) (*korifiv1alpha1.CFServiceBinding, error) {
	return find[*korifiv1alpha1.CFServiceBinding](ctx, s, caller, guid, cacheLookup{
		list: &korifiv1alpha1.CFServiceBindingList{}, noun: "binding", resource: bindingsResource, resourceType: BindingResourceType,
	})
}

// ListServiceInstances returns the services in the given spaces, oldest first.
func (s *Store) ListServiceInstances(ctx context.Context, spaces []string) ([]*korifiv1alpha1.CFServiceInstance, error) {
	return listOfSpaces[*korifiv1alpha1.CFServiceInstance](ctx, s, spaces, "list services", func() client.ObjectList { return &korifiv1alpha1.CFServiceInstanceList{} })
}

// ListServiceBindings returns the bindings in the given spaces, oldest first.
func (s *Store) ListServiceBindings(ctx context.Context, spaces []string) ([]*korifiv1alpha1.CFServiceBinding, error) {
	return listOfSpaces[*korifiv1alpha1.CFServiceBinding](ctx, s, spaces, "list bindings", func() client.ObjectList { return &korifiv1alpha1.CFServiceBindingList{} })
}

// CreateServiceMessage describes a user-provided service.
type CreateServiceMessage struct {
	Space, Name string
	Tags        []string
	Credentials json.RawMessage
	Metadata    *payloads.Metadata
}

// CreateServiceInstance creates a service and a Secret with its credentials. The Secret is deleted together with the
// service.
func (s *Store) CreateServiceInstance(ctx context.Context, caller *authorization.Caller, message CreateServiceMessage) (*korifiv1alpha1.CFServiceInstance, error) {
	guid := uuid.NewString()
	made := &korifiv1alpha1.CFServiceInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: message.Space, Name: guid, Labels: map[string]string{korifiv1alpha1.GUIDLabel: guid, korifiv1alpha1.SpaceGUIDLabel: message.Space}},
		Spec:       korifiv1alpha1.CFServiceInstanceSpec{DisplayName: message.Name, SecretName: guid, Type: korifiv1alpha1.UserProvidedService, Tags: message.Tags},
	}
	setMetadata(made, message.Metadata)
	if err := caller.Client.Create(ctx, made); err != nil {
		return nil, apierrors.FromError(err, ServiceResourceType)
	}
	kind := korifiv1alpha1.CFServiceInstanceKind()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: message.Space, Name: guid, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: made.Name, UID: made.UID},
		}},
		Data: map[string][]byte{korifiv1alpha1.CredentialsKey: message.Credentials},
	}
	if err := caller.Client.Create(ctx, secret); err != nil {
		return nil, errors.Join(apierrors.FromError(err, ServiceResourceType), caller.Client.Delete(ctx, made))
	}
	s.WaitForCache(ctx, made)
	return made, nil
}

// GetCredentials returns the credentials of a service as JSON, read with the caller's own rights.
func (s *Store) GetCredentials(ctx context.Context, caller *authorization.Caller, instance *korifiv1alpha1.CFServiceInstance) (json.RawMessage, error) {
	var secret corev1.Secret
	if err := caller.Client.Get(ctx, client.ObjectKey{Namespace: instance.Namespace, Name: instance.Spec.SecretName}, &secret); err != nil {
		return nil, apierrors.FromError(err, ServiceResourceType)
	}
	return secret.Data[korifiv1alpha1.CredentialsKey], nil
}

// UpdateServiceMessage describes a change to a service. Empty fields, except non-nil tags, remain unchanged.
type UpdateServiceMessage struct {
	Name        string
	Tags        []string
	Credentials json.RawMessage
	Metadata    *payloads.Metadata
}

// UpdateServiceInstance changes a service. Apps receive new credentials with their next revision.
func (s *Store) UpdateServiceInstance(ctx context.Context, caller *authorization.Caller, instance *korifiv1alpha1.CFServiceInstance, message UpdateServiceMessage) (*korifiv1alpha1.CFServiceInstance, error) {
	if len(message.Credentials) > 0 {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: instance.Namespace, Name: instance.Spec.SecretName}}
		if err := patchAsCaller(ctx, caller, secret, jsonObject{"data": map[string][]byte{korifiv1alpha1.CredentialsKey: message.Credentials}}); err != nil {
			return nil, apierrors.FromError(err, ServiceResourceType)
		}
	}
	spec := jsonObject{}
	if message.Name != "" {
		spec["displayName"] = message.Name
	}
	if message.Tags != nil {
		spec["tags"] = message.Tags
	}
	return patchCopy(ctx, s, caller, instance, specAndMetadata(spec, message.Metadata))
}

// DeleteServiceInstance deletes a service, and waits until the cache reflects the deletion.
func (s *Store) DeleteServiceInstance(ctx context.Context, caller *authorization.Caller, instance *korifiv1alpha1.CFServiceInstance) error {
	return s.deleteAndWait(ctx, caller, instance.DeepCopy())
}

// DeleteServiceBinding deletes a binding. The app's next revision no longer receives the credentials.
func (s *Store) DeleteServiceBinding(ctx context.Context, caller *authorization.Caller, binding *korifiv1alpha1.CFServiceBinding) error {
	return s.deleteAndWait(ctx, caller, binding.DeepCopy())
}

// CreateBindingMessage describes the binding of an app to a service. Name may be empty.
type CreateBindingMessage struct {
	Instance *korifiv1alpha1.CFServiceInstance
	Name     string
	Metadata *payloads.Metadata
}

// CreateServiceBinding binds an app to a service, so the app receives the service's credentials. The binding is deleted
// together with the app.
func (s *Store) CreateServiceBinding(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, message CreateBindingMessage) (*korifiv1alpha1.CFServiceBinding, error) {
	binding := &korifiv1alpha1.CFServiceBinding{
		ObjectMeta: ownedByApp(app, uuid.NewString()),
		Spec: korifiv1alpha1.CFServiceBindingSpec{
			DisplayName: message.Name, Type: "app", AppRef: corev1.LocalObjectReference{Name: app.Name},
			Service: corev1.ObjectReference{Kind: korifiv1alpha1.CFServiceInstanceKind().Kind, Name: message.Instance.Name},
		},
	}
	setMetadata(binding, message.Metadata)
	return create(ctx, s, caller, binding)
}

func (s *Store) deleteAndWait(ctx context.Context, caller *authorization.Caller, object client.Object) error {
	if err := deleteByName(ctx, caller, object); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, cacheTimeout)
	defer cancel()
	key := client.ObjectKeyFromObject(object)
	err := s.WatchUntil(ctx, key.Name, func() (bool, error) {
		err := s.cache.Get(ctx, key, object)
		return err != nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("wait for the deletion: %w", err)
	}
	return nil
}
