// SPDX-License-Identifier: Apache-2.0

package authorization

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/torpor-dev/torpor/internal/cf/api/apierrors"
)

const (
	// The burst of failed credentials of a source is the number that its rate allows in failureBurstSeconds.
	failureBurstSeconds = 4
	// failuresOfAll limits the failed credentials per second of all untrusted sources combined.
	failuresOfAll, failuresOfAllBurst = 50, 200
	// reviewsOfSource and reviewsOfAll limit the concurrent reviews. Further reviews wait.
	reviewsOfSource, reviewsOfAll = 16, 64
	// maxSources limits the number of sources in the cache.
	maxSources = 4096
	// maxFailures limits the number of failed credentials in the cache. failureTTL is the time for which they are
	// cached.
	maxFailures = 4096
	failureTTL  = 5 * time.Second
	// trustTTL is the time for which a credential and its source are trusted after a successful review.
	trustTTL = time.Hour
	// prefixBitsV6 is the number of leading bits of an IPv6 address that its owner cannot choose.
	prefixBitsV6 = 64
)

// strangerLimits limits the cost of credentials that have not been accepted yet. It counts only failed reviews, so any
// number of valid new credentials is accepted. It counts them per source, and in total for all untrusted sources.
type strangerLimits struct {
	clock     clock.PassiveClock
	perSource rate.Limit
	failures  *cache.LRUExpireCache
	all       *rate.Limiter
	reviews   chan struct{}

	mu      sync.Mutex
	sources *lru.Cache
}

// addressSource is a network address from which requests arrive.
type addressSource struct {
	failures *rate.Limiter
	reviews  chan struct{}

	mu       sync.Mutex
	lastGood time.Time
}

func newStrangerLimits(now clock.PassiveClock, failuresPerSecond float64) *strangerLimits {
	return &strangerLimits{
		clock: now, perSource: rate.Limit(failuresPerSecond), failures: cache.NewLRUExpireCacheWithClock(maxFailures, now),
		all: rate.NewLimiter(failuresOfAll, failuresOfAllBurst), reviews: make(chan struct{}, reviewsOfAll), sources: lru.New(maxSources),
	}
}

// review calls ask to review a credential, unless the credential was rejected recently, or its source has sent too many
// invalid credentials. It waits while too many other reviews are running.
func (l *strangerLimits) review(ctx context.Context, remote string, seen credentialFingerprint, ask func() error) error {
	if failed, known := l.failures.Get(seen); known {
		if err, ok := failed.(error); ok {
			return err
		}
	}
	source := l.sourceOf(remote)
	if !l.mayAsk(source) {
		return apierrors.NewRateLimitExceeded()
	}
	for _, slots := range []chan struct{}{source.reviews, l.reviews} {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-ctx.Done():
			return apierrors.NewServiceUnavailable("expected fewer new credentials at the same time, found too many to review this one in time; try again", ctx.Err())
		}
	}
	// Other credentials may have failed during the wait.
	if !l.mayAsk(source) {
		return apierrors.NewRateLimitExceeded()
	}
	err := ask()
	switch {
	case err == nil:
		source.noteSuccess(l.clock.Now())
	case apierrors.HasStatus(err, http.StatusUnauthorized):
		l.noteFailure(source, seen, err)
	}
	return err
}

// mayAsk reports whether a review is allowed. It does not count against the rate limits, because noteFailure counts
// each failed review.
func (l *strangerLimits) mayAsk(source *addressSource) bool {
	now := l.clock.Now()
	return source.failures.TokensAt(now) >= 1 && (source.isTrusted(now) || l.all.TokensAt(now) >= 1)
}

func (l *strangerLimits) noteFailure(source *addressSource, seen credentialFingerprint, err error) {
	now := l.clock.Now()
	// ReserveN may go below zero, so every one of several concurrent failures is counted. Allow would not count all of
	// them.
	source.failures.ReserveN(now, 1)
	if !source.isTrusted(now) {
		l.all.ReserveN(now, 1)
	}
	l.failures.Add(seen, err, failureTTL)
}

func (l *strangerLimits) sourceOf(remote string) *addressSource {
	key := sourceKey(remote)
	// Without the lock, two concurrent first requests of a source would each create a limiter.
	l.mu.Lock()
	defer l.mu.Unlock()
	known, _ := l.sources.Get(key)
	source, ok := known.(*addressSource)
	if !ok {
		source = &addressSource{
			failures: rate.NewLimiter(l.perSource, max(1, int(l.perSource*failureBurstSeconds))), reviews: make(chan struct{}, reviewsOfSource),
		}
		l.sources.Add(key, source)
	}
	return source
}

// sourceKey returns the address of a host:port. For IPv6 it returns the network, because the owner of a network can use
// any address in it.
func sourceKey(remote string) netip.Prefix {
	from, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	address := from.Addr().Unmap().WithZone("")
	bits := address.BitLen()
	if address.Is6() {
		bits = prefixBitsV6
	}
	prefix, _ := address.Prefix(bits)
	return prefix
}

func (s *addressSource) noteSuccess(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastGood = now
}

// isTrusted reports whether a credential from this source was accepted within trustTTL.
func (s *addressSource) isTrusted(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.lastGood.IsZero() && now.Sub(s.lastGood) < trustTTL
}
