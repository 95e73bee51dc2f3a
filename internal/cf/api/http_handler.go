// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
	"github.com/torpor-dev/torpor/internal/cf/api/handlers"
)

// requestTimeout limits the duration of a request, except for uploads. It is shorter than the 15 s after which proxies
// give up.
const requestTimeout = 14 * time.Second

// server is the HTTP handler of the API. It finds the route, authenticates the caller, and writes a response or an
// error.
type server struct {
	api           *handlers.API
	authenticator *authorization.Authenticator
	metrics       *serverMetrics
	// externalURL is the base of every link. If it is empty, links use the host of the request.
	externalURL string
	log         *slog.Logger
}

// unknownRoute is the metric label for requests without a matching route.
const unknownRoute = "unknown"

// newHandler returns a mux with all routes. It ignores trailing slashes, and responds to all other requests with an
// error.
func (s *server) newHandler() *http.ServeMux {
	mux := http.NewServeMux()
	for _, route := range handlers.Routes() {
		pattern := route.Method + " " + route.Path
		mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) { s.serveRoute(w, req, pattern, route) })
	}
	for _, feature := range handlers.MissingFeatures() {
		for _, pattern := range feature.Patterns() {
			mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
				s.metrics.observeRequest(pattern, s.writeError(w, req, feature.Refusal()), 0)
			})
		}
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		// Cloud Controller accepts a trailing slash, and some clients send one.
		if path := strings.TrimRight(req.URL.Path, "/"); path != "" && path != req.URL.Path {
			without := req.Clone(req.Context())
			without.URL.Path, without.URL.RawPath = path, strings.TrimRight(req.URL.RawPath, "/")
			mux.ServeHTTP(w, without)
			return
		}
		setAllowedMethods(w, req, mux)
		unmatched := apierrors.NewUnknownRequest()
		s.writeError(w, req, unmatched)
		s.metrics.observeRequest(unknownRoute, unmatched.Status, 0)
	})
	return mux
}

// setAllowedMethods sets the Allow header if the path is served, but not with the request's method. The error is the
// same as for an unknown path, as in Cloud Foundry.
func setAllowedMethods(w http.ResponseWriter, req *http.Request, mux *http.ServeMux) {
	// The mux never returns 405 itself, because it has a catch-all handler.
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := &http.Request{Method: method, Host: req.Host, URL: req.URL}
		if _, pattern := mux.Handler(other); strings.HasPrefix(pattern, method+" ") {
			methods = append(methods, method)
		}
	}
	if len(methods) > 0 {
		w.Header().Set("Allow", strings.Join(methods, ", "))
	}
}

func (s *server) serveRoute(w http.ResponseWriter, req *http.Request, pattern string, route handlers.Route) {
	begin := s.api.Clock.Now()
	ctx := req.Context()
	if req.Method != http.MethodGet {
		// A change to several objects is completed even if the client disconnects before the end.
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := s.callHandler(ctx, w, req, route)
	status := response.Status
	switch {
	case err == nil:
		s.writeResponse(w, response)
	case req.Context().Err() != nil:
		// The client has disconnected, so logging an error would only fill the log.
		status = statusClientClosed
	default:
		status = s.writeError(w, req, err)
	}
	s.metrics.observeRequest(pattern, status, s.api.Clock.Since(begin))
}

// callHandler authenticates the caller, and calls the handler. It converts a panic to an error, so a panic fails one
// request and not the server.
func (s *server) callHandler(ctx context.Context, w http.ResponseWriter, req *http.Request, route handlers.Route) (response handlers.Response, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v at %s", panicked, debug.Stack())
		}
	}()
	if err := checkClientVersion(req.UserAgent()); err != nil {
		return handlers.Response{}, err
	}
	request := &handlers.Request{API: s.api, HTTP: req, Deadlines: http.NewResponseController(w), Base: cmp.Or(s.externalURL, "https://"+req.Host)}
	if !route.Public {
		caller, err := s.authenticator.Authenticate(ctx, req.Header.Get("Authorization"), req.RemoteAddr)
		if err != nil {
			return handlers.Response{}, err
		}
		defer caller.Close()
		request.Caller = caller
		if err := s.api.Store.CheckFreshness(); err != nil {
			return handlers.Response{}, err
		}
	}
	return route.Handle(ctx, request)
}

// escapeWarning escapes the characters that have a meaning in the header. The client splits the header at commas, and
// decodes each warning like a query parameter. Other characters are not escaped, so the warning is readable in a log.
func escapeWarning(text string) string {
	return strings.NewReplacer("%", "%25", "+", "%2B", ",", "%2C", "\r", "%0D", "\n", "%0A").Replace(text)
}

func (s *server) writeResponse(w http.ResponseWriter, response handlers.Response) {
	if response.Location != "" {
		w.Header().Set("Location", response.Location)
	}
	for _, warning := range response.Warnings {
		w.Header().Add("X-Cf-Warnings", escapeWarning(warning))
	}
	if response.YAML != nil {
		w.Header().Set("Content-Type", "application/x-yaml")
		w.WriteHeader(response.Status)
		_, _ = w.Write(response.YAML)
		return
	}
	if response.Body == nil {
		w.WriteHeader(response.Status)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(response.Status)
	if err := json.NewEncoder(w).Encode(response.Body); err != nil {
		// The status is already sent, so the response cannot be corrected.
		s.log.Debug("client disconnected", "error", err)
	}
}

// writeError writes an error in CF's format, and returns its status.
func (s *server) writeError(w http.ResponseWriter, req *http.Request, err error) int {
	var known *apierrors.CFError
	if !errors.As(err, &known) {
		known = apierrors.FromError(err, "Resource")
	}
	// Client errors are not logged, because operators cannot act on them.
	if known.Status >= http.StatusInternalServerError {
		s.log.Error("Request failed", "method", req.Method, "path", req.URL.Path, "status", known.Status, "error", err)
	}
	if known.Status == http.StatusTooManyRequests || known.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	type entry struct {
		Code   int    `json:"code"`
		Title  string `json:"title"`
		Detail string `json:"detail"`
	}
	s.writeResponse(w, handlers.Response{Status: known.Status, Body: map[string][]entry{"errors": {{known.Code, known.Title, known.Detail}}}})
	return known.Status
}
