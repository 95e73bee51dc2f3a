// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

func listOrgs(ctx context.Context, r *Request) (Response, error) {
	orgs, err := r.Store.ListOrgs(ctx, r.Caller, r.wantsOrgOrSpace())
	if err != nil {
		return Response{}, err
	}
	response, err := respondList(r, orgOrSpaceList(orgs), func(org repositories.OrgOrSpace) presenter.OrgOrSpaceResponse { return presenter.ForOrg(r.Base, org) })
	if err != nil {
		return Response{}, err
	}
	response.Warnings = r.warnOfCertificate()
	if len(orgs) == 0 {
		without, err := r.warnWithoutRoles(ctx)
		if err != nil {
			return Response{}, err
		}
		response.Warnings = append(response.Warnings, without...)
	}
	return response, nil
}

// recommendedValidity is the longest recommended remaining validity of a client certificate, as in Korifi.
const recommendedValidity = 7 * 24 * time.Hour

// warnOfCertificate returns a warning for a client certificate that remains valid for too long, because Kubernetes
// cannot revoke certificates. The client lists orgs at each login and prints the warnings of the list.
func (r *Request) warnOfCertificate() []string {
	expires := r.Caller.CertificateExpires
	if expires.IsZero() || expires.Sub(r.Clock.Now()) <= recommendedValidity {
		return nil
	}
	return []string{"Warning: The client certificate you provided for user authentication expires at " + presenter.FormatTime(expires) +
		", which exceeds the recommended validity duration of " + recommendedValidity.String() +
		". Ask your platform provider to issue you a short-lived certificate credential or to configure your authentication to generate short-lived credentials automatically."}
}

// warnWithoutRoles returns a warning for a caller who can see no org, because an empty list does not show that a role
// is missing.
func (r *Request) warnWithoutRoles(ctx context.Context) ([]string, error) {
	orgs, err := r.Store.ListOrgs(ctx, r.Caller, func(repositories.OrgOrSpace) bool { return true })
	if err != nil || len(orgs) > 0 {
		return nil, err
	}
	return []string{"Warning: the user '" + r.Caller.Name + "' has no CF roles assigned. Ask an administrator for a role in an org or a space."}, nil
}

func listSpaces(ctx context.Context, r *Request) (Response, error) {
	spaces, err := r.Store.ListSpaces(ctx, r.Caller, r.wantsOrgOrSpace())
	if err != nil {
		return Response{}, err
	}
	return respondList(r, orgOrSpaceList(spaces), func(space repositories.OrgOrSpace) presenter.OrgOrSpaceResponse {
		return presenter.ForSpace(r.Base, space)
	})
}

// wantsOrgOrSpace returns a filter for the query parameters names, guids and organization_guids.
func (r *Request) wantsOrgOrSpace() func(repositories.OrgOrSpace) bool {
	q := r.query()
	names, guids, orgs := payloads.ParseFilter(q, "names"), payloads.ParseFilter(q, "guids"), payloads.ParseFilter(q, "organization_guids")
	return func(one repositories.OrgOrSpace) bool {
		return names.Matches(one.Name) && guids.Matches(one.GUID) && (one.Org == "" || orgs.Matches(one.Org))
	}
}

// orgOrSpaceList returns a list that is always ordered by name; order_by is ignored.
func orgOrSpaceList(items []repositories.OrgOrSpace) resourceList[repositories.OrgOrSpace] {
	return resourceList[repositories.OrgOrSpace]{
		items:    items,
		labelsOf: func(one repositories.OrgOrSpace) map[string]string { return payloads.OwnKeys(one.Labels) },
		compare: func(a, b repositories.OrgOrSpace) int {
			return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.GUID, b.GUID))
		},
	}
}

func getOrg(ctx context.Context, r *Request) (Response, error) {
	org, err := r.getOrg(ctx, r.guid())
	return present(r, presenter.ForOrg, org, err)
}

func getSpace(ctx context.Context, r *Request) (Response, error) {
	space, err := r.getSpace(ctx, r.guid())
	return present(r, presenter.ForSpace, space, err)
}

