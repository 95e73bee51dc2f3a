// SPDX-License-Identifier: Apache-2.0

package imagemetadata

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/torpor-dev/torpor/internal/httpguard"
)

// anyPublic is the entry that allows all registries with a public address. nobody is the entry that allows no registry.
const anyPublic, nobody = "*", "none"

const (
	connectTimeout = 3 * time.Second
	idleTimeout    = 30 * time.Second
	// maxIdleConnections limits the idle connections to all registries combined.
	maxIdleConnections = 32
	// maxRequests limits the number of requests for one image. Even with redirects and token requests, an image needs
	// fewer.
	maxRequests = 30
)

var (
	errNotPublic       = errors.New("the address is not public, and --image-registries does not list it")
	errPlainHTTP       = errors.New("the URL is not https, and --image-registries does not list its server with http://")
	errTooManyRequests = errors.New("the registry redirects too often")
	errNoSuchProxy     = errors.New("the proxy of the environment is not a URL")
)

// Policy defines which registries may be contacted. The zero value allows none.
type Policy struct {
	isAnyPublic bool
	// Servers in listed may have any address, but link-local addresses and those of metadata services must be listed
	// themselves. listed includes the servers in plain.
	listed, plain httpguard.Endpoints
}

// ParsePolicy parses entries in the format of httpguard.ParseEndpoints. The prefix http:// allows the server without
// TLS, and * allows all servers with a public address. An empty list or "none" allows no server.
func ParsePolicy(list []string) (Policy, error) {
	if len(list) == 0 || slices.Equal(list, []string{nobody}) {
		return Policy{}, nil
	}
	var p Policy
	var listed, plain []string
	for _, entry := range list {
		host, isPlain := strings.CutPrefix(entry, "http://")
		switch {
		case entry == nobody:
			return Policy{}, fmt.Errorf("expected %[1]s as the only entry, found %[2]d entries; remove %[1]s", nobody, len(list))
		case entry == anyPublic:
			p.isAnyPublic = true
			continue
		case isPlain:
			plain = append(plain, host)
		}
		listed = append(listed, host)
	}
	var errs [2]error
	p.listed, errs[0] = httpguard.ParseEndpoints(listed)
	p.plain, errs[1] = httpguard.ParseEndpoints(plain)
	return p, errors.Join(errs[:]...)
}

// isEmpty reports whether no registry may be contacted.
func (p Policy) isEmpty() bool { return !p.isAnyPublic && p.listed.IsEmpty() }

// mayAsk reports whether the policy allows the host of a registry. The address of the host is not known yet.
func (p Policy) mayAsk(host string) bool { return p.isAnyPublic || p.listed.Includes(host) }

// checkURL rejects the URL of a registry, redirect target or token service if the policy does not allow it.
func (p Policy) checkURL(u *url.URL) error {
	host := u.Hostname()
	if u.Scheme != "https" && (u.Scheme != "http" || !p.plain.Includes(host)) {
		return errPlainHTTP
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return p.checkAddress(host)
	}
	return nil
}

// checkAddress rejects an address that is neither listed nor public.
func (p Policy) checkAddress(host string) error {
	address, err := netip.ParseAddr(host)
	if err != nil {
		return fmt.Errorf("read the address to dial: %w", err)
	}
	if p.listed.Includes(host) || httpguard.IsPublic(address) {
		return nil
	}
	return errNotPublic
}

// dial connects to a server. It checks the resolved address, so a name with changing addresses cannot bypass the check.
func (p Policy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("split the address to dial: %w", err)
	}
	dialer := net.Dialer{Timeout: connectTimeout, Control: p.controlDial}
	if p.listed.Includes(host) {
		// The administrator trusts the name, so its address may be private, but it may not be that of a metadata
		// service.
		dialer.Control = p.listed.ControlDial
	}
	return dialer.DialContext(ctx, network, address)
}

func (p Policy) controlDial(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("split the address to dial: %w", err)
	}
	return p.checkAddress(host)
}

// guardedTransport sends every request, including redirects and token requests, only to servers that the policy allows.
// An HTTP proxy resolves names itself. It must therefore reject addresses that tenants must not reach.
type guardedTransport struct {
	policy          Policy
	direct, proxied *http.Transport
	proxyOf         func(*http.Request) (*url.URL, error)
}

func newGuardedTransport(p Policy, trusted *tls.Config) *guardedTransport {
	base := http.Transport{
		TLSClientConfig: trusted, TLSHandshakeTimeout: connectTimeout, ForceAttemptHTTP2: true, IdleConnTimeout: idleTimeout, MaxIdleConns: maxIdleConnections,
	}
	httpguard.BoundTransport(&base)
	t := &guardedTransport{policy: p, direct: base.Clone(), proxied: base.Clone(), proxyOf: http.ProxyFromEnvironment}
	t.direct.DialContext = p.dial
	t.proxied.Proxy, t.proxied.DialContext = t.proxyOf, (&net.Dialer{Timeout: connectTimeout}).DialContext
	return t
}

// RoundTrip implements http.RoundTripper.
func (t *guardedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	err := t.policy.checkURL(r.URL)
	if err == nil {
		var proxy *url.URL
		if proxy, err = t.proxyOf(r); err == nil && proxy == nil {
			return t.direct.RoundTrip(r)
		}
		if err == nil {
			return t.proxied.RoundTrip(r)
		}
		err = errNoSuchProxy // The error is replaced, because the proxy's URL may contain a password.
	}
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return nil, err
}

func (t *guardedTransport) closeIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}

// countedTransport sends at most maxRequests requests, because the library follows redirects without a limit. It also
// limits the number of JSON objects in responses.
type countedTransport struct {
	base http.RoundTripper
	sent atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (t *countedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.sent.Add(1) > maxRequests {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, errTooManyRequests
	}
	answer, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer.Body = &countedBody{ReadCloser: answer.Body}
	return answer, nil
}

type countedBody struct {
	io.ReadCloser
	objects int
}

// Read implements io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.objects += bytes.Count(p[:n], []byte("{")); b.objects > maxAnswerObjects {
		return 0, httpguard.ErrAnswerTooLarge
	}
	return n, err
}
