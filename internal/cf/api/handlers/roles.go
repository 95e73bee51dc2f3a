// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

// clusterRoles maps each CF role type to its ClusterRole.
func clusterRoles() map[string]string {
	return map[string]string{
		"organization_user": "torpor-org-user", "organization_manager": "torpor-org-user", "organization_auditor": "torpor-org-user",
		"space_developer": "torpor-space-developer", "space_manager": "torpor-space-auditor", "space_auditor": "torpor-space-auditor",
	}
}

// createRole gives a user a role. Kubernetes rejects the request unless the caller may bind the ClusterRole.
func createRole(ctx context.Context, r *Request, body payloads.RoleCreate) (Response, error) {
	role, known := clusterRoles()[body.Type]
	if !known {
		return Response{}, apierrors.NewUnprocessableEntity("expected a type such as space_developer, found " + body.Type + "; see docs/cf.md for the types")
	}
	user := cmp.Or(body.Relationships.User.Data.Username, body.Relationships.User.Data.GUID)
	if user == "" {
		return Response{}, apierrors.NewUnprocessableEntity("expected the name of a Kubernetes user as username, found none; set the username")
	}
	in, err := r.getOrgOrSpaceOfRole(ctx, body)
	if err != nil {
		return Response{}, err
	}
	made, existed, err := r.Store.CreateRoleBinding(ctx, r.Caller, repositories.RoleAssignment{Type: body.Type, User: user, In: in}, role)
	if existed {
		err = apierrors.NewUnprocessableEntity("User '" + user + "' already has '" + body.Type + "' role in '" + in.Name + "'.")
	}
	return presentCreated(r, presenter.ForRole, made, err)
}

// listRoles lists the roles in the orgs and spaces in the query. If requested, it includes the users. Without orgs and
// spaces, it lists all roles that the caller may list.
func listRoles(ctx context.Context, r *Request) (Response, error) {
	all, err := r.rolesOfQuery(ctx)
	if err != nil {
		return Response{}, err
	}
	response, err := respondList(r, resourceList[repositories.RoleAssignment]{
		items: all, filters: map[string]func(repositories.RoleAssignment) string{
			"types":      func(a repositories.RoleAssignment) string { return a.Type },
			"user_guids": func(a repositories.RoleAssignment) string { return a.User },
			"guids":      func(a repositories.RoleAssignment) string { return a.GUID },
		}, reversed: r.isReversed(),
	}, func(a repositories.RoleAssignment) presenter.RoleResponse { return presenter.ForRole(r.Base, a) })
	page, ok := response.Body.(presenter.ListResponse[presenter.RoleResponse])
	if !ok || !strings.Contains(r.query().Get("include"), "user") {
		return response, err
	}
	users := []presenter.UserResponse{}
	for _, role := range page.Resources {
		user := presenter.ForUser(role.Relationships["user"].Data.GUID)
		if !slices.Contains(users, user) {
			users = append(users, user)
		}
	}
	page.Included = map[string]any{"users": users}
	response.Body = page
	return response, err
}

// maxRoleLists limits the number of orgs and spaces whose roles one request lists separately.
const maxRoleLists = 200

// rolesOfQuery returns the roles in the orgs and spaces that the query selects and the caller can see. If the query
// names none and the caller may list RoleBindings in the whole cluster, it sends one list request. Otherwise, it sends
// one per org and space.
func (r *Request) rolesOfQuery(ctx context.Context) ([]repositories.RoleAssignment, error) {
	spaceGUIDs, orgGUIDs := payloads.ParseFilter(r.query(), "space_guids"), payloads.ParseFilter(r.query(), "organization_guids")
	isEvery := spaceGUIDs == nil && orgGUIDs == nil
	spaces, err := r.Store.ListSpaces(ctx, r.Caller, func(one repositories.OrgOrSpace) bool {
		return isEvery || spaceGUIDs != nil && spaceGUIDs.Matches(one.GUID)
	})
	if err != nil {
		return nil, err
	}
	orgs, err := r.Store.ListOrgs(ctx, r.Caller, func(one repositories.OrgOrSpace) bool {
		return isEvery || orgGUIDs != nil && orgGUIDs.Matches(one.GUID)
	})
	if err != nil {
		return nil, err
	}
	in := append(spaces, orgs...)
	if isEvery {
		return r.everyRole(ctx, in)
	}
	return r.rolesIn(ctx, in)
}

// everyRole returns the roles in the given orgs and spaces. It skips orgs and spaces in which the caller may not list
// roles.
func (r *Request) everyRole(ctx context.Context, in []repositories.OrgOrSpace) ([]repositories.RoleAssignment, error) {
	guids := make([]string, len(in))
	for i, one := range in {
		guids[i] = one.GUID
	}
	lists := authorization.Permission{Verb: "list", Group: rbacv1.GroupName, Resource: "rolebindings"}
	everywhere, err := r.Caller.May(ctx, lists)
	if err != nil {
		return nil, err
	}
	if everywhere {
		return r.Store.ListAllRoles(ctx, r.Caller, in)
	}
	allowed, err := r.Caller.AllowedNamespaces(ctx, guids, lists)
	if err != nil {
		return nil, err
	}
	return r.rolesIn(ctx, slices.DeleteFunc(in, func(one repositories.OrgOrSpace) bool { return !allowed[one.GUID] }))
}

func (r *Request) rolesIn(ctx context.Context, in []repositories.OrgOrSpace) ([]repositories.RoleAssignment, error) {
	if len(in) > maxRoleLists {
		return nil, apierrors.NewUnprocessableEntity(fmt.Sprintf("expected at most %d orgs and spaces, found %d; set fewer in space_guids or organization_guids", maxRoleLists, len(in)))
	}
	var all []repositories.RoleAssignment
	for _, one := range in {
		found, err := r.Store.ListRoles(ctx, r.Caller, one)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// getRole returns a role in an org or space that is visible to the caller.
func getRole(ctx context.Context, r *Request) (Response, error) {
	orgs, err := r.Store.ListOrgs(ctx, r.Caller, func(one repositories.OrgOrSpace) bool { return repositories.IsRoleIn(r.guid(), one) })
	if err != nil {
		return Response{}, err
	}
	spaces, err := r.Store.ListSpaces(ctx, r.Caller, func(one repositories.OrgOrSpace) bool { return repositories.IsRoleIn(r.guid(), one) })
	if err != nil {
		return Response{}, err
	}
	for _, in := range append(orgs, spaces...) {
		found, err := r.Store.GetRole(ctx, r.Caller, in, r.guid())
		return present(r, presenter.ForRole, found, err)
	}
	return Response{}, apierrors.NewNotFound(repositories.RoleResourceType)
}

func deleteRole(ctx context.Context, r *Request) (Response, error) {
	return r.accepted(deleteRoleJob+r.guid(), r.Store.DeleteRole(ctx, r.Caller, r.guid()))
}

// listUsers returns a user for each name in the query, because Kubernetes does not store users.
func listUsers(_ context.Context, r *Request) (Response, error) {
	names := append(payloads.ParseFilter(r.query(), "usernames"), payloads.ParseFilter(r.query(), "guids")...)
	return respondList(r, resourceList[string]{items: names}, presenter.ForUser)
}

func (r *Request) getOrgOrSpaceOfRole(ctx context.Context, body payloads.RoleCreate) (repositories.OrgOrSpace, error) {
	if strings.HasPrefix(body.Type, "space_") {
		return r.getSpace(ctx, body.Relationships.Space.Data.GUID)
	}
	return r.getOrg(ctx, body.Relationships.Organization.Data.GUID)
}