func getOrgQuota(_ context.Context, r *Request) (Response, error) {
	if r.guid() != presenter.OrgQuotaGUID {
		return Response{}, apierrors.NewNotFound("Organization quota")
	}
	return ok(presenter.ForOrgQuota(r.Base))
}

// getNoRelationship returns an empty relationship for parts of CF that Torpor does not implement.
func getNoRelationship(context.Context, *Request) (Response, error) {
	return ok(presenter.RelationshipTo(""))
}

// getOrg returns the org with a GUID, if it is visible to the caller.
func (r *Request) getOrg(ctx context.Context, guid string) (repositories.OrgOrSpace, error) {
	orgs, err := r.Store.ListOrgs(ctx, r.Caller, hasGUID(guid))
	return findByGUID(orgs, err, guid, repositories.OrgResourceType)
}

// getSpace returns the space with a GUID, if it is visible to the caller.
func (r *Request) getSpace(ctx context.Context, guid string) (repositories.OrgOrSpace, error) {
	spaces, err := r.Store.ListSpaces(ctx, r.Caller, hasGUID(guid))
	return findByGUID(spaces, err, guid, repositories.SpaceResourceType)
}

func hasGUID(guid string) func(repositories.OrgOrSpace) bool {
	return func(one repositories.OrgOrSpace) bool { return one.GUID == guid }
}

func findByGUID(all []repositories.OrgOrSpace, err error, guid, resourceType string) (repositories.OrgOrSpace, error) {
	if err != nil {
		return repositories.OrgOrSpace{}, err
	}
	i := slices.IndexFunc(all, func(one repositories.OrgOrSpace) bool { return one.GUID == guid })
	if i < 0 {
		return repositories.OrgOrSpace{}, apierrors.NewNotFound(resourceType)
	}
	return all[i], nil
}

// requireSpace returns an error unless the space is visible to the caller.
func (r *Request) requireSpace(ctx context.Context, guid string) error {
	_, err := r.getSpace(ctx, guid)
	if err != nil && ignoreNotFound(err) == nil {
		return apierrors.NewUnprocessableEntity("Invalid space. Ensure that the space exists and you have access to it.")
	}
	return err
}

// visibleSpaces returns the GUIDs of the spaces that are visible to the caller and selected by space_guids and
// organization_guids.
func (r *Request) visibleSpaces(ctx context.Context) ([]string, error) {
	wanted, orgs := payloads.ParseFilter(r.query(), "space_guids"), payloads.ParseFilter(r.query(), "organization_guids")
	spaces, err := r.Store.ListSpaces(ctx, r.Caller, func(space repositories.OrgOrSpace) bool {
		return wanted.Matches(space.GUID) && orgs.Matches(space.Org)
	})
	if err != nil {
		return nil, err
	}
	guids := make([]string, len(spaces))
	for i, space := range spaces {
		guids[i] = space.GUID
	}
	return guids, nil
}

// createOrg creates an org, and responds once the org has its namespace.
func createOrg(ctx context.Context, r *Request, body payloads.OrgOrSpaceBody) (Response, error) {
	orgs, err := r.Store.ListOrgs(ctx, r.Caller, hasName(body.Name, ""))
	if err != nil {
		return Response{}, err
	}
	switch {
	case body.Name == "":
		return Response{}, apierrors.NewUnprocessableEntity("expected a name for the organization, found none; set name")
	case len(orgs) > 0:
		return Response{}, apierrors.NewUnprocessableEntity("Organization '" + body.Name + "' already exists.")
	}
	org, err := r.Store.CreateOrg(ctx, r.Caller, body.Name)
	if err == nil {
		err = r.waitForNamespace(ctx, org)
	}
	return presentCreated(r, presenter.ForOrg, org, err)
}

