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

func root(_ context.Context, c *Call) (Answer, error) { return ok(presenter.RootOf(c.Base)) }

func info(_ context.Context, c *Call) (Answer, error) {
	return ok(map[string]any{"name": "torpor", "build": "", "version": 0, "cli_version": map[string]string{"minimum": "", "recommended": ""}, "links": presenter.Links{"self": {HRef: c.Base + "/v3/info"}}})
}

func healthy(context.Context, *Call) (Answer, error) { return ok(map[string]string{"status": "ok"}) }

func whoami(_ context.Context, c *Call) (Answer, error) {
	kind := "User"
	if c.Caller.IsServiceAccount() {
		kind = "ServiceAccount"
	}
	return ok(map[string]string{"name": c.Caller.Name, "kind": kind})
}

// token is for clients that want one of their own before they stream logs. It lets nobody in: callers are known by the
// credentials that they send with every request.
func token(_ context.Context, c *Call) (Answer, error) {
	const valid = time.Hour
	part := func(v any) string {
		raw, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	expires := c.Clock.Now().Add(valid).Unix()
	jwt := part(map[string]string{"alg": "none", "typ": "JWT"}) + "." + part(map[string]any{"exp": expires, "iss": "torpor"}) + "." + part("none")
	return ok(map[string]any{"access_token": jwt, "refresh_token": jwt, "token_type": "bearer", "expires_in": int(valid.Seconds())})
}

func orgs(ctx context.Context, c *Call) (Answer, error) {
	all, err := c.Store.Orgs(ctx, c.Caller)
	if err != nil {
		return Answer{}, err
	}
	return page(c, chosen(c, all), c.org)
}

func org(ctx context.Context, c *Call) (Answer, error) {
	p, err := c.orgOf(ctx, c.guid())
	if err != nil {
		return Answer{}, err
	}
	return ok(c.org(p))
}

// orgOf is the org of a GUID, if the caller sees it.
func (c *Call) orgOf(ctx context.Context, guid string) (repositories.Place, error) {
	all, err := c.Store.Orgs(ctx, c.Caller)
	return placed(all, err, guid, repositories.OrgThing)
}

// spaceOf is the space of a GUID, if the caller sees it.
func (c *Call) spaceOf(ctx context.Context, guid string) (repositories.Place, error) {
	all, err := c.Store.Spaces(ctx, c.Caller)
	return placed(all, err, guid, repositories.SpaceThing)
}

func placed(all []repositories.Place, err error, guid, thing string) (repositories.Place, error) {
	if err != nil {
		return repositories.Place{}, err
	}
	i := slices.IndexFunc(all, func(p repositories.Place) bool { return p.GUID == guid })
	if i < 0 {
		return repositories.Place{}, apierrors.NotFound(thing)
	}
	return all[i], nil
}

func spaces(ctx context.Context, c *Call) (Answer, error) {
	all, err := c.Store.Spaces(ctx, c.Caller)
	if err != nil {
		return Answer{}, err
	}
	in := payloads.FilterOf(c.Request.URL.Query(), "organization_guids")
	all = slices.DeleteFunc(all, func(p repositories.Place) bool { return !in.Has(p.Org) })
	return page(c, chosen(c, all), c.space)
}

func space(ctx context.Context, c *Call) (Answer, error) {
	p, err := c.spaceOf(ctx, c.guid())
	if err != nil {
		return Answer{}, err
	}
	return ok(c.space(p))
}

func (c *Call) org(p repositories.Place) presenter.Place {
	return presenter.OrgOf(c.Base, p.GUID, p.Name, p.Created)
}

func (c *Call) space(p repositories.Place) presenter.Place {
	return presenter.SpaceOf(c.Base, p.GUID, p.Name, p.Org, p.Created)
}

// chosen are those of the names and GUIDs that are asked for, by name.
func chosen(c *Call, all []repositories.Place) []repositories.Place {
	q := c.Request.URL.Query()
	names, guids := payloads.FilterOf(q, "names"), payloads.FilterOf(q, "guids")
	all = slices.DeleteFunc(all, func(p repositories.Place) bool { return !names.Has(p.Name) || !guids.Has(p.GUID) })
	slices.SortFunc(all, func(a, b repositories.Place) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.GUID, b.GUID))
	})
	return all
}

// visibleSpaces are the GUIDs of those spaces that the caller may see, of space_guids if there are any.
func (c *Call) visibleSpaces(ctx context.Context) ([]string, error) {
	all, err := c.Store.Spaces(ctx, c.Caller)
	if err != nil {
		return nil, err
	}
	q := c.Request.URL.Query()
	wanted, in := payloads.FilterOf(q, "space_guids"), payloads.FilterOf(q, "organization_guids")
	var guids []string
	for _, p := range all {
		if wanted.Has(p.GUID) && in.Has(p.Org) {
			guids = append(guids, p.GUID)
		}
	}
	return guids, nil
}
