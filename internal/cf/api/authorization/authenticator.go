// SPDX-License-Identifier: Apache-2.0

// Package authorization lets callers act with their own Kubernetes credentials. It keeps, for seconds and under a keyed hash of
// the credential, which user it belongs to and what that user may see. A credential itself does not outlive its request.
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
	// callTimeout bounds each call to the API server.
	callTimeout = 10 * time.Second
	// answerTTL is how long an answer of the API server counts.
	answerTTL = 10 * time.Second
	// denialTTL is shorter, because an administrator may be about to grant what was refused.
	denialTTL = 2 * time.Second
	// newCredentialsPerSecond limits the credentials that are shown for the first time, over all callers: each of them
	// costs a review by the API server, before it is known whether it is valid.
	newCredentialsPerSecond = 50
	newCredentialsBurst     = 200
	// burstSeconds is how many seconds' worth of requests a caller may send at once.
	burstSeconds = 5
	// maxIdentities bounds the credentials and the users that are remembered.
	maxIdentities = 4096
)

// Options configure an Authenticator.
type Options struct {
	// Config has the address and the authority of the API server; its credentials are not used.
	Config *rest.Config
	Scheme *runtime.Scheme
	Clock  clock.PassiveClock
	// RequestsPerSecond limits the requests of each caller.
	RequestsPerSecond float64
	Metrics           *CallerMetrics
}

// Authenticator finds the Kubernetes user behind each request.
type Authenticator struct {
	shared         *http.Transport
	host, path     string
	scheme         *runtime.Scheme
	mapper         meta.RESTMapper
	clock          clock.PassiveClock
	key            credentialFingerprint
	newCredentials *rate.Limiter
	metrics        *CallerMetrics
	// identities are by the fingerprint of a credential.
	identities *cache.LRUExpireCache
	limits     *callerLimits
}

// Caller is the user of one request.
type Caller struct {
	// Name and Groups are as Kubernetes has them.
	Name   string
	Groups []string
	// Client acts as the caller; Core reads logs as the caller.
	Client client.Client
	Core   corev1client.CoreV1Interface

	identity       *callerIdentity
	closeTransport func()
}

// NewAuthenticator returns an Authenticator that knows no user yet.
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
	c := &Authenticator{
		shared: shared, host: cfg.Host, path: cfg.APIPath, scheme: o.Scheme, mapper: newRESTMapper(), clock: o.Clock,
		newCredentials: rate.NewLimiter(newCredentialsPerSecond, newCredentialsBurst), metrics: o.Metrics,
		identities: cache.NewLRUExpireCacheWithClock(maxIdentities, o.Clock), limits: newCallerLimits(o.RequestsPerSecond),
	}
	if _, err := rand.Read(c.key[:]); err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return c, nil
}

// Authenticate returns the caller with this Authorization header. Close the caller when its request is answered.
func (a *Authenticator) Authenticate(ctx context.Context, header string) (*Caller, error) {
	cred, err := parseHeader(header)
	if err != nil {
		return nil, err
	}
	tripper, closeTransport := a.newTransport(cred)
	caller := &Caller{closeTransport: closeTransport}
	if err := a.identify(ctx, caller, tripper, a.key.hash(header)); err != nil {
		closeTransport()
		return nil, err
	}
	return caller, nil
}

// identify fills in the user of a caller, and refuses one that sends too many requests.
func (a *Authenticator) identify(ctx context.Context, caller *Caller, tripper http.RoundTripper, seen credentialFingerprint) (err error) {
	if caller.Client, caller.Core, err = a.newClients(tripper); err != nil {
		return err
	}
	found, _ := a.identities.Get(seen)
	known, ok := found.(*callerIdentity)
	a.metrics.countCredential(ok)
	if caller.identity = known; !ok {
		if !a.newCredentials.AllowN(a.clock.Now(), 1) {
			a.metrics.countRefusal(newCredentialLimit)
			return apierrors.NewRateLimitExceeded()
		}
		if caller.identity, err = a.reviewSelf(ctx, caller.Client); err != nil {
			return err
		}
		a.identities.Add(seen, caller.identity, answerTTL)
	}
	caller.Name, caller.Groups = caller.identity.name, caller.identity.groups
	if !a.limits.allow(caller.Name, a.clock.Now()) {
		a.metrics.countRefusal(callerLimit)
		return apierrors.NewRateLimitExceeded()
	}
	return nil
}

// Close ends the connections that were opened for this caller.
func (c *Caller) Close() { c.closeTransport() }

// IsServiceAccount reports whether the caller is a service account rather than a person.
func (c *Caller) IsServiceAccount() bool { return strings.HasPrefix(c.Name, "system:serviceaccount:") }

// reviewSelf asks the API server which user the credential belongs to; every authenticated user may ask that.
func (a *Authenticator) reviewSelf(ctx context.Context, as client.Client) (*callerIdentity, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := as.Create(ctx, review); err != nil {
		return nil, apierrors.FromError(err, "User")
	}
	return &callerIdentity{
		name: review.Status.UserInfo.Username, groups: review.Status.UserInfo.Groups,
		permissions: cache.NewLRUExpireCacheWithClock(maxAnswers, a.clock),
	}, nil
}

// callerLimits limit requests by the caller's name, so that a new token is no way around them.
type callerLimits struct {
	perSecond float64

	mu       sync.Mutex
	limiters *lru.Cache
}

func newCallerLimits(perSecond float64) *callerLimits {
	return &callerLimits{perSecond: perSecond, limiters: lru.New(maxIdentities)}
}

func (l *callerLimits) allow(name string, now time.Time) bool {
	// Without the lock two first requests of a caller at once would each make a limiter.
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
