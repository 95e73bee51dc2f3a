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
	// remembered is for how long an answer of the API server counts.
	remembered = 10 * time.Second
	// refused is the same for a No, which somebody may be about to change.
	refused = 2 * time.Second
	// strangers is how many credentials a second may be shown for the first time.
	strangers      = 50
	strangersBurst = 200
	// burstSeconds is for how many seconds of requests a caller may be ahead.
	burstSeconds = 5
	// maxKnown bounds the memory: above it, all that is too old is forgotten.
	maxKnown = 4096
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

// Callers knows who called lately.
type Callers struct {
	shared     *http.Transport
	host, path string
	scheme     *runtime.Scheme
	mapper     meta.RESTMapper
	clock      clock.PassiveClock
	perSecond  float64
	key        fingerprint
	newcomers  *rate.Limiter
	metrics    *Metrics

	mu    sync.Mutex
	known map[fingerprint]*memory
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

	memory *memory
	clock  clock.PassiveClock
	done   func()
}

// New makes callers.
func New(o Options) (*Callers, error) {
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
	c := &Callers{
		shared: shared, host: cfg.Host, path: cfg.APIPath, scheme: o.Scheme, mapper: kinds(), clock: o.Clock, perSecond: o.RequestsPerSecond,
		newcomers: rate.NewLimiter(strangers, strangersBurst), known: map[fingerprint]*memory{}, limits: map[string]*limit{},
		metrics: o.Metrics,
	}
	if _, err := rand.Read(c.key[:]); err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return c, nil
}

// Of is whoever shows this Authorization header. Call Done when the request is answered.
func (c *Callers) Of(ctx context.Context, header string) (*Caller, error) {
	cred, err := parse(header)
	if err != nil {
		return nil, err
	}
	tripper, done := c.transport(cred)
	caller := &Caller{clock: c.clock, done: done}
	if err := c.introduce(ctx, caller, tripper, c.key.of(header)); err != nil {
		done()
		return nil, err
	}
	return caller, nil
}

// introduce finds out who a caller is, and whether the caller may ask so often.
func (c *Callers) introduce(ctx context.Context, caller *Caller, tripper http.RoundTripper, seen fingerprint) (err error) {
	if caller.Client, caller.Core, err = c.clients(tripper); err != nil {
		return err
	}
	caller.memory = c.recall(seen)
	c.metrics.shown(caller.memory != nil)
	if caller.memory == nil {
		if !c.newcomers.AllowN(c.clock.Now(), 1) {
			c.metrics.refuse(newcomerLimit)
			return apierrors.TooMany()
		}
		if caller.memory, err = c.meet(ctx, caller.Client); err != nil {
			return err
		}
		c.remember(seen, caller.memory)
	}
	caller.Name, caller.Groups = caller.memory.name, caller.memory.groups
	if !c.allow(caller.Name) {
		c.metrics.refuse(callerLimit)
		return apierrors.TooMany()
	}
	return nil
}

// Done ends what was opened for this caller.
func (c *Caller) Done() { c.done() }

// IsServiceAccount says that the caller is no person.
func (c *Caller) IsServiceAccount() bool { return strings.HasPrefix(c.Name, "system:serviceaccount:") }

// meet asks the API server who this is. Everybody who is somebody may ask that.
func (c *Callers) meet(ctx context.Context, as client.Client) (*memory, error) {
	review := &authenticationv1.SelfSubjectReview{}
	if err := as.Create(ctx, review); err != nil {
		return nil, apierrors.Of(err, "User")
	}
	return &memory{
		name: review.Status.UserInfo.Username, groups: review.Status.UserInfo.Groups,
		until: c.clock.Now().Add(remembered), answers: map[Question]answer{},
	}, nil
}

func (c *Callers) recall(seen fingerprint) *memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.known[seen]
	if m == nil || c.clock.Now().After(m.until) {
		return nil
	}
	return m
}

func (c *Callers) remember(seen fingerprint, m *memory) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[seen] = m
	if len(c.known) <= maxKnown {
		return
	}
	now := c.clock.Now()
	for p, m := range c.known {
		if now.After(m.until) {
			delete(c.known, p)
		}
	}
	for name, l := range c.limits {
		if now.Sub(l.used) > burstSeconds*time.Second {
			delete(c.limits, name)
		}
	}
}

func (c *Callers) allow(name string) bool {
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
