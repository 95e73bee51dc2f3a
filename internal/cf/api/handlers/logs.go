// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

const (
	defaultLines = 100
	maxLines     = 1000
)

// listAuditEvents of apps: with target_guids also what Kubernetes has told of them.
func listAuditEvents(ctx context.Context, c *Request) (Response, error) {
	q := c.HTTP.URL.Query()
	in, err := c.visibleSpaces(ctx)
	if err != nil {
		return Response{}, err
	}
	all, err := c.Store.ListApps(in)
	if err != nil {
		return Response{}, err
	}
	slices.SortFunc(all, repositories.CompareByAge)
	targets, kinds := payloads.ParseFilter(q, "target_guids"), payloads.ParseFilter(q, "types")
	var found []presenter.AuditEvent
	for _, a := range all {
		if !targets.Matches(a.Name) {
			continue
		}
		some, err := c.eventsOf(ctx, a, targets != nil)
		if err != nil {
			return Response{}, err
		}
		found = append(found, some...)
	}
	found = slices.DeleteFunc(found, func(e presenter.AuditEvent) bool { return !kinds.Matches(e.Type) })
	slices.SortStableFunc(found, func(a, b presenter.AuditEvent) int { return strings.Compare(b.CreatedAt, a.CreatedAt) })
	if by := q.Get("order_by"); by != "" && !strings.HasPrefix(by, "-") {
		slices.Reverse(found)
	}
	return page(c, found, func(e presenter.AuditEvent) presenter.AuditEvent { return e })
}

func (c *Request) eventsOf(ctx context.Context, a *korifiv1alpha1.CFApp, ask bool) ([]presenter.AuditEvent, error) {
	if !ask {
		return presenter.ForAuditEvents(a, nil), nil
	}
	told, err := c.Store.ListEvents(ctx, c.Caller, a)
	if err != nil {
		return nil, err
	}
	return presenter.ForAuditEvents(a, told), nil
}

func getLogCacheInfo(_ context.Context, _ *Request) (Response, error) {
	return ok(map[string]string{"version": "3.0.0", "vm_uptime": "0"})
}

// readLogs are read from the app's Pods when they are asked for; what a Pod took with it is lost.
func readLogs(ctx context.Context, c *Request) (Response, error) {
	a, err := c.app(ctx)
	if err != nil {
		return Response{}, err
	}
	q := c.HTTP.URL.Query()
	limit, err := number(q, "limit", defaultLines)
	if err != nil {
		return Response{}, err
	}
	limit = min(max(limit, 1), maxLines)
	from, err := number(q, "start_time", math.MinInt64)
	if err != nil {
		return Response{}, err
	}
	until, err := number(q, "end_time", math.MaxInt64)
	if err != nil {
		return Response{}, err
	}
	if kinds := payloads.ParseFilter(q, "envelope_types"); !kinds.Matches("LOG") {
		return ok(presenter.ForLogs(a.Name, nil, presenter.LogWindow{}))
	}
	window := presenter.LogWindow{From: from, Until: until, Limit: int(limit), Descending: q.Get("descending") == "true"}
	last := &limit
	if !window.Descending || q.Has("end_time") {
		// The first lines are wanted, or the last ones before some time, so the last of all are not enough.
		last = nil
	}
	lines, err := c.Store.ReadLogs(ctx, c.Caller, a, time.Unix(0, max(0, from)), last)
	if err != nil {
		return Response{}, err
	}
	return ok(presenter.ForLogs(a.Name, lines, window))
}

func number(q url.Values, key string, without int64) (int64, error) {
	if q.Get(key) == "" {
		return without, nil
	}
	n, err := strconv.ParseInt(q.Get(key), 10, 64)
	if err != nil {
		return 0, apierrors.NewMessageParseError("The query parameter is invalid: " + key + ": expected a number, found " + strconv.Quote(q.Get(key)))
	}
	return n, nil
}
