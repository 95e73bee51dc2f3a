// SPDX-License-Identifier: Apache-2.0

package imageregistry

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

	"github.com/torpor-dev/torpor/internal/egress"
)

// anyPublic and nobody are the entries of a policy that name no server.
const anyPublic, nobody = "*", "none"

const (
	connectTimeout = 3 * time.Second
	idleTimeout    = 30 * time.Second
	// maxIdleConnections are kept for the next image, of all registries together.
	maxIdleConnections = 32
	// maxRequests about one image are above what redirects and tokens need.
	maxRequests = 30
)

var (
	errNotPublic       = errors.New("the address is none of the internet, and the policy does not list it")
	errPlainHTTP       = errors.New("the URL is no https, and the policy does not list its server with http://")
	errTooManyRequests = errors.New("the registry redirects too often")
	errNoSuchProxy     = errors.New("the proxy of the environment is no URL")
)

// Policy says which registries may be asked. The zero Policy lets none be asked.
type Policy struct {
	isAnyPublic bool
	// listed may have any address but link-local and metadata ones; those of plain are in it, too.
	listed, plain egress.Endpoints
}

// ParsePolicy reads what egress.ParseEndpoints does, each with http:// before it if the server may be asked without TLS, and * for all
// servers with a public address. An empty list and "none" let nobody be asked.
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
			return Policy{}, fmt.Errorf("expected %s alone, found it among %d entries; leave it out", nobody, len(list))
		case entry == anyPublic:
			p.isAnyPublic = true
			continue
		case isPlain:
			plain = append(plain, host)
		}
		listed = append(listed, host)
	}
	var errs [2]error
	p.listed, errs[0] = egress.ParseEndpoints(listed)
	p.plain, errs[1] = egress.ParseEndpoints(plain)
	return p, errors.Join(errs[:]...)
}

// isEmpty reports whether nobody may be asked.
func (p Policy) isEmpty() bool { return !p.isAnyPublic && p.listed.IsEmpty() }

// mayAsk reports whether a registry may be asked, whatever address it has.
func (p Policy) mayAsk(host string) bool { return p.isAnyPublic || p.listed.Includes(host) }

// checkURL refuses what may not be sent to, of registries and of the servers that they refer to.
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

// checkAddress refuses an address that is not listed unless it is public.
func (p Policy) checkAddress(host string) error {
	address, err := netip.ParseAddr(host)
	if err != nil {
		return fmt.Errorf("read the address to dial: %w", err)
	}
	if p.listed.Includes(host) || egress.IsPublic(address) {
		return nil
	}
	return errNotPublic
}

// dial connects with a server. Addresses are checked after names are resolved, so a name whose address changes gains nothing.
func (p Policy) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("split the address to dial: %w", err)
	}
	dialer := net.Dialer{Timeout: connectTimeout, Control: p.controlDial}
	if p.listed.Includes(host) {
		// An administrator trusts the name, so that its address may be a private one, but not that of a metadata service.
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

// guardedTransport sends each request, also those that follow a redirect or fetch a token, only where the policy lets it. A proxy of
// the environment resolves names itself and has to refuse what no tenant may reach.
type guardedTransport struct {
	policy          Policy
	direct, proxied *http.Transport
	proxyOf         func(*http.Request) (*url.URL, error)
}

func newGuardedTransport(p Policy, trusted *tls.Config) *guardedTransport {
	base := http.Transport{
		TLSClientConfig: trusted, TLSHandshakeTimeout: connectTimeout, ForceAttemptHTTP2: true, IdleConnTimeout: idleTimeout, MaxIdleConns: maxIdleConnections,
	}
	egress.BoundTransport(&base)
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
		err = errNoSuchProxy // Its URL may have a password in it.
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

// countedTransport sends maxRequests, because the library follows redirects without end, and counts the objects of answers.
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
		return 0, egress.ErrAnswerTooLarge
	}
	return n, err
}
