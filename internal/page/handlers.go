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
	// maxTokenBytes is small enough for a cookie. Browsers silently drop larger cookies.
	maxTokenBytes = 2900
	// policy allows the browser to load and run only content that this server embeds.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

var errNotLoggedIn = errors.New("expected a token, found none; log in")

func (s *Server) newHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.withView(s.showBoard))
	mux.HandleFunc("GET /timeline", s.withView(s.showTimeline))
	mux.HandleFunc("GET /savings", s.withView(s.showSavings))
	mux.HandleFunc("GET /events", s.serveStream)
	mux.HandleFunc("GET /details", s.withCaller(s.refuseDetails, s.serveDetails))
	mux.HandleFunc("GET /assets/{name}", serveAsset)
	mux.HandleFunc("POST /login", s.logIn)
	mux.HandleFunc("POST /logout", s.logOut)
	mux.HandleFunc("POST /switch", s.withCaller(refuseScript, s.flipSwitch))
	mux.HandleFunc("POST /switches", s.withCaller(refuseScript, s.flipSwitches))
	mux.HandleFunc("GET /until", s.withCaller(refuseScript, s.serveUntil))
	s.handleSchedules(mux)
	// Reject POST requests that a browser sends on behalf of a page from another origin, with and without the cookie.
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

// identify returns the caller, identified by the Authorization header, which a proxy in front of the page may set, or
// by the cookie.
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

// callerRequest is a request of a caller who is logged in.
type callerRequest struct {
	*http.Request
	writer http.ResponseWriter
	caller *authorization.Caller
}

// withCaller identifies the caller before it handles a request. refuse handles a request whose caller cannot be
// identified.
func (s *Server) withCaller(
	refuse func(http.ResponseWriter, *http.Request, error), answer func(context.Context, callerRequest),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		parent := r.Context()
		if r.Method == http.MethodPost { // Finish the request even if the browser disconnects.
			parent = context.WithoutCancel(parent)
		}
		ctx, cancel := context.WithTimeout(parent, requestTimeout)
		defer cancel()
		caller, err := s.identify(ctx, r)
		if err != nil {
			refuse(w, r, err)
			return
		}
		defer caller.Close()
		answer(ctx, callerRequest{r, w, caller})
	}
}

// withView handles a request with the objects that its query selects and the caller may see.
func (s *Server) withView(render func(view, *http.Request) markup) http.HandlerFunc {
	return s.withCaller(s.refuse, func(ctx context.Context, r callerRequest) {
		q := parseViewQuery(r.URL.Query())
		sees, err := reviewVisibility(ctx, r.caller, s.inventory, q)
		if err != nil {
			s.refuse(r.writer, r.Request, err)
			return
		}
		v := composeView(ctx, s.inventory, sees, q, s.Clock.Now())
		v.User = r.caller.Name
		writeHTML(r.writer, http.StatusOK, render(v, r.Request))
	})
}

func (s *Server) showBoard(v view, _ *http.Request) markup { return renderBoard(v) }

func (s *Server) showTimeline(v view, _ *http.Request) markup {
	return renderTimeline(composeTimeline(v, s.Clock.Now()))
}

func writeHTML(w http.ResponseWriter, status int, text markup) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // The client may have disconnected.
}

// refuse shows the login form to a caller without a valid token, and an error to other callers.
func (s *Server) refuse(w http.ResponseWriter, _ *http.Request, err error) {
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

// refuseScript sends an error response to the page's script.
func refuseScript(w http.ResponseWriter, _ *http.Request, err error) {
	if errors.Is(err, errNotLoggedIn) || apierrors.HasStatus(err, http.StatusUnauthorized) {
		http.Error(w, "Log in again.", http.StatusUnauthorized)
		return
	}
	status, text := describeError(err)
	http.Error(w, text, status)
}

type loginView struct{ Error string }

// describeError returns the HTTP status and the text for an error. It hides errors that the caller did not cause.
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
		s.refuse(w, r, errNotLoggedIn)
		return
	case len(token) > maxTokenBytes:
		writeHTML(w, http.StatusBadRequest, renderLogin(loginView{Error: "Expected a token that fits into a cookie, found a larger token. Use a token of a service account, or a proxy that sends the token in the Authorization header."}))
		return
	}
	caller, err := s.authenticator.Authenticate(ctx, "Bearer "+token, r.RemoteAddr)
	if err != nil {
		s.refuse(w, r, err)
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

// setCookie sets a session cookie that scripts cannot read and that is not sent with requests from other sites. A
// negative age removes the cookie.
func (s *Server) setCookie(w http.ResponseWriter, value string, age int) {
	cookie := http.Cookie{Name: cookieName, Value: value, MaxAge: age, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: true}
	text := cookie.String()
	if s.certificate == nil { // Some browsers do not send a secure cookie to a loopback address without TLS.
		text = strings.Replace(text, "; Secure", "", 1)
	}
	w.Header().Add("Set-Cookie", text)
}

// flipSwitch applies the requested action to a switch with the caller's own token, so the admission policy records the
// caller.
func (s *Server) flipSwitch(ctx context.Context, r callerRequest) {
	if err := r.ParseForm(); err != nil {
		http.Error(r.writer, "expected a form of at most 32 kB, found a larger or invalid one", http.StatusBadRequest)
		return
	}
	flip, err := s.parseFlip(r.Request, r.PostForm)
	if err != nil {
		http.Error(r.writer, err.Error(), http.StatusBadRequest)
		return
	}
	changed, err := flip.write(ctx, r.caller.Client, s.Clock)
	if err != nil {
		status, text := describeError(err)
		http.Error(r.writer, text, status)
		return
	}
	s.logFlip(r.caller.Name, flip, changed)
	r.writer.WriteHeader(http.StatusNoContent)
}

func (s *Server) logFlip(user string, f flip, changed bool) {
	s.Log.Info("a switch was flipped on the page", "user", user, "kind", f.kind.GVK().Kind, "namespace", f.namespace,
		"name", f.name, "part", f.part, "verb", f.verb, "changed", changed)
}
