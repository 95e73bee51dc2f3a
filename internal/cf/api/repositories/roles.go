// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"context"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// CreateRoleBinding gives a user a ClusterRole in a namespace, as the caller, and returns the name of the binding. existed
// reports that the user had the role already.
func (s *Store) CreateRoleBinding(ctx context.Context, caller *authorization.Caller, namespace, role, user string) (name string, existed bool, err error) {
	// The name follows from role and user, so that the API server finds out when a role is given twice.
	name = "cf-" + hashName(role+"/"+user)
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

// rbacSubjectFor returns the subject with a user name: a service account if the name is one, otherwise a user.
func rbacSubjectFor(user string) rbacv1.Subject {
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, name, _ := strings.Cut(account, ":")
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}
}
