// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	coordinationv1 "k8s.io/api/coordination/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// namePrefix begins the name of the Lease that stands for the name of an app.
const namePrefix = "cf-app-"

// newNameTaken returns the error that clients match word by word.
func newNameTaken(name string) error {
	return apierrors.NewUnprocessableEntity("App with the name '" + name + "' already exists.")
}

// checkNameIsFree returns an error if the cache has an app of this name in the space, made by this API or not. Two
// requests at the same moment both pass; claimName decides between them.
func (s *Store) checkNameIsFree(space, name string) error {
	found, err := s.FindAppByName(space, name)
	if err == nil && found != nil {
		err = newNameTaken(name)
	}
	return err
}

// claimName makes an app the only one of its space with the name that it has already, whichever replica made the others: of
// the apps with a name, one holds its Lease. The Lease is deleted with the app. An app that does not get it has to give up
// the name.
func (s *Store) claimName(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) error {
	lease := &coordinationv1.Lease{ObjectMeta: ownedByApp(app, namePrefix+hashName(app.Spec.DisplayName))}
	lease.Spec.HolderIdentity = &app.Name
	err := caller.Client.Create(ctx, lease)
	if !k8serrors.IsAlreadyExists(err) {
		return err
	}
	if err := caller.Client.Get(ctx, client.ObjectKeyFromObject(lease), lease); err != nil {
		return err
	}
	held, err := s.holderHasName(ctx, caller, lease, app.Spec.DisplayName)
	switch {
	case err != nil:
		return err
	case held && *lease.Spec.HolderIdentity != app.Name:
		return newNameTaken(app.Spec.DisplayName)
	}
	owned := ownedByApp(app, lease.Name)
	lease.Labels, lease.OwnerReferences, lease.Spec.HolderIdentity = owned.Labels, owned.OwnerReferences, &app.Name
	// The update carries the Lease's resource version, so of two apps that take over an abandoned name one gets a conflict.
	if err = caller.Client.Update(ctx, lease); k8serrors.IsConflict(err) {
		return newNameTaken(app.Spec.DisplayName)
	}
	return err
}

// holderHasName reports whether the app that holds a Lease exists and still has the name.
func (s *Store) holderHasName(ctx context.Context, caller *authorization.Caller, lease *coordinationv1.Lease, name string) (bool, error) {
	if lease.Spec.HolderIdentity == nil {
		return false, nil
	}
	var holder korifiv1alpha1.CFApp
	err := caller.Client.Get(ctx, client.ObjectKey{Namespace: lease.Namespace, Name: *lease.Spec.HolderIdentity}, &holder)
	if client.IgnoreNotFound(err) != nil {
		return false, err
	}
	return err == nil && holder.Spec.DisplayName == name, nil
}

// RenameApp changes an app's display name; if another app has it, the old name is restored.
func (s *Store) RenameApp(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, name string) (*korifiv1alpha1.CFApp, error) {
	if err := s.checkNameIsFree(app.Namespace, name); err != nil {
		return nil, err
	}
	renamed, err := s.setDisplayName(ctx, caller, app, name)
	if err != nil {
		return nil, err
	}
	if err := s.claimName(ctx, caller, renamed); err != nil {
		_, restoreErr := s.setDisplayName(ctx, caller, renamed, app.Spec.DisplayName)
		return nil, errors.Join(apierrors.FromError(err, AppResourceType), restoreErr)
	}
	return renamed, nil
}

func (s *Store) setDisplayName(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, name string) (*korifiv1alpha1.CFApp, error) {
	return patch(ctx, s, caller, app.DeepCopy(), jsonObject{
		"metadata": jsonObject{"labels": jsonObject{korifiv1alpha1.DisplayNameLabel: hashName(name)}}, "spec": jsonObject{"displayName": name},
	})
}

// hashName returns a name in a form that labels and object names can hold.
func hashName(name string) string {
	sum := sha256.Sum224([]byte(name))
	return hex.EncodeToString(sum[:])
}
