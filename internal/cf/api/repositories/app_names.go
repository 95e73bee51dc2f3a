// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	coordinationv1 "k8s.io/api/coordination/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// namePrefix is the prefix of the names of Leases that reserve app names.
const namePrefix = "cf-app-"

// newNameTaken returns an error whose text clients compare literally.
func newNameTaken(name string) error {
	return apierrors.NewUnprocessableEntity("App with the name '" + name + "' already exists.")
}

// checkNameIsFree returns an error if the space already has an app with the name, even one that was created without
// this API. It may return nil for two concurrent requests. claimName then accepts only one of them. If the cache
// contains an app with the name, checkNameIsFree reads that app from the API server, because the app may have just been
// deleted.
func (s *Store) checkNameIsFree(ctx context.Context, caller *authorization.Caller, space, name string) error {
	found, err := s.FindAppByName(space, name)
	if err != nil || found == nil {
		return err
	}
	var live korifiv1alpha1.CFApp
	err = caller.Client.Get(ctx, client.ObjectKeyFromObject(found), &live)
	switch {
	case k8serrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case live.UID != found.UID || live.Spec.DisplayName != name:
		return nil
	}
	return newNameTaken(name)
}

// claimName reserves an app's name in its space, across all replicas. The app becomes the holder of the name's Lease,
// which is deleted with the app. If several apps have the same name, only one becomes the holder, and the others must
// not use the name. claimName tries again if another request changes the Lease at the same time, or if Kubernetes'
// garbage collector deletes the Lease of a deleted app.
func (s *Store) claimName(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) error {
	hasLeaseChanged := func(err error) bool { return k8serrors.IsConflict(err) || k8serrors.IsNotFound(err) }
	return retry.OnError(retry.DefaultBackoff, hasLeaseChanged, func() error { return s.tryClaimName(ctx, caller, app) })
}

func (s *Store) tryClaimName(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp) error {
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
	// The update contains the Lease's resource version, so only one of two apps that reserve an abandoned name at the
	// same time succeeds. The API server reports the update of a deleted object as a conflict, too.
	return caller.Client.Update(ctx, lease)
}

// holderHasName reports whether the app that holds the Lease exists and still has the name.
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

// RenameApp changes an app's display name. If another app reserves the name at the same time, it restores the previous
// name.
func (s *Store) RenameApp(ctx context.Context, caller *authorization.Caller, app *korifiv1alpha1.CFApp, name string) (*korifiv1alpha1.CFApp, error) {
	if err := s.checkNameIsFree(ctx, caller, app.Namespace, name); err != nil {
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

// hashName returns a hash of a name that is valid in labels and object names.
func hashName(name string) string {
	sum := sha256.Sum224([]byte(name))
	return hex.EncodeToString(sum[:])
}
