// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

// clusterRoles returns the ClusterRoles that stand for the roles of CF, by their type.
func clusterRoles() map[string]string {
	return map[string]string{
		"organization_user": "torpor-org-user", "organization_manager": "torpor-org-user", "organization_auditor": "torpor-org-user",
		"space_developer": "torpor-space-developer", "space_manager": "torpor-space-auditor", "space_auditor": "torpor-space-auditor",
	}
}

// createRole gives a user a role. Kubernetes refuses it unless the caller may bind the ClusterRole.
func createRole(ctx context.Context, r *Request, body payloads.RoleCreate) (Response, error) {
	role, known := clusterRoles()[body.Type]
	if !known {
		return Response{}, apierrors.NewUnprocessableEntity("expected a type such as space_developer, found " + body.Type + "; see which there are in docs/cf.md")
	}
	user := cmp.Or(body.Relationships.User.Data.Username, body.Relationships.User.Data.GUID)
	if user == "" {
		return Response{}, apierrors.NewUnprocessableEntity("expected the name of a user of Kubernetes as username, found none; name one")
	}
	in, err := r.getOrgOrSpaceOfRole(ctx, body)
	if err != nil {
		return Response{}, err
	}
	name, existed, err := r.Store.CreateRoleBinding(ctx, r.Caller, in.GUID, role, user)
	switch {
	case err != nil:
		return Response{}, err
	case existed:
		return Response{}, apierrors.NewUnprocessableEntity("User '" + user + "' already has '" + body.Type + "' role in '" + in.Name + "'.")
	}
	assignment := presenter.RoleAssignment{GUID: in.GUID + "." + name, Type: body.Type, User: user, Org: in.Org, OrgOrSpace: in.GUID}
	return Response{Status: http.StatusCreated, Body: presenter.ForRole(r.Base, assignment, r.Clock.Now())}, nil
}

func (r *Request) getOrgOrSpaceOfRole(ctx context.Context, body payloads.RoleCreate) (repositories.OrgOrSpace, error) {
	if strings.HasPrefix(body.Type, "space_") {
		return r.getSpace(ctx, body.Relationships.Space.Data.GUID)
	}
	return r.getOrg(ctx, body.Relationships.Organization.Data.GUID)
}
