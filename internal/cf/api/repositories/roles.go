// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/google/uuid"
	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// What callers call orgs and spaces.
const (
	OrgResourceType   = "Organization"
	SpaceResourceType = "Space"
)

// CreateOrg makes an org as the caller, in the namespace for orgs.
func (s *Store) CreateOrg(ctx context.Context, caller *authorization.Caller, name string) (OrgOrSpace, error) {
	o := &korifiv1alpha1.CFOrg{ObjectMeta: metav1.ObjectMeta{Namespace: s.rootNamespace, Name: "cf-org-" + uuid.NewString()}, Spec: korifiv1alpha1.CFOrgSpec{DisplayName: name}}
	if err := caller.Client.Create(ctx, o); err != nil {
		return OrgOrSpace{}, apierrors.FromError(err, OrgResourceType)
	}
	s.WaitForCache(ctx, o)
	return OrgOrSpace{GUID: o.Name, Name: name, Created: o.CreationTimestamp.Time}, nil
}

// CreateSpace makes a space of an org as the caller.
func (s *Store) CreateSpace(ctx context.Context, caller *authorization.Caller, org, name string) (OrgOrSpace, error) {
	o := &korifiv1alpha1.CFSpace{ObjectMeta: metav1.ObjectMeta{Namespace: org, Name: "cf-space-" + uuid.NewString()}, Spec: korifiv1alpha1.CFSpaceSpec{DisplayName: name}}
	if err := caller.Client.Create(ctx, o); err != nil {
		return OrgOrSpace{}, apierrors.FromError(err, SpaceResourceType)
	}
	s.WaitForCache(ctx, o)
	return OrgOrSpace{GUID: o.Name, Name: name, Org: org, Created: o.CreationTimestamp.Time}, nil
}

// DeleteOrg deletes an org, and DeleteSpace a space, with all that is in it.
func (s *Store) DeleteOrg(ctx context.Context, caller *authorization.Caller, guid string) error {
	o := &korifiv1alpha1.CFOrg{ObjectMeta: metav1.ObjectMeta{Namespace: s.rootNamespace, Name: guid}}
	if err := caller.Client.Delete(ctx, o); err != nil {
		return apierrors.FromError(err, OrgResourceType)
	}
	return nil
}

// DeleteSpace: see DeleteOrg.
func (s *Store) DeleteSpace(ctx context.Context, caller *authorization.Caller, p OrgOrSpace) error {
	o := &korifiv1alpha1.CFSpace{ObjectMeta: metav1.ObjectMeta{Namespace: p.Org, Name: p.GUID}}
	if err := caller.Client.Delete(ctx, o); err != nil {
		return apierrors.FromError(err, SpaceResourceType)
	}
	return nil
}

// CreateRoleBinding gives a user a ClusterRole in a namespace, as the caller, and returns the name of the binding. had says that the
// user had it already.
func (s *Store) CreateRoleBinding(ctx context.Context, caller *authorization.Caller, namespace, role, user string) (name string, had bool, err error) {
	sum := sha256.Sum224([]byte(role + "/" + user))
	name = "cf-" + hex.EncodeToString(sum[:])
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{rbacSubjectFor(user)},
	}
	err = caller.Client.Create(ctx, binding)
	if k8serrors.IsAlreadyExists(err) {
		return name, true, nil
	}
	if err != nil {
		return "", false, apierrors.FromError(err, "Role")
	}
	return name, false, nil
}

// rbacSubjectFor is a user by name; service accounts have names that say so.
func rbacSubjectFor(user string) rbacv1.Subject {
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, name, _ := strings.Cut(account, ":")
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}
}

// WaitForNamespace waits until a place has its namespace, so that the caller's next request can use it.
func (s *Store) WaitForNamespace(ctx context.Context, guid string) error {
	return s.WaitFor(ctx, guid, func() (bool, error) {
		orgs, spaces, err := s.listOrgsAndSpaces(ctx)
		for _, p := range append(orgs, spaces...) {
			if p.GUID == guid {
				return true, err
			}
		}
		return false, err
	})
}
