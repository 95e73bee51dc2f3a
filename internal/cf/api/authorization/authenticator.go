// SPDX-License-Identifier: Apache-2.0

// Package authorization lets callers act with their own Kubernetes credentials. It keeps, for seconds and under a keyed hash of
// the credential, who somebody is and what they may see; a credential itself does not outlive its request.
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
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

const (
	// callTimeout bounds each call to the API server.
	callTimeout = 10 * time.Second
	// answerTTL is for how long an answer of the API server counts.
	answerTTL = 10 * time.Second
	// denialTTL is the same for a No, which somebody may be about to change.
	denialTTL = 2 * time.Second
	// newCredentialsPerSecond is how many credentials a second may be shown for the first time.
	newCredentialsPerSecond = 50
	newCredentialsBurst     = 200
	// burstSeconds is for how many seconds of requests a caller may be ahead.
	burstSeconds = 5
	// maxIdentities bounds the memory: above it, all that is too old is forgotten.
	maxIdentities = 4096
)

// Options are what callers need.
type Options struct {
	// Config says where the API server is; of its credentials none is used.
	Config *rest.Config
	Scheme *runtime.Scheme
	Clock  clock.PassiveClock
	// RequestsPerSecond is how many one caller may send.
	RequestsPerSecond float64
	Metrics           *Metrics
}

// Authenticator knows who called lately.
type Authenticator struct {
	shared         *http.Transport
	host, path     string
	scheme         *runtime.Scheme
	mapper         meta.RESTMapper
	clock          clock.PassiveClock
	perSecond      float64
	key            fingerprint
	newCredentials *rate.Limiter
	metrics        *Metrics

	mu         sync.Mutex
	identities map[fingerprint]*identity
	// limits are by the caller's name, so that a new token is no way around them.
	limits map[string]*limit
}

type limit struct {
	*rate.Limiter
	used time.Time
}

// Caller is somebody for the time of one request.
type Caller struct {
	// Name and Groups are as Kubernetes has them.
	Name   string
	Groups []string
	// Client acts as the caller; Core reads logs as the caller.
	Client client.Client
	Core   corev1client.CoreV1Interface

	identity       *identity
	clock          clock.PassiveClock
	closeTransport func()
}

// NewAuthenticator makes callers.
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
		shared: shared, host: cfg.Host, path: cfg.APIPath, scheme: o.Scheme, mapper: newRESTMapper(), clock: o.Clock, perSecond: o.RequestsPerSecond,
		newCredentials: rate.NewLimiter(newCredentialsPerSecond, newCredentialsBurst), identities: map[fingerprint]*identity{}, limits: map[string]*limit{},
		metrics: o.Metrics,
	}
	if _, err := rand.Read(c.key[:]); err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return c, nil
}

// Authenticate is whoever shows this Authorization header. Call Done when the request is answered.
func (c *Authenticator) Authenticate(ctx context.Context, header string) (*Caller, error) {
	cred, err := parseHeader(header)
	if err != nil {
		return nil, err
	}
	tripper, done := c.newTransport(cred)
	caller := &Caller{clock: c.clock, closeTransport: done}
	if err := c.identify(ctx, caller, tripper, c.key.hash(header)); err != nil {
		done()
		return nil, err
	}
	return caller, nil
}

// identify finds out who a caller is, and whether the caller may ask so often.
func (c *Authenticator) identify(ctx context.Context, caller *Caller, tripper http.RoundTripper, seen fingerprint) (err error) {
	if caller.Client, caller.Core, err = c.newClients(tripper); err != nil {
		return err
	}
	caller.identity = c.findIdentity(seen)
	c.metrics.countCredential(caller.identity != nil)
	if caller.identity == nil {
		if !c.newCredentials.AllowN(c.clock.Now(), 1) {
			c.metrics.countRefusal(newCredentialLimit)
			return apierrors.NewRateLimitExceeded()
		}
		if caller.identity, err = c.reviewSelf(ctx, caller.Client); err != nil {
			return err
		}
		c.rememberIdentity(seen, caller.identity)
	}
	caller.Name, caller.Groups = caller.identity.name, caller.identity.groups
	if !c.isWithinRate(caller.Name) {
		c.metrics.countRefusal(callerLimit)
		return apierrors.NewRateLimitExceeded()
	}
	return nil
}

// Close ends what was opened for this caller.
func (c *Caller) Close() { c.closeTransport() }

// IsServiceAccount says that the caller is no person.
func (c *Caller) IsServiceAccount() bool { return strings.HasPrefix(c.Name, "system:serviceaccount:") }

// reviewSelf asks the API server who this is. Everybody who is somebody may ask that.
func (c *Authenticator) reviewSelf(ctx context.Context, as client.Client) (*identity, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := as.Create(ctx, review); err != nil {
		return nil, apierrors.FromError(err, "User")
	}
	return &identity{
		name: review.Status.UserInfo.Username, groups: review.Status.UserInfo.Groups,
		until: c.clock.Now().Add(answerTTL), answers: map[Permission]answer{},
	}, nil
}

func (c *Authenticator) findIdentity(seen fingerprint) *identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.identities[seen]
	if m == nil || c.clock.Now().After(m.until) {
		return nil
	}
	return m
}

func (c *Authenticator) rememberIdentity(seen fingerprint, m *identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.identities[seen] = m
	if len(c.identities) <= maxIdentities {
		return
	}
	now := c.clock.Now()
	for p, m := range c.identities {
		if now.After(m.until) {
			delete(c.identities, p)
		}
	}
	for name, l := range c.limits {
		if now.Sub(l.used) > burstSeconds*time.Second {
			delete(c.limits, name)
		}
	}
}

func (c *Authenticator) isWithinRate(name string) bool {
	c.mu.Lock()
	l := c.limits[name]
	if l == nil {
		l = &limit{Limiter: rate.NewLimiter(rate.Limit(c.perSecond), max(1, int(c.perSecond*burstSeconds)))}
		c.limits[name] = l
	}
	now := c.clock.Now()
	l.used = now
	c.mu.Unlock()
	return l.AllowN(now, 1)
}
