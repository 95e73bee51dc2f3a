// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"cmp"
	"context"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// roleTypeAnnotation is on a RoleBinding the role of CF that it was made for: several are one to Kubernetes.
const roleTypeAnnotation = "torpor.dev/cf-role"

// RoleAssignment is a role that a user has in an org or a space.
type RoleAssignment struct {
	GUID, Type, User string
	In               OrgOrSpace
	Created          time.Time
}

// CreateRoleBinding gives a user a ClusterRole in an org or a space, as the caller. existed reports that the user had the role already.
func (s *Store) CreateRoleBinding(ctx context.Context, caller *authorization.Caller, assignment RoleAssignment, role string) (made RoleAssignment, existed bool, err error) {
	// The name follows from role and user, so that the API server finds out when a role is given twice.
	name := "cf-" + hashName(role+"/"+assignment.User)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: assignment.In.GUID, Name: name, Annotations: map[string]string{roleTypeAnnotation: assignment.Type}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{rbacSubjectFor(assignment.User)},
	}
	err = caller.Client.Create(ctx, binding)
	if k8serrors.IsAlreadyExists(err) {
		return assignment, true, nil
	}
	if err != nil {
		return assignment, false, apierrors.FromError(err, RoleResourceType)
	}
	// What was refused to the user a moment ago is asked again.
	caller.ForgetAnswers()
	assignment.GUID, assignment.Created = roleGUID(binding), binding.CreationTimestamp.Time
	return assignment, false, nil
}

// ListRoles returns the roles of users in an org or a space, read as the caller. types are the roles of CF by the names of their
// ClusterRoles.
func (s *Store) ListRoles(ctx context.Context, caller *authorization.Caller, in OrgOrSpace, types map[string]string) ([]RoleAssignment, error) {
	var bindings rbacv1.RoleBindingList
	if err := caller.Client.List(ctx, &bindings, client.InNamespace(in.GUID)); err != nil {
		return nil, apierrors.FromError(err, RoleResourceType)
	}
	var all []RoleAssignment
	for i := range bindings.Items {
		b := &bindings.Items[i]
		kind := types[b.RoleRef.Name]
		if kind == "" {
			continue
		}
		for _, subject := range b.Subjects {
			if user := userOf(subject); user != "" {
				all = append(all, RoleAssignment{
					GUID: roleGUID(b), Type: cmp.Or(b.Annotations[roleTypeAnnotation], kind), User: user, In: in, Created: b.CreationTimestamp.Time,
				})
			}
		}
	}
	return all, nil
}

// DeleteRole takes a role away, as the caller. One that several users have by one binding is not for this API to split.
func (s *Store) DeleteRole(ctx context.Context, caller *authorization.Caller, guid string) error {
	namespace, name, _ := strings.Cut(guid, roleSeparator)
	var binding rbacv1.RoleBinding
	if err := caller.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &binding); err != nil {
		return apierrors.ForbiddenAsNotFound(err, RoleResourceType)
	}
	if len(binding.Subjects) > 1 {
		return apierrors.NewUnprocessableEntity("expected a RoleBinding of one user, found one of several; change " + name + " in " + namespace + " with kubectl")
	}
	if err := caller.Client.Delete(ctx, &binding); err != nil {
		return apierrors.FromError(err, RoleResourceType)
	}
	caller.ForgetAnswers()
	return nil
}

// roleSeparator is between the namespace and the name of a binding; neither of a namespace nor of a GUID is it a part.
const roleSeparator = "."

func roleGUID(b *rbacv1.RoleBinding) string { return b.Namespace + roleSeparator + b.Name }

// userOf returns the user name of a subject; empty for a group.
func userOf(subject rbacv1.Subject) string {
	switch subject.Kind {
	case rbacv1.UserKind:
		return subject.Name
	case rbacv1.ServiceAccountKind:
		return "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
	default:
		return ""
	}
}

// rbacSubjectFor returns the subject with a user name: a service account if the name is one, otherwise a user.
func rbacSubjectFor(user string) rbacv1.Subject {
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, name, _ := strings.Cut(account, ":")
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}
}
