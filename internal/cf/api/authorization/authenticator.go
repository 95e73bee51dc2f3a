// SPDX-License-Identifier: Apache-2.0

// Package authorization lets callers act with their own Kubernetes credentials. It caches the user of a credential and
// the user's permissions for a few seconds. For an hour it also remembers that the credential was valid. During this
// time, requests with the credential are exempt from the limits on failed credentials. Cache keys are keyed hashes of
// the credentials. Credentials themselves are dropped after their request.
package authorization

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	k8serrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/cache"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

const (
	// callTimeout limits each call to the API server.
	callTimeout = 10 * time.Second
	// maxUnreadBytes limits the unread part of one response from the API server. Logs arrive faster than they are
	// processed, and HTTP/2 buffers up to 4 MiB of each stream by default.
	maxUnreadBytes = 64 << 10
	// answerTTL is the time for which a response from the API server is cached.
	answerTTL = 10 * time.Second
	// denialTTL is the time for a denial. It is shorter, because an administrator may be about to grant the right.
	denialTTL = 2 * time.Second
	// The burst of a caller's rate limit is the number of requests that the rate allows in burstSeconds.
	burstSeconds = 5
	// maxIdentities limits the cached credentials and users. maxAnswers limits the cached permissions.
	maxIdentities = 1 << 14
	maxAnswers    = 1 << 17
	// anonymousUser is the user that Kubernetes assigns to unauthenticated requests.
	anonymousUser = "system:anonymous"
)

// Options configures an Authenticator.
type Options struct {
	// Config holds the address and the certificate authority of the API server. Its credentials are not used.
	Config *rest.Config
	Scheme *runtime.Scheme
	// Mapper returns the current RESTMapper of the kinds that callers read and write. If it is nil, a RESTMapper of the
	// kinds of apps is used.
	Mapper func() meta.RESTMapper
	Clock  clock.PassiveClock
	// RequestsPerSecond limits the requests of each caller.
	RequestsPerSecond float64
	// FailuresPerSecond limits the rate of invalid credentials from one address.
	FailuresPerSecond float64
	Metrics           *CallerMetrics
}

// Authenticator finds the Kubernetes user of each request.
type Authenticator struct {
	shared *http.Transport
	// host and path are the address of the Kubernetes API server. userAgent is the user agent of the CF API.
	host, path, userAgent string
	scheme                *runtime.Scheme
	mapper                func() meta.RESTMapper
	clock                 clock.PassiveClock
	key                   credentialFingerprint
	metrics               *CallerMetrics
	// identities are keyed by the fingerprint of a credential. permissions are keyed by the fingerprint and the
	// permission.
	identities, permissions *cache.LRUExpireCache
	limits                  *callerLimits
	strangers               *strangerLimits
}

// Caller is the user of one request.
type Caller struct {
	// Name and Groups are the Kubernetes user's name and groups.
	Name   string
	Groups []string
	// Client sends requests as the caller. Core reads logs as the caller.
	Client client.Client
	Core   corev1client.CoreV1Interface
	// CertificateExpires is the expiry time of the caller's client certificate. It is zero for a token.
	CertificateExpires time.Time

	fingerprint    credentialFingerprint
	permissions    *cache.LRUExpireCache
	closeTransport func()
}

// NewAuthenticator returns an Authenticator with an empty cache.
func NewAuthenticator(o Options) (*Authenticator, error) {
	cfg := rest.AnonymousClientConfig(o.Config)
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("trust the API server: %w", err)
	}
	shared, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return nil, fmt.Errorf("expected net/http's own transport, found %T", http.DefaultTransport)
	}
	shared = shared.Clone()
	shared.TLSClientConfig, shared.ForceAttemptHTTP2, shared.Proxy = tlsConfig, true, cfg.Proxy
	shared.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: maxUnreadBytes}
	c := &Authenticator{
		shared: shared, host: cfg.Host, path: cfg.APIPath, userAgent: cfg.UserAgent, scheme: o.Scheme, mapper: o.Mapper, clock: o.Clock,
		metrics: o.Metrics, identities: cache.NewLRUExpireCacheWithClock(maxIdentities, o.Clock), permissions: cache.NewLRUExpireCacheWithClock(maxAnswers, o.Clock),
		limits: newCallerLimits(o.RequestsPerSecond), strangers: newStrangerLimits(o.Clock, o.FailuresPerSecond),
	}
	if c.mapper == nil {
		ofApps := NewRESTMapper(nil)
		c.mapper = func() meta.RESTMapper { return ofApps }
	}
	if _, err := rand.Read(c.key[:]); err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	return c, nil
}

