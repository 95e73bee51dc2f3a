// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

func getRoot(_ context.Context, c *Request) (Response, error) { return ok(presenter.ForRoot(c.Base)) }

func getInfo(_ context.Context, c *Request) (Response, error) {
	return ok(map[string]any{"name": "torpor", "build": "", "version": 0, "cli_version": map[string]string{"minimum": "", "recommended": ""}, "links": presenter.Links{"self": {HRef: c.Base + "/v3/info"}}})
}

func getHealth(context.Context, *Request) (Response, error) {
	return ok(map[string]string{"status": "ok"})
}

func getWhoAmI(_ context.Context, c *Request) (Response, error) {
	kind := "User"
	if c.Caller.IsServiceAccount() {
		kind = "ServiceAccount"
	}
	return ok(map[string]string{"name": c.Caller.Name, "kind": kind})
}

// createToken is for clients that want one of their own before they stream logs. It lets nobody in: callers are known by the
// credentials that they send with every request.
func createToken(_ context.Context, c *Request) (Response, error) {
	const valid = time.Hour
	part := func(v any) string {
		raw, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	expires := c.Clock.Now().Add(valid).Unix()
	jwt := part(map[string]string{"alg": "none", "typ": "JWT"}) + "." + part(map[string]any{"exp": expires, "iss": "torpor"}) + "." + part("none")
	return ok(map[string]any{"access_token": jwt, "refresh_token": jwt, "token_type": "bearer", "expires_in": int(valid.Seconds())})
}

func listOrgs(ctx context.Context, c *Request) (Response, error) {
	all, err := c.Store.ListOrgs(ctx, c.Caller)
	if err != nil {
		return Response{}, err
	}
	return page(c, chosen(c, all), c.org)
}

func getOrg(ctx context.Context, c *Request) (Response, error) {
	p, err := c.orgOf(ctx, c.guid())
	if err != nil {
		return Response{}, err
	}
	return ok(c.org(p))
}

// orgOf is the org of a GUID, if the caller sees it.
func (c *Request) orgOf(ctx context.Context, guid string) (repositories.OrgOrSpace, error) {
	all, err := c.Store.ListOrgs(ctx, c.Caller)
	return placed(all, err, guid, repositories.OrgResourceType)
}

// spaceOf is the space of a GUID, if the caller sees it.
func (c *Request) spaceOf(ctx context.Context, guid string) (repositories.OrgOrSpace, error) {
	all, err := c.Store.ListSpaces(ctx, c.Caller)
	return placed(all, err, guid, repositories.SpaceResourceType)
}

func placed(all []repositories.OrgOrSpace, err error, guid, thing string) (repositories.OrgOrSpace, error) {
	if err != nil {
		return repositories.OrgOrSpace{}, err
	}
	i := slices.IndexFunc(all, func(p repositories.OrgOrSpace) bool { return p.GUID == guid })
	if i < 0 {
		return repositories.OrgOrSpace{}, apierrors.NewNotFound(thing)
	}
	return all[i], nil
}

func listSpaces(ctx context.Context, c *Request) (Response, error) {
	all, err := c.Store.ListSpaces(ctx, c.Caller)
	if err != nil {
		return Response{}, err
	}
	in := payloads.ParseFilter(c.HTTP.URL.Query(), "organization_guids")
	all = slices.DeleteFunc(all, func(p repositories.OrgOrSpace) bool { return !in.Matches(p.Org) })
	return page(c, chosen(c, all), c.space)
}

func getSpace(ctx context.Context, c *Request) (Response, error) {
	p, err := c.spaceOf(ctx, c.guid())
	if err != nil {
		return Response{}, err
	}
	return ok(c.space(p))
}

func (c *Request) org(p repositories.OrgOrSpace) presenter.OrgOrSpace {
	return presenter.ForOrg(c.Base, p.GUID, p.Name, p.Created)
}

func (c *Request) space(p repositories.OrgOrSpace) presenter.OrgOrSpace {
	return presenter.ForSpace(c.Base, p.GUID, p.Name, p.Org, p.Created)
}

// chosen are those of the names and GUIDs that are asked for, by name.
func chosen(c *Request, all []repositories.OrgOrSpace) []repositories.OrgOrSpace {
	q := c.HTTP.URL.Query()
	names, guids := payloads.ParseFilter(q, "names"), payloads.ParseFilter(q, "guids")
	all = slices.DeleteFunc(all, func(p repositories.OrgOrSpace) bool { return !names.Matches(p.Name) || !guids.Matches(p.GUID) })
	slices.SortFunc(all, func(a, b repositories.OrgOrSpace) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.GUID, b.GUID))
	})
	return all
}

// visibleSpaces are the GUIDs of those spaces that the caller may see, of space_guids if there are any.
func (c *Request) visibleSpaces(ctx context.Context) ([]string, error) {
	all, err := c.Store.ListSpaces(ctx, c.Caller)
	if err != nil {
		return nil, err
	}
	q := c.HTTP.URL.Query()
	wanted, in := payloads.ParseFilter(q, "space_guids"), payloads.ParseFilter(q, "organization_guids")
	var guids []string
	for _, p := range all {
		if wanted.Matches(p.GUID) && in.Matches(p.Org) {
			guids = append(guids, p.GUID)
		}
	}
	return guids, nil
}
