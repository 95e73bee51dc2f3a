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

// events of apps: with target_guids also what Kubernetes has told of them.
func events(ctx context.Context, c *Call) (Answer, error) {
	q := c.Request.URL.Query()
	in, err := c.visibleSpaces(ctx)
	if err != nil {
		return Answer{}, err
	}
	all, err := c.Store.AppsIn(in)
	if err != nil {
		return Answer{}, err
	}
	slices.SortFunc(all, repositories.Older)
	targets, kinds := payloads.FilterOf(q, "target_guids"), payloads.FilterOf(q, "types")
	var found []presenter.Event
	for _, a := range all {
		if !targets.Has(a.Name) {
			continue
		}
		some, err := c.eventsOf(ctx, a, targets != nil)
		if err != nil {
			return Answer{}, err
		}
		found = append(found, some...)
	}
	found = slices.DeleteFunc(found, func(e presenter.Event) bool { return !kinds.Has(e.Type) })
	slices.SortStableFunc(found, func(a, b presenter.Event) int { return strings.Compare(b.CreatedAt, a.CreatedAt) })
	if by := q.Get("order_by"); by != "" && !strings.HasPrefix(by, "-") {
		slices.Reverse(found)
	}
	return page(c, found, func(e presenter.Event) presenter.Event { return e })
}

func (c *Call) eventsOf(ctx context.Context, a *korifiv1alpha1.CFApp, ask bool) ([]presenter.Event, error) {
	if !ask {
		return presenter.EventsOf(a, nil), nil
	}
	told, err := c.Store.EventsOf(ctx, c.Caller, a)
	if err != nil {
		return nil, err
	}
	return presenter.EventsOf(a, told), nil
}

func logInfo(_ context.Context, _ *Call) (Answer, error) {
	return ok(map[string]string{"version": "3.0.0", "vm_uptime": "0"})
}

// logs are read from the app's Pods when they are asked for; what a Pod took with it is lost.
func logs(ctx context.Context, c *Call) (Answer, error) {
	a, err := c.app(ctx)
	if err != nil {
		return Answer{}, err
	}
	q := c.Request.URL.Query()
	limit, err := number(q, "limit", defaultLines)
	if err != nil {
		return Answer{}, err
	}
	limit = min(max(limit, 1), maxLines)
	from, err := number(q, "start_time", math.MinInt64)
	if err != nil {
		return Answer{}, err
	}
	until, err := number(q, "end_time", math.MaxInt64)
	if err != nil {
		return Answer{}, err
	}
	if kinds := payloads.FilterOf(q, "envelope_types"); !kinds.Has("LOG") {
		return ok(presenter.LogsOf(a.Name, nil, presenter.Window{}))
	}
	window := presenter.Window{From: from, Until: until, Limit: int(limit), Descending: q.Get("descending") == "true"}
	last := &limit
	if !window.Descending || q.Has("end_time") {
		// The first lines are wanted, or the last ones before some time, so the last of all are not enough.
		last = nil
	}
	lines, err := c.Store.Lines(ctx, c.Caller, a, time.Unix(0, max(0, from)), last)
	if err != nil {
		return Answer{}, err
	}
	return ok(presenter.LogsOf(a.Name, lines, window))
}

func number(q url.Values, key string, without int64) (int64, error) {
	if q.Get(key) == "" {
		return without, nil
	}
	n, err := strconv.ParseInt(q.Get(key), 10, 64)
	if err != nil {
		return 0, apierrors.BadBody("The query parameter is invalid: " + key + ": expected a number, found " + strconv.Quote(q.Get(key)))
	}
	return n, nil
}
