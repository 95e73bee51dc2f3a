// SPDX-License-Identifier: Apache-2.0

package handlers

import (
	"context"
	"math"
	"net/url"
	"strconv"

	korifiv1alpha1 "github.com/torpor-dev/torpor/api/korifi/v1alpha1"
	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/payloads"
	"github.com/torpor-dev/torpor/internal/cf/api/presenter"
	"github.com/torpor-dev/torpor/internal/cf/api/repositories"
)

const (
	defaultLogLines = 100
	maxLogLines     = 1000
)

func getLogCacheInfo(_ context.Context, _ *Request) (Response, error) {
	return ok(map[string]string{"version": "3.0.0", "vm_uptime": "0"})
}

// readLogs reads the logs of the app's current Pods. Logs of deleted Pods are not available.
func readLogs(ctx context.Context, r *Request, app *korifiv1alpha1.CFApp) (Response, error) {
	q := r.query()
	limit, err := parseInt(q, "limit", defaultLogLines)
	if err != nil {
		return Response{}, err
	}
	limit = min(max(limit, 1), maxLogLines)
	from, err := parseInt(q, "start_time", math.MinInt64)
	if err != nil {
		return Response{}, err
	}
	until, err := parseInt(q, "end_time", math.MaxInt64)
	if err != nil {
		return Response{}, err
	}
	if kinds := payloads.ParseFilter(q, "envelope_types"); !kinds.Matches("LOG") {
		return ok(presenter.ForLogs(app.Name, nil))
	}
	window := repositories.LogWindow{From: from, Until: until, Limit: int(limit), Descending: q.Get("descending") == "true"}
	if window.Descending || q.Get("start_time") == "" {
		if err := r.awaitOwnStart(ctx, app); err != nil {
			return Response{}, err
		}
	}
	r.Store.AwaitLogs(ctx, r.Caller, app, window)
	if err := r.Logs.holdSlot(ctx, r.Caller.Name); err != nil {
		return Response{}, err
	}
	lines, err := r.Store.ReadLogs(ctx, r.Caller, app, window)
	return respond(presenter.ForLogs(app.Name, lines), err)
}

// awaitOwnStart waits until an app runs or has crashed, if the caller has just started it. Until then the app has no
// logs, and a client that requests the latest lines sends only one request. A client that follows the logs does not
// wait.
func (r *Request) awaitOwnStart(ctx context.Context, app *korifiv1alpha1.CFApp) error {
	process, err := r.Store.GetProcessByType(ctx, app, korifiv1alpha1.WebProcess)
	if err != nil {
		return ignoreNotFound(err)
	}
	hold := r.Polls.HoldTime(r.Caller.Name, app.Name, process.Name)
	if hold == 0 {
		return nil
	}
	// The cached app may not show the start yet.
	if app, err = r.Store.GetLiveApp(ctx, r.Caller, app.Namespace, app.Name); err != nil {
		return err
	}
	_, _, err = r.waitUntilSettled(ctx, app, process, hold)
	return err
}

func parseInt(q url.Values, key string, without int64) (int64, error) {
	if q.Get(key) == "" {
		return without, nil
	}
	n, err := strconv.ParseInt(q.Get(key), 10, 64)
	if err != nil {
		return 0, apierrors.NewMessageParseError("The query parameter is invalid: " + key + ": expected a number, found " + strconv.Quote(q.Get(key)))
	}
	return n, nil
}
