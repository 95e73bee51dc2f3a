// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"

	k8serrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
	"github.com/torpor-dev/torpor/internal/cf/api/authorization"
)

const (
	cookieName = "torpor-token"
	// maxTokenBytes fits into a cookie. Browsers drop larger cookies silently.
	maxTokenBytes = 2900
	// policy lets the browser load and run only what this server embeds.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

var errNotLoggedIn = errors.New("expected a token, found none; log in")

func (s *Server) newHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.serveBoard)
	mux.HandleFunc("GET /timeline", s.serveTimeline)
	mux.HandleFunc("GET /events", s.serveStream)
	mux.HandleFunc("GET /details", s.serveDetails)
	mux.HandleFunc("GET /assets/{name}", serveAsset)
	mux.HandleFunc("POST /login", s.logIn)
	mux.HandleFunc("POST /logout", s.logOut)
	mux.HandleFunc("POST /switch", s.flipSwitch)
	s.handleSchedules(mux)
	mux.HandleFunc("POST /switches", s.flipSwitches)
	mux.HandleFunc("GET /until", s.serveUntil)
	// Refuse requests that a browser sends for a page of another origin, with and without the cookie.
	sameOrigin := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		// Limit the time for a client that does not read the response. Streams limit each write instead.
		if err := http.NewResponseController(w).SetWriteDeadline(s.Clock.Now().Add(2 * requestTimeout)); err != nil {
			s.Log.Error(err, "cannot limit the time of a response")
		}
		sameOrigin.ServeHTTP(w, r)
	})
}

func serveAsset(w http.ResponseWriter, r *http.Request) {
	http.ServeFileFS(w, r, assets, "assets/"+r.PathValue("name"))
}

// identify returns the caller, by the Authorization header, which a proxy in front of the page may set, or by the
// cookie.
func (s *Server) identify(ctx context.Context, r *http.Request) (*authorization.Caller, error) {
	header := r.Header.Get("Authorization")
	if cookie, err := r.Cookie(cookieName); err == nil && header == "" {
		if token, err := base64.RawURLEncoding.DecodeString(cookie.Value); err == nil && len(token) > 0 {
			header = "Bearer " + string(token)
		}
	}
	if header == "" {
		return nil, errNotLoggedIn
	}
	return s.authenticator.Authenticate(ctx, header, r.RemoteAddr)
}

func (s *Server) serveBoard(w http.ResponseWriter, r *http.Request) {
	s.serveView(w, r, func(v view, _ *visibility) markup { return renderBoard(v) })
}

func (s *Server) serveTimeline(w http.ResponseWriter, r *http.Request) {
	s.serveView(w, r, func(v view, sees *visibility) markup {
		return renderTimeline(composeTimeline(v, s.inventory, sees, s.Clock.Now()))
	})
}

// serveView answers with the objects that a query selects and the caller may see.
func (s *Server) serveView(w http.ResponseWriter, r *http.Request, render func(view, *visibility) markup) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	caller, err := s.identify(ctx, r)
	if err != nil {
		s.refuse(w, err)
		return
	}
	defer caller.Close()
	q := parseViewQuery(r.URL.Query())
	sees, err := reviewVisibility(ctx, caller, s.inventory, q)
	if err != nil {
		s.refuse(w, err)
		return
	}
	v := composeView(ctx, s.inventory, sees, q, s.Clock.Now())
	v.User = caller.Name
	writeHTML(w, http.StatusOK, render(v, sees))
}

func writeHTML(w http.ResponseWriter, status int, text markup) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // The client may have disconnected.
}

// refuse shows the login form to a caller without a valid token, and the error to others.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errNotLoggedIn):
		writeHTML(w, http.StatusUnauthorized, renderLogin(loginView{}))
	case apierrors.HasStatus(err, http.StatusUnauthorized):
		s.setCookie(w, "", -1)
		writeHTML(w, http.StatusUnauthorized, renderLogin(loginView{Error: "The API server does not accept this token. Log in with another token."}))
	default:
		status, text := describeError(err)
		writeHTML(w, status, renderLogin(loginView{Error: text}))
	}
}

type loginView struct{ Error string }

// describeError returns the status and the text of an error. It hides errors that are not caused by the caller.
func describeError(err error) (status int, text string) {
	if api := k8serrors.APIStatus(nil); errors.As(err, &api) && api.Status().Code < http.StatusInternalServerError {
		return int(api.Status().Code), api.Status().Message
	}
	if known, ok := errors.AsType[*apierrors.CFError](err); ok {
		return known.Status, known.Detail
	}
	if refused, ok := errors.AsType[flipError](err); ok {
		return refused.status, refused.text
	}
	return http.StatusServiceUnavailable, "The API server did not answer as expected; try again."
}

func (s *Server) logIn(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	token := strings.TrimSpace(r.PostFormValue("token"))
	switch {
	case token == "":
		s.refuse(w, errNotLoggedIn)
		return
	case len(token) > maxTokenBytes:
		writeHTML(w, http.StatusBadRequest, renderLogin(loginView{Error: "Expected a token that fits into a cookie, found a larger token. Use a token of a service account, or a proxy that sends the token in the Authorization header."}))
		return
	}
	caller, err := s.authenticator.Authenticate(ctx, "Bearer "+token, r.RemoteAddr)
	if err != nil {
		s.refuse(w, err)
		return
	}
	defer caller.Close()
	s.setCookie(w, base64.RawURLEncoding.EncodeToString([]byte(token)), 0)
	http.Redirect(w, r, "./", http.StatusSeeOther)
}

func (s *Server) logOut(w http.ResponseWriter, r *http.Request) {
	s.setCookie(w, "", -1)
	http.Redirect(w, r, "./", http.StatusSeeOther)
}

// setCookie sets a session cookie that scripts cannot read and that other sites cannot send. A negative age removes it.
func (s *Server) setCookie(w http.ResponseWriter, value string, age int) {
	cookie := http.Cookie{Name: cookieName, Value: value, MaxAge: age, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: true}
	text := cookie.String()
	if s.certificate == nil { // Some browsers do not return a secure cookie to a loopback address without TLS.
		text = strings.Replace(text, "; Secure", "", 1)
	}
	w.Header().Add("Set-Cookie", text)
}

// flipSwitch stops or starts an object with the caller's own token, so that admission records the caller.
func (s *Server) flipSwitch(w http.ResponseWriter, r *http.Request) {
	// Finish the request even if the browser disconnects.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), requestTimeout)
	defer cancel()
	caller, err := s.identify(ctx, r)
	if err != nil {
		http.Error(w, "Log in again.", http.StatusUnauthorized)
		return
	}
	defer caller.Close()
	if err := r.ParseForm(); err != nil {
		http.Error(w, "expected a form of at most 32 kB, found another", http.StatusBadRequest)
		return
	}
	flip, err := s.parseFlip(r, r.PostForm)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	changed, err := flip.write(ctx, caller.Client, s.Clock)
	if err != nil {
		status, text := describeError(err)
		http.Error(w, text, status)
		return
	}
	s.logFlip(caller.Name, flip, changed)
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) logFlip(user string, f flip, changed bool) {
	s.Log.Info("a switch was flipped on the page", "user", user, "kind", f.kind.GVK().Kind, "namespace", f.namespace,
		"name", f.name, "part", f.part, "verb", f.verb, "changed", changed)
}
