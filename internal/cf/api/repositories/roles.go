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

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

// RoleAssignment is a role that a user has in an org or a space.
type RoleAssignment struct {
	GUID, Type, User string
	In               OrgOrSpace
	Created          time.Time
}

// CreateRoleBinding gives a user a ClusterRole in an org or a space, as the caller. existed is true if the user already
// had the role.
func (s *Store) CreateRoleBinding(ctx context.Context, caller *authorization.Caller, assignment RoleAssignment, role string) (made RoleAssignment, existed bool, err error) {
	// The name is derived from the CF role and the user, so the API server rejects a duplicate.
	name := "cf-" + hashName(assignment.Type+"/"+assignment.User)
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: assignment.In.GUID, Name: name, Annotations: map[string]string{torporv1alpha1.CFRoleAnnotation: assignment.Type}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{rbacSubjectFor(assignment.User)},
	}
	err = caller.Client.Create(ctx, binding)
	if k8serrors.IsAlreadyExists(err) {
		return assignment, true, nil
	}
	if err != nil {
		return assignment, false, apierrors.FromError(err, RoleResourceType)
	}
	// Denials that are cached for this user are now outdated.
	caller.ForgetAnswers()
	assignment.GUID, assignment.Created = roleGUID(binding), binding.CreationTimestamp.Time
	return assignment, false, nil
}

// roleTypeOf returns the CF role type of a RoleBinding, or "" if it has none. For a RoleBinding created without this
// API, it returns the default CF role type of its ClusterRole.
func roleTypeOf(b *rbacv1.RoleBinding) string {
	first := map[string]string{"torpor-org-user": "organization_user", "torpor-space-developer": "space_developer", "torpor-space-auditor": "space_auditor"}[b.RoleRef.Name]
	if first == "" {
		return ""
	}
	return cmp.Or(b.Annotations[torporv1alpha1.CFRoleAnnotation], first)
}

// ListRoles returns the users' roles in an org or a space, read as the caller.
func (s *Store) ListRoles(ctx context.Context, caller *authorization.Caller, in OrgOrSpace) ([]RoleAssignment, error) {
	return listRoles(ctx, caller, []OrgOrSpace{in}, client.InNamespace(in.GUID))
}

// ListAllRoles returns the users' roles in the given orgs and spaces. It sends one request, which needs rights in the
// whole cluster.
func (s *Store) ListAllRoles(ctx context.Context, caller *authorization.Caller, in []OrgOrSpace) ([]RoleAssignment, error) {
	return listRoles(ctx, caller, in)
}

func listRoles(ctx context.Context, caller *authorization.Caller, in []OrgOrSpace, options ...client.ListOption) ([]RoleAssignment, error) {
	var bindings rbacv1.RoleBindingList
	if err := caller.Client.List(ctx, &bindings, options...); err != nil {
		return nil, apierrors.FromError(err, RoleResourceType)
	}
	byGUID := map[string]OrgOrSpace{}
	for _, one := range in {
		byGUID[one.GUID] = one
	}
	var all []RoleAssignment
	for i := range bindings.Items {
		if one, ok := byGUID[bindings.Items[i].Namespace]; ok {
			all = append(all, rolesOf(&bindings.Items[i], one)...)
		}
	}
	return all, nil
}

// rolesOf returns the role of each user in a binding.
func rolesOf(b *rbacv1.RoleBinding, in OrgOrSpace) []RoleAssignment {
	var all []RoleAssignment
	for _, subject := range b.Subjects {
		if role, user := roleTypeOf(b), userOf(subject); role != "" && user != "" {
			all = append(all, RoleAssignment{GUID: roleGUID(b), Type: role, User: user, In: in, Created: b.CreationTimestamp.Time})
		}
	}
	return all
}

// IsRoleIn reports whether a role's GUID refers to the org or space.
func IsRoleIn(guid string, in OrgOrSpace) bool {
	namespace, _, _ := strings.Cut(guid, roleSeparator)
	return namespace == in.GUID
}

// GetRole returns a role in an org or a space, read as the caller.
func (s *Store) GetRole(ctx context.Context, caller *authorization.Caller, in OrgOrSpace, guid string) (RoleAssignment, error) {
	_, name, _ := strings.Cut(guid, roleSeparator)
	var binding rbacv1.RoleBinding
	if err := caller.Client.Get(ctx, client.ObjectKey{Namespace: in.GUID, Name: name}, &binding); err != nil {
		return RoleAssignment{}, apierrors.ForbiddenAsNotFound(err, RoleResourceType)
	}
	all := rolesOf(&binding, in)
	if len(all) == 0 {
		return RoleAssignment{}, apierrors.NewNotFound(RoleResourceType)
	}
	return all[0], nil
}

// DeleteRole deletes a role, as the caller. It rejects a binding with several users.
func (s *Store) DeleteRole(ctx context.Context, caller *authorization.Caller, guid string) error {
	namespace, name, isRole := strings.Cut(guid, roleSeparator)
	if !isRole {
		return apierrors.NewNotFound(RoleResourceType)
	}
	var binding rbacv1.RoleBinding
	if err := caller.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &binding); err != nil {
		return apierrors.ForbiddenAsNotFound(err, RoleResourceType)
	}
	switch {
	case roleTypeOf(&binding) == "":
		return apierrors.NewNotFound(RoleResourceType)
	case len(binding.Subjects) > 1:
		return apierrors.NewUnprocessableEntity("expected a RoleBinding of one user, found one of several; change " + name + " in " + namespace + " with kubectl")
	}
	if err := caller.Client.Delete(ctx, &binding); err != nil {
		return apierrors.FromError(err, RoleResourceType)
	}
	caller.ForgetAnswers()
	return nil
}

// roleSeparator separates the namespace and the name of a RoleBinding in a GUID. A namespace cannot contain it.
const roleSeparator = "."

func roleGUID(b *rbacv1.RoleBinding) string { return b.Namespace + roleSeparator + b.Name }

// userOf returns the user name of a subject, or "" if the subject is a group.
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

// rbacSubjectFor returns the subject for a user name, which may be the name of a service account.
func rbacSubjectFor(user string) rbacv1.Subject {
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, name, _ := strings.Cut(account, ":")
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}
	}
	return rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}
}