// Authenticate returns the caller with the credentials in an Authorization header. remote is the host:port of the
// client. Close the caller after the response.
func (a *Authenticator) Authenticate(ctx context.Context, header, remote string) (*Caller, error) {
	cred, err := parseHeader(header)
	if err != nil {
		return nil, err
	}
	caller := &Caller{fingerprint: a.key.hash(cred.scheme + " " + cred.value), permissions: a.permissions, closeTransport: func() {}}
	found, _ := a.identities.Get(caller.fingerprint)
	if known, ok := found.(callerIdentity); ok {
		err = a.welcomeBack(ctx, caller, cred, known)
	} else {
		a.metrics.countCredential(false)
		err = a.strangers.review(ctx, remote, caller.fingerprint, func() error { return a.ask(ctx, caller, cred) })
		if apierrors.HasStatus(err, http.StatusTooManyRequests) {
			a.metrics.countRefusal(newCredentialLimit)
		}
		if err == nil {
			err = a.limit(caller.Name)
		}
	}
	if err != nil {
		caller.Close()
		return nil, err
	}
	return caller, nil
}

// welcomeBack sets the user and the clients of a caller whose credential was valid within the last hour. The caller's
// own rate limit applies, but not the limits on failed credentials.
func (a *Authenticator) welcomeBack(ctx context.Context, caller *Caller, cred callerCredential, known callerIdentity) error {
	isFresh := a.clock.Since(known.reviewed) < answerTTL
	a.metrics.countCredential(isFresh)
	if err := a.limit(known.name); err != nil {
		return err
	}
	if isFresh {
		caller.Name, caller.Groups = known.name, known.groups
		return a.connect(caller, cred)
	}
	err := a.ask(ctx, caller, cred)
	if apierrors.HasStatus(err, http.StatusUnauthorized) {
		a.identities.Remove(caller.fingerprint)
	}
	return err
}

// limit rejects a caller that has sent too many requests.
func (a *Authenticator) limit(name string) error {
	if a.limits.allow(name, a.clock.Now()) {
		return nil
	}
	a.metrics.countRefusal(callerLimit)
	return apierrors.NewRateLimitExceeded()
}

// connect creates clients that use the caller's own credential.
func (a *Authenticator) connect(caller *Caller, cred callerCredential) error {
	certificates, err := cred.parseCertificates()
	if err != nil {
		return err
	}
	if len(certificates) > 0 && certificates[0].Leaf != nil {
		caller.CertificateExpires = certificates[0].Leaf.NotAfter
	}
	tripper, closeTransport := a.newTransport(cred, certificates)
	caller.closeTransport = closeTransport
	caller.Client, caller.Core, err = a.newClients(tripper)
	return err
}

// ask sends a SelfSubjectReview, which every authenticated user may create, and caches the result.
func (a *Authenticator) ask(ctx context.Context, caller *Caller, cred callerCredential) error {
	if err := a.connect(caller, cred); err != nil {
		return err
	}
	review := &authenticationv1.SelfSubjectReview{}
	err := caller.Client.Create(ctx, review)
	user := review.Status.UserInfo
	// Kubernetes treats expired certificates and certificates of untrusted authorities as anonymous.
	if k8serrors.IsForbidden(err) || err == nil && user.Username == anonymousUser {
		return apierrors.NewNotAuthenticated("Authentication error: Kubernetes rejected these credentials; log in again")
	}
	if err != nil {
		return apierrors.FromError(err, "User")
	}
	caller.Name, caller.Groups = user.Username, user.Groups
	a.identities.Add(caller.fingerprint, callerIdentity{name: caller.Name, groups: caller.Groups, reviewed: a.clock.Now()}, trustTTL)
	return nil
}

// Close closes the caller's connections.
func (c *Caller) Close() { c.closeTransport() }

// IsServiceAccount reports whether the caller is a service account rather than a person.
func (c *Caller) IsServiceAccount() bool { return strings.HasPrefix(c.Name, "system:serviceaccount:") }

// callerLimits limits the requests of each caller by name, so a caller cannot bypass the limit with a new token.
type callerLimits struct {
	perSecond float64

	mu       sync.Mutex
	limiters *lru.Cache
}

func newCallerLimits(perSecond float64) *callerLimits {
	return &callerLimits{perSecond: perSecond, limiters: lru.New(maxIdentities)}
}

func (l *callerLimits) allow(name string, now time.Time) bool {
	// Without the lock, two concurrent first requests of a caller would each create a limiter.
	l.mu.Lock()
	defer l.mu.Unlock()
	known, _ := l.limiters.Get(name)
	limiter, ok := known.(*rate.Limiter)
	if !ok {
		limiter = rate.NewLimiter(rate.Limit(l.perSecond), max(1, int(l.perSecond*burstSeconds)))
		l.limiters.Add(name, limiter)
	}
	return limiter.AllowN(now, 1)
}
