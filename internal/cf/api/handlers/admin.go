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
func createOrg(ctx context.Context, c *Call) (Answer, error) {
	var body payloads.Place
	if err := payloads.Decode(c.Request.Body, &body); err != nil {
		return Answer{}, err
	}
	all, err := c.Store.Orgs(ctx, c.Caller)
	if err != nil {
		return Answer{}, err
	}
	switch {
	case body.Name == "":
		return Answer{}, apierrors.Unprocessable("expected a name of the organization, found none; name it")
	case slices.ContainsFunc(all, func(p repositories.Place) bool { return p.Name == body.Name }):
		return Answer{}, apierrors.Unprocessable("Organization '" + body.Name + "' already exists.")
	}
	made, err := c.Store.CreateOrg(ctx, c.Caller, body.Name)
	if err != nil {
		return Answer{}, err
	}
	if err := c.there(ctx, made); err != nil {
		return Answer{}, err
	}
	return created(c.org(made))
}

// createSpace answers when the space has its namespace.
func createSpace(ctx context.Context, c *Call) (Answer, error) {
	var body payloads.Place
	if err := payloads.Decode(c.Request.Body, &body); err != nil {
		return Answer{}, err
	}
	in, err := c.orgOf(ctx, body.Relationships.Organization.Data.GUID)
	if err != nil {
		return Answer{}, apierrors.Unprocessable("Invalid organization. Ensure the organization exists and you have access to it.")
	}
	all, err := c.Store.Spaces(ctx, c.Caller)
	if err != nil {
		return Answer{}, err
	}
	switch {
	case body.Name == "":
		return Answer{}, apierrors.Unprocessable("expected a name of the space, found none; name it")
	case slices.ContainsFunc(all, func(p repositories.Place) bool { return p.Name == body.Name && p.Org == in.GUID }):
		return Answer{}, apierrors.Unprocessable("Name must be unique per organization")
	}
	made, err := c.Store.CreateSpace(ctx, c.Caller, in.GUID, body.Name)
	if err != nil {
		return Answer{}, err
	}
	if err := c.there(ctx, made); err != nil {
		return Answer{}, err
	}
	return created(c.space(made))
}

func (c *Call) there(ctx context.Context, p repositories.Place) error {
	ctx, cancel := held(ctx, hold)
	defer cancel()
	return c.Store.There(ctx, p.GUID)
}

func deleteOrg(ctx context.Context, c *Call) (Answer, error) {
	p, err := c.orgOf(ctx, c.guid())
	if err != nil {
		return Answer{}, err
	}
	if err := c.Store.DeleteOrg(ctx, c.Caller, p.GUID); err != nil {
		return Answer{}, err
	}
	return c.accepted(deleteOrgJob + p.GUID)
}

func deleteSpace(ctx context.Context, c *Call) (Answer, error) {
	p, err := c.spaceOf(ctx, c.guid())
	if err != nil {
		return Answer{}, err
	}
	if err := c.Store.DeleteSpace(ctx, c.Caller, p); err != nil {
		return Answer{}, err
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
func createRole(ctx context.Context, c *Call) (Answer, error) {
	var body payloads.Role
	if err := payloads.Decode(c.Request.Body, &body); err != nil {
		return Answer{}, err
	}
	role, ok := rolesOf()[body.Type]
	if !ok {
		return Answer{}, apierrors.Unprocessable("expected a type such as space_developer, found " + body.Type + "; see which there are in docs/cf.md")
	}
	user := body.Relationships.User.Data.Username + body.Relationships.User.Data.GUID
	if user == "" {
		return Answer{}, apierrors.Unprocessable("expected the name of a user of Kubernetes as username, found none; name one")
	}
	in, err := c.placeFor(ctx, body)
	if err != nil {
		return Answer{}, err
	}
	name, had, err := c.Store.Bind(ctx, c.Caller, in.GUID, role, user)
	switch {
	case err != nil:
		return Answer{}, err
	case had:
		return Answer{}, apierrors.Unprocessable("User '" + user + "' already has '" + body.Type + "' role in '" + in.Name + "'.")
	}
	return created(presenter.RoleOf(c.Base, presenter.Given{GUID: in.GUID + "." + name, Type: body.Type, User: user, Org: in.Org, Place: in.GUID}, c.Clock.Now()))
}

func (c *Call) placeFor(ctx context.Context, body payloads.Role) (repositories.Place, error) {
	if strings.HasPrefix(body.Type, "space_") {
		return c.spaceOf(ctx, body.Relationships.Space.Data.GUID)
	}
	return c.orgOf(ctx, body.Relationships.Organization.Data.GUID)
}
