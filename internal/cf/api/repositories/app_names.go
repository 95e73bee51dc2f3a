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

// newNameTaken is what clients know by heart.
func newNameTaken(name string) error {
	return apierrors.NewUnprocessableEntity("App with the name '" + name + "' already exists.")
}

// checkNameIsFree says that no app of a space has a name, as far as the cache knows. It finds also apps that others have made; what
// it cannot find is what another request does this moment, which is decided by claim.
func (s *Store) checkNameIsFree(space, name string) error {
	found, err := s.FindAppByName(space, name)
	if err == nil && found != nil {
		err = newNameTaken(name)
	}
	return err
}

// claimName makes an app the only one of its space with the name that it has already, whichever API made the others: of all
// who have the name, one holds its Lease. It is the app's own and goes with it. Who loses has to give up the name.
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
	holds, err := s.holderHasName(ctx, caller, lease, app.Spec.DisplayName)
	switch {
	case err != nil:
		return err
	case holds && *lease.Spec.HolderIdentity != app.Name:
		return newNameTaken(app.Spec.DisplayName)
	}
	mine := ownedByApp(app, lease.Name)
	lease.Labels, lease.OwnerReferences, lease.Spec.HolderIdentity = mine.Labels, mine.OwnerReferences, &app.Name
	if err = caller.Client.Update(ctx, lease); k8serrors.IsConflict(err) {
		return newNameTaken(app.Spec.DisplayName)
	}
	return err
}

// holderHasName says that the app which a Lease names is there and has the name still.
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

// RenameApp changes the name that people see; if another app has it, the old one comes back.
func (s *Store) RenameApp(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, name string) (*korifiv1alpha1.CFApp, error) {
	if err := s.checkNameIsFree(app.Namespace, name); err != nil {
		return nil, err
	}
	renamed, err := s.setDisplayName(ctx, caller, app, name)
	if err != nil {
		return nil, err
	}
	if err := s.claimName(ctx, caller, renamed); err != nil {
		_, back := s.setDisplayName(ctx, caller, renamed, app.Spec.DisplayName)
		return nil, errors.Join(apierrors.FromError(err, AppResourceType), back)
	}
	return renamed, nil
}

func (s *Store) setDisplayName(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, name string) (*korifiv1alpha1.CFApp, error) {
	return s.patchApp(ctx, caller, app, jsonObject{
		"metadata": jsonObject{"labels": jsonObject{korifiv1alpha1.DisplayNameLabel: hashName(name)}}, "spec": jsonObject{"displayName": name},
	})
}

// hashName is a name as a label can hold it.
func hashName(name string) string {
	sum := sha256.Sum224([]byte(name))
	return hex.EncodeToString(sum[:])
}
