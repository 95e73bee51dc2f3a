// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"slices"
	"strings"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

// createOrg answers when the org has its namespace.
func createOrg(ctx context.Context, c *Request) (Response, error) {
	var body payloads.OrgOrSpaceCreate
	if err := payloads.DecodeJSON(c.HTTP.Body, &body); err != nil {
		return Response{}, err
	}
	all, err := c.Store.ListOrgs(ctx, c.Caller)
	if err != nil {
		return Response{}, err
	}
	switch {
	case body.Name == "":
		return Response{}, apierrors.NewUnprocessableEntity("expected a name of the organization, found none; name it")
	case slices.ContainsFunc(all, func(p repositories.OrgOrSpace) bool { return p.Name == body.Name }):
		return Response{}, apierrors.NewUnprocessableEntity("Organization '" + body.Name + "' already exists.")
	}
	made, err := c.Store.CreateOrg(ctx, c.Caller, body.Name)
	if err != nil {
		return Response{}, err
	}
	if err := c.there(ctx, made); err != nil {
		return Response{}, err
	}
	return created(c.org(made))
}

// createSpace answers when the space has its namespace.
func createSpace(ctx context.Context, c *Request) (Response, error) {
	var body payloads.OrgOrSpaceCreate
	if err := payloads.DecodeJSON(c.HTTP.Body, &body); err != nil {
		return Response{}, err
	}
	in, err := c.orgOf(ctx, body.Relationships.Organization.Data.GUID)
	if err != nil {
		return Response{}, apierrors.NewUnprocessableEntity("Invalid organization. Ensure the organization exists and you have access to it.")
	}
	all, err := c.Store.ListSpaces(ctx, c.Caller)
	if err != nil {
		return Response{}, err
	}
	switch {
	case body.Name == "":
		return Response{}, apierrors.NewUnprocessableEntity("expected a name of the space, found none; name it")
	case slices.ContainsFunc(all, func(p repositories.OrgOrSpace) bool { return p.Name == body.Name && p.Org == in.GUID }):
		return Response{}, apierrors.NewUnprocessableEntity("Name must be unique per organization")
	}
	made, err := c.Store.CreateSpace(ctx, c.Caller, in.GUID, body.Name)
	if err != nil {
		return Response{}, err
	}
	if err := c.there(ctx, made); err != nil {
		return Response{}, err
	}
	return created(c.space(made))
}

func (c *Request) there(ctx context.Context, p repositories.OrgOrSpace) error {
	ctx, cancel := withDeadline(ctx, maxHold)
	defer cancel()
	return c.Store.WaitForNamespace(ctx, p.GUID)
}

func deleteOrg(ctx context.Context, c *Request) (Response, error) {
	p, err := c.orgOf(ctx, c.guid())
	if err != nil {
		return Response{}, err
	}
	if err := c.Store.DeleteOrg(ctx, c.Caller, p.GUID); err != nil {
		return Response{}, err
	}
	return c.accepted(deleteOrgJob + p.GUID)
}

func deleteSpace(ctx context.Context, c *Request) (Response, error) {
	p, err := c.spaceOf(ctx, c.guid())
	if err != nil {
		return Response{}, err
	}
	if err := c.Store.DeleteSpace(ctx, c.Caller, p); err != nil {
		return Response{}, err
	}
	return c.accepted(deleteSpaceJob + p.GUID)
}

// rolesOf are the ClusterRoles that the roles of CF are, by their type.
func rolesOf() map[string]string {
	return map[string]string{
		"organization_user": "torpor-org-user", "organization_manager": "torpor-org-user", "organization_auditor": "torpor-org-user",
		"space_developer": "torpor-space-developer", "space_manager": "torpor-space-auditor", "space_auditor": "torpor-space-auditor",
	}
}

// createRole gives somebody a role, if the caller may.
func createRole(ctx context.Context, c *Request) (Response, error) {
	var body payloads.RoleCreate
	if err := payloads.DecodeJSON(c.HTTP.Body, &body); err != nil {
		return Response{}, err
	}
	role, ok := rolesOf()[body.Type]
	if !ok {
		return Response{}, apierrors.NewUnprocessableEntity("expected a type such as space_developer, found " + body.Type + "; see which there are in docs/cf.md")
	}
	user := body.Relationships.User.Data.Username + body.Relationships.User.Data.GUID
	if user == "" {
		return Response{}, apierrors.NewUnprocessableEntity("expected the name of a user of Kubernetes as username, found none; name one")
	}
	in, err := c.placeFor(ctx, body)
	if err != nil {
		return Response{}, err
	}
	name, had, err := c.Store.CreateRoleBinding(ctx, c.Caller, in.GUID, role, user)
	switch {
	case err != nil:
		return Response{}, err
	case had:
		return Response{}, apierrors.NewUnprocessableEntity("User '" + user + "' already has '" + body.Type + "' role in '" + in.Name + "'.")
	}
	return created(presenter.ForRole(c.Base, presenter.RoleAssignment{GUID: in.GUID + "." + name, Type: body.Type, User: user, Org: in.Org, OrgOrSpace: in.GUID}, c.Clock.Now()))
}

func (c *Request) placeFor(ctx context.Context, body payloads.RoleCreate) (repositories.OrgOrSpace, error) {
	if strings.HasPrefix(body.Type, "space_") {
		return c.spaceOf(ctx, body.Relationships.Space.Data.GUID)
	}
	return c.orgOf(ctx, body.Relationships.Organization.Data.GUID)
}
