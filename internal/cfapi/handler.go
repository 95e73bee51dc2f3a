// SPDX-License-Identifier: Apache-2.0

package cfapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/torpor-dev/torpor/internal/cfapi/access"
	"github.com/torpor-dev/torpor/internal/cfapi/fault"
	"github.com/torpor-dev/torpor/internal/cfapi/route"
)

// requestTimeout bounds a request; proxies give up after 15 s.
const requestTimeout = 14 * time.Second

// front answers requests: it finds the row of the table, asks who is there, and shows an answer or a fault.
type front struct {
	api     *route.API
	callers *access.Callers
	log     *slog.Logger
}

// handler has every row of the table, and an answer for everything else.
func (f *front) handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range route.Table() {
		mux.HandleFunc(r.Method+" "+r.Path, func(w http.ResponseWriter, req *http.Request) { f.serve(w, req, r) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) { f.fail(w, req, fault.UnknownRequest()) })
	return mux
}

func (f *front) serve(w http.ResponseWriter, req *http.Request, r route.Route) {
	ctx := req.Context()
	if req.Method != http.MethodGet {
		// What has begun is finished, whether or not the client still listens.
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := f.answer(ctx, req, r)
	switch {
	case err == nil:
		f.show(w, answer)
	case req.Context().Err() != nil:
		// Nobody is there to be told.
	default:
		f.fail(w, req, err)
	}
}

func (f *front) answer(ctx context.Context, req *http.Request, r route.Route) (route.Answer, error) {
	call := &route.Call{API: f.api, Request: req, Base: "https://" + req.Host}
	if !r.Public {
		caller, err := f.callers.Of(ctx, req.Header.Get("Authorization"))
		if err != nil {
			return route.Answer{}, err
		}
		defer caller.Done()
		call.Caller = caller
	}
	return r.Handle(ctx, call)
}

func (f *front) show(w http.ResponseWriter, a route.Answer) {
	if a.Location != "" {
		w.Header().Set("Location", a.Location)
	}
	if a.Body == nil {
		w.WriteHeader(a.Status)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(a.Status)
	if err := json.NewEncoder(w).Encode(a.Body); err != nil {
		f.log.Debug("client went away", "error", err)
	}
}

func (f *front) fail(w http.ResponseWriter, req *http.Request, err error) {
	var known *fault.CFError
	if !errors.As(err, &known) {
		known = fault.Of(err, "Resource")
	}
	if known.Status >= http.StatusInternalServerError {
		f.log.Error("request not answered", "method", req.Method, "path", req.URL.Path, "status", known.Status, "error", err)
	}
	if known.Status == http.StatusTooManyRequests || known.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	type entry struct {
		Code   int    `json:"code"`
		Title  string `json:"title"`
		Detail string `json:"detail"`
	}
	f.show(w, route.Answer{Status: known.Status, Body: map[string][]entry{"errors": {{known.Code, known.Title, known.Detail}}}})
}