// createSpace creates a space, and responds once the space has its namespace.
func createSpace(ctx context.Context, r *Request, body payloads.OrgOrSpaceBody) (Response, error) {
	org, err := r.getOrg(ctx, body.Relationships.Organization.Data.GUID)
	if err != nil {
		return Response{}, apierrors.NewUnprocessableEntity("Invalid organization. Ensure the organization exists and you have access to it.")
	}
	spaces, err := r.Store.ListSpaces(ctx, r.Caller, hasName(body.Name, org.GUID))
	if err != nil {
		return Response{}, err
	}
	switch {
	case body.Name == "":
		return Response{}, apierrors.NewUnprocessableEntity("expected a name for the space, found none; set name")
	case len(spaces) > 0:
		return Response{}, apierrors.NewUnprocessableEntity("Name must be unique per organization")
	}
	space, err := r.Store.CreateSpace(ctx, r.Caller, org.GUID, body.Name)
	if err == nil {
		err = r.waitForNamespace(ctx, space)
	}
	return presentCreated(r, presenter.ForSpace, space, err)
}

func hasName(name, org string) func(repositories.OrgOrSpace) bool {
	return func(one repositories.OrgOrSpace) bool { return one.Name == name && one.Org == org }
}

func updateOrg(ctx context.Context, r *Request, body payloads.OrgOrSpaceBody) (Response, error) {
	org, err := r.getOrg(ctx, r.guid())
	if err != nil {
		return Response{}, err
	}
	others, err := r.Store.ListOrgs(ctx, r.Caller, hasName(body.Name, ""))
	if err != nil {
		return Response{}, err
	}
	if body.Name != org.Name && len(others) > 0 {
		return Response{}, apierrors.NewUnprocessableEntity("Organization name '" + body.Name + "' is already taken.")
	}
	if err := r.updateOrgOrSpace(ctx, org, body); err != nil {
		return Response{}, err
	}
	return getOrg(ctx, r)
}

func updateSpace(ctx context.Context, r *Request, body payloads.OrgOrSpaceBody) (Response, error) {
	space, err := r.getSpace(ctx, r.guid())
	if err != nil {
		return Response{}, err
	}
	others, err := r.Store.ListSpaces(ctx, r.Caller, hasName(body.Name, space.Org))
	if err != nil {
		return Response{}, err
	}
	if body.Name != space.Name && len(others) > 0 {
		return Response{}, apierrors.NewUnprocessableEntity("Name must be unique per organization")
	}
	if err := r.updateOrgOrSpace(ctx, space, body); err != nil {
		return Response{}, err
	}
	return getSpace(ctx, r)
}

func (r *Request) updateOrgOrSpace(ctx context.Context, one repositories.OrgOrSpace, body payloads.OrgOrSpaceBody) error {
	if err := body.Metadata.Validate(); err != nil {
		return err
	}
	if body.Name == "" && body.Metadata.IsEmpty() {
		return nil
	}
	return r.Store.UpdateOrgOrSpace(ctx, r.Caller, one, body.Name, body.Metadata)
}

// waitForNamespace returns an error if a new org or space does not get its namespace in time. Otherwise the client
// would use the org or space too early.
func (r *Request) waitForNamespace(ctx context.Context, made repositories.OrgOrSpace) error {
	ctx, cancel := context.WithTimeout(ctx, maxHold)
	defer cancel()
	isThere, err := r.Store.WaitForNamespace(ctx, made.GUID)
	if err == nil && !isThere {
		return apierrors.NewServiceUnavailable("'"+made.Name+"' was created, but has no namespace yet; check that the namespace exists before you use it, and if it stays missing, ask the platform team whether torpor manager is running", nil)
	}
	return err
}

func deleteOrg(ctx context.Context, r *Request) (Response, error) {
	org, err := r.getOrg(ctx, r.guid())
	if err != nil {
		return Response{}, err
	}
	return r.accepted(deleteOrgJob+org.GUID, r.Store.DeleteOrg(ctx, r.Caller, org.GUID))
}

func deleteSpace(ctx context.Context, r *Request) (Response, error) {
	space, err := r.getSpace(ctx, r.guid())
	if err != nil {
		return Response{}, err
	}
	return r.accepted(deleteSpaceJob+space.GUID, r.Store.DeleteSpace(ctx, r.Caller, space))
}
