// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	// reviewLifetime is how long the result of the reviews of a token and a path is cached.
	reviewLifetime = 10 * time.Second
	reviewTimeout  = 5 * time.Second
	// maxReviews limits the cached results. While the cache is full, other tokens are rejected without a review, so
	// that unauthenticated callers cannot flood the API server with reviews.
	maxReviews = 100
)

// errTooManyReviews is returned while the cache of reviews is full.
var errTooManyReviews = errors.New("expected fewer different tokens, found too many within the last seconds; try again")

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// metricsOptions enables TLS and authorization by the API server, unless plain HTTP is requested. The equivalent filter
// of controller-runtime depends on 168 packages of k8s.io/apiserver for two calls.
func metricsOptions(o Options) server.Options {
	options := server.Options{BindAddress: o.MetricsAddress}
	if !o.InsecureMetrics {
		options.SecureServing = true
		options.FilterProvider = func(cfg *rest.Config, web *http.Client) (server.Filter, error) {
			c, err := kubernetes.NewForConfigAndClient(cfg, web)
			if err != nil {
				return nil, fmt.Errorf("create client: %w", err)
			}
			guard := &metricsGuard{review: reviewWith(c), clock: clock.RealClock{}, known: map[reviewKey]reviewAnswer{}}
			return guard.filter, nil
		}
	}
	return options
}

// reviewKey identifies a review. It holds a hash instead of the token.
type reviewKey struct {
	token [sha256.Size]byte
	path  string
}

type reviewAnswer struct {
	status int
	until  time.Time
}

// metricsGuard allows callers with the permission to get the path, as in kubectl auth can-i get /metrics.
type metricsGuard struct {
	review func(ctx context.Context, token, path string) (status int, err error)
	clock  clock.PassiveClock

	mu    sync.Mutex
	known map[reviewKey]reviewAnswer
}

func (g *metricsGuard) filter(log logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || token == "" {
			http.Error(w, "expected a bearer token, found none", http.StatusUnauthorized)
			return
		}
		status, err := g.decide(r.Context(), token, r.URL.Path)
		switch {
		case err != nil:
			log.V(1).Info("cannot review the access to the metrics", "error", err.Error())
			http.Error(w, "the API server could not review the token", http.StatusServiceUnavailable)
		case status != http.StatusOK:
			http.Error(w, "expected a token with permission to get "+r.URL.Path, status)
		default:
			next.ServeHTTP(w, r)
		}
	}), nil
}

func (g *metricsGuard) decide(ctx context.Context, token, path string) (int, error) {
	key := reviewKey{sha256.Sum256([]byte(token)), path}
	if answer, ok, err := g.recall(key); ok || err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	status, err := g.review(ctx, token, path)
	if err != nil {
		return 0, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.known[key] = reviewAnswer{status, g.clock.Now().Add(reviewLifetime)}
	return status, nil
}

// recall returns a cached result, and removes expired ones. It returns an error if the result is not cached and the
// cache is full.
func (g *metricsGuard) recall(key reviewKey) (status int, ok bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	for k, a := range g.known {
		if !now.Before(a.until) {
			delete(g.known, k)
		}
	}
	a, ok := g.known[key]
	if !ok && len(g.known) >= maxReviews {
		return 0, false, errTooManyReviews
	}
	return a.status, ok, nil
}

// reviewWith returns a function that reviews a token, and whether its user may get a path.
func reviewWith(c kubernetes.Interface) func(ctx context.Context, token, path string) (int, error) {
	return func(ctx context.Context, token, path string) (int, error) {
		who, err := c.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		if err != nil {
			return 0, fmt.Errorf("review a token: %w", err)
		}
		if !who.Status.Authenticated {
			return http.StatusUnauthorized, nil
		}
		extra := map[string]authorizationv1.ExtraValue{}
		for k, v := range who.Status.User.Extra {
			extra[k] = authorizationv1.ExtraValue(v)
		}
		may, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: who.Status.User.Username, Groups: who.Status.User.Groups, UID: who.Status.User.UID, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
		}}, metav1.CreateOptions{})
		if err != nil {
			return 0, fmt.Errorf("review a right: %w", err)
		}
		if !may.Status.Allowed {
			return http.StatusForbidden, nil
		}
		return http.StatusOK, nil
	}
}
