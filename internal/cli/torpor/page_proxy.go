// SPDX-License-Identifier: Apache-2.0

package torpor

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/internal/cli/exit"
)

const (
	// callLimit limits each request to the API server, and the time to read the header of a request.
	callLimit = 30 * time.Second
	// tokenUse is how long a requested token is used. Tokens are valid for at least ten minutes.
	tokenUse = 5 * time.Minute
	// sessionCookie is the name of the cookie with the session of a browser. The page itself uses another cookie.
	sessionCookie = "torpor-page-session"
	enterPath     = "/enter"
)

// credentials returns the value of the Authorization header.
type credentials func(ctx context.Context) (string, error)

// pageProxy sends the requests of one browser to the page, with the credentials of the user. It accepts only
// requests with a cookie that it has set, because other users and websites can also reach the port.
type pageProxy struct {
	key, session string
	credentials  credentials
	target       atomic.Pointer[url.URL]
	hadTarget    atomic.Bool
	proxy        *httputil.ReverseProxy
}

func newPageProxy(key string, c credentials) *pageProxy {
	p := &pageProxy{key: key, session: rand.Text(), credentials: c}
	p.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			host := r.In.Host
			if target := p.target.Load(); target != nil {
				r.SetURL(target)
			}
			r.Out.Host = host // The page compares the host with the origin of the request.
			r.Out.Header.Del("Cookie")
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			http.Error(w, "The connection to the manager was lost. Reload the page.", http.StatusBadGateway)
		},
	}
	return p
}

// setTarget sets the address of the page, and reports whether it is the first address.
func (p *pageProxy) setTarget(target *url.URL) (isFirst bool) {
	p.target.Store(target)
	return !p.hadTarget.Swap(true)
}

func (p *pageProxy) clearTarget() { p.target.Store(nil) }

func (p *pageProxy) wasReady() bool { return p.hadTarget.Load() }

// link returns the address with which a browser logs in.
func (p *pageProxy) link(at net.Addr) string {
	return (&url.URL{Scheme: "http", Host: at.String(), Path: enterPath, RawQuery: url.Values{"key": {p.key}}.Encode()}).String()
}

// ServeHTTP implements http.Handler.
func (p *pageProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Referrer-Policy", "no-referrer") // The address that logs in contains the key.
	switch {
	case r.URL.Path == enterPath && isEqual(r.URL.Query().Get("key"), p.key):
		setSession(w, p.session)
		// With a redirect, the browser would not send the cookie, because the navigation came from another site.
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, `<!doctype html><meta http-equiv="refresh" content="0; url=/"><link rel="icon" href="data:,"><title>Torpor</title><a href="/">Open the page</a>`)
	case !p.hasSession(r):
		http.Error(w, "Expected the address that kubectl torpor page has printed, found a request without its session.", http.StatusUnauthorized)
	case r.URL.Path == "/logout":
		setSession(w, "; Max-Age=0")
		fmt.Fprintln(w, "You are logged out. The address that kubectl torpor page has printed logs you in again.")
	case p.target.Load() == nil:
		http.Error(w, "kubectl torpor page is connecting to the manager. Reload the page.", http.StatusServiceUnavailable)
	default:
		header, err := p.credentials(r.Context())
		if err != nil {
			http.Error(w, "read your credentials: "+err.Error(), http.StatusUnauthorized)
			return
		}
		r.Header.Set("Authorization", header)
		p.proxy.ServeHTTP(w, r)
	}
}

// setSession sets the cookie of the session. The cookie does not have the attribute Secure, because some browsers
// drop such a cookie from a loopback address without TLS.
func setSession(w http.ResponseWriter, value string) {
	w.Header().Add("Set-Cookie", sessionCookie+"="+value+"; Path=/; HttpOnly; SameSite=Strict")
}

func (p *pageProxy) hasSession(r *http.Request) bool {
	cookie, err := r.Cookie(sessionCookie)
	return err == nil && isEqual(cookie.Value, p.session)
}

func isEqual(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// newCredentials returns the credentials of the kubeconfig, or those of the ServiceAccount in --service-account.
func (p *pageCommand) newCredentials(ctx context.Context, kube *kubeClient, namespace string) (credentials, error) {
	if p.account == "" {
		return readBearerToken(ctx, kube.config)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.account}}
	if of, name, isQualified := strings.Cut(p.account, "/"); isQualified {
		account.Namespace, account.Name = of, name
	}
	requested := &requestedToken{kube: kube, account: account, clock: p.clock}
	_, err := requested.read(ctx)
	return requested.read, err
}

// readBearerToken returns the credentials that client-go adds to a request, which may come from an exec plugin.
func readBearerToken(ctx context.Context, config *rest.Config) (credentials, error) {
	seen := &headerRecorder{}
	wrapped, err := rest.HTTPWrappersForConfig(config, seen)
	if err != nil {
		return nil, fmt.Errorf("read the credentials of the kubeconfig: %w", err)
	}
	read := func(ctx context.Context) (string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host, http.NoBody)
		if err != nil {
			return "", fmt.Errorf("read the credentials of the kubeconfig: %w", err)
		}
		answer, err := wrapped.RoundTrip(request)
		if err != nil {
			return "", fmt.Errorf("read the credentials of the kubeconfig: %w", err)
		}
		return answer.Header.Get("Authorization"), answer.Body.Close()
	}
	header, err := read(ctx)
	switch {
	case err != nil:
		return nil, err
	case config.Impersonate.UserName != "":
		return nil, exit.WrongUsage("expected no --as, because the page accepts only a token, found %q; set --service-account to a ServiceAccount", config.Impersonate.UserName)
	case !strings.HasPrefix(header, "Bearer "):
		return nil, exit.Error{Code: exit.Refused, Err: errors.New(
			"expected a token in the kubeconfig, found other credentials, which a browser cannot use; set --service-account to a ServiceAccount")}
	}
	return read, nil
}

// headerRecorder returns the headers of a request as the headers of the response, and sends nothing.
type headerRecorder struct{}

func (*headerRecorder) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: r.Header, Body: http.NoBody, Request: r}, nil
}

// requestedToken is a token of a ServiceAccount. A new token is requested before it expires.
type requestedToken struct {
	kube    *kubeClient
	account *corev1.ServiceAccount
	clock   clock.PassiveClock

	mu    sync.Mutex
	token string
	until time.Time
}

func (t *requestedToken) read(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.clock.Now(); now.After(t.until) {
		ctx, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		request := &authenticationv1.TokenRequest{}
		if err := t.kube.SubResource("token").Create(ctx, t.account, request); err != nil {
			return "", fmt.Errorf("request a token of the ServiceAccount %s/%s: %w", t.account.Namespace, t.account.Name, err)
		}
		t.token, t.until = request.Status.Token, now.Add(tokenUse)
	}
	return "Bearer " + t.token, nil
}
