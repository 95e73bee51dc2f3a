// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/handlers"
)

// requestTimeout bounds a request; proxies give up after 15 s.
const requestTimeout = 14 * time.Second

// server answers requests: it finds the row of the table, asks who is there, and shows an answer or a fault.
type server struct {
	api     *handlers.API
	callers *authorization.Authenticator
	metrics *metrics
	log     *slog.Logger
}

// unknownRoute is what requests are counted as that no row is for.
const unknownRoute = "unknown"

// newHandler has every row of the table, and an answer for everything else.
func (f *server) newHandler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range handlers.Routes() {
		pattern := r.Method + " " + r.Path
		mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) { f.serveRoute(w, req, pattern, r) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		other := errorForUnmatched(w, req, mux)
		f.writeError(w, req, other)
		f.metrics.observeRequest(unknownRoute, other.Status, 0)
	})
	return mux
}

// errorForUnmatched is the answer to what no row is for: the path may be known with another method.
func errorForUnmatched(w http.ResponseWriter, req *http.Request, mux *http.ServeMux) *apierrors.CFError {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		other := &http.Request{Method: method, Host: req.Host, URL: req.URL}
		if _, pattern := mux.Handler(other); strings.HasPrefix(pattern, method+" ") {
			methods = append(methods, method)
		}
	}
	if len(methods) == 0 {
		return apierrors.NewUnknownRequest()
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	return apierrors.NewMethodNotAllowed(req.Method, methods)
}

func (f *server) serveRoute(w http.ResponseWriter, req *http.Request, pattern string, r handlers.Route) {
	begin := f.api.Clock.Now()
	ctx := req.Context()
	if req.Method != http.MethodGet {
		// What has begun is finished, whether or not the client still listens.
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := f.callHandler(ctx, req, r)
	status := answer.Status
	switch {
	case err == nil:
		f.writeResponse(w, answer)
	case req.Context().Err() != nil:
		// Nobody is there to be told.
		status = statusClientClosed
	default:
		status = f.writeError(w, req, err)
	}
	f.metrics.observeRequest(pattern, status, f.api.Clock.Since(begin))
}

// callHandler asks the row; whatever goes wrong in there is a fault of the server's and ends nothing else.
func (f *server) callHandler(ctx context.Context, req *http.Request, r handlers.Route) (callHandler handlers.Response, err error) {
	defer func() {
		if wrong := recover(); wrong != nil {
			err = fmt.Errorf("panic: %v at %s", wrong, debug.Stack())
		}
	}()
	call := &handlers.Request{API: f.api, HTTP: req, Base: "https://" + req.Host}
	if !r.Public {
		caller, err := f.callers.Authenticate(ctx, req.Header.Get("Authorization"))
		if err != nil {
			return handlers.Response{}, err
		}
		defer caller.Close()
		call.Caller = caller
	}
	return r.Handle(ctx, call)
}

func (f *server) writeResponse(w http.ResponseWriter, a handlers.Response) {
	if a.Location != "" {
		w.Header().Set("Location", a.Location)
	}
	for _, warning := range a.Warnings {
		w.Header().Add("X-Cf-Warnings", url.QueryEscape(warning))
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

// writeError shows an error, and says with which status.
func (f *server) writeError(w http.ResponseWriter, req *http.Request, err error) int {
	var known *apierrors.CFError
	if !errors.As(err, &known) {
		known = apierrors.FromError(err, "Resource")
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
	f.writeResponse(w, handlers.Response{Status: known.Status, Body: map[string][]entry{"errors": {{known.Code, known.Title, known.Detail}}}})
	return known.Status
}
