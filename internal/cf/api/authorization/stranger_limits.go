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
	// failureBurstSeconds is how many seconds' worth of failed credentials a source may show at once.
	failureBurstSeconds = 4
	// failuresOfAll limits the failed credentials of all sources from which nobody was let in lately.
	failuresOfAll, failuresOfAllBurst = 50, 200
	// reviewsOfSource and reviewsOfAll bound the reviews in flight, beside which others wait.
	reviewsOfSource, reviewsOfAll = 16, 64
	// maxSources bounds the sources that are remembered.
	maxSources = 4096
	// maxFailures bounds the failed credentials that are remembered, for failureTTL.
	maxFailures = 4096
	failureTTL  = 5 * time.Second
	// trustTTL is how long it counts that a credential, or somebody of a source, was let in.
	trustTTL = time.Hour
	// prefixBitsV6 are the bits of an address that its owner cannot choose.
	prefixBitsV6 = 64
)

// strangerLimits bound what credentials may cost that nobody has been let in with. Only failures are counted, so that any number
// of honest newcomers is let in, and each is counted to its source, so that one who guesses is refused alone.
type strangerLimits struct {
	clock     clock.PassiveClock
	perSource rate.Limit
	failures  *cache.LRUExpireCache
	all       *rate.Limiter
	reviews   chan struct{}

	mu      sync.Mutex
	sources *lru.Cache
}

// addressSource is where requests come from.
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

// review calls ask about a credential, unless too many that failed came from its source. It waits while too many others are being
// asked about.
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
			return apierrors.NewServiceUnavailable("expected a moment in which fewer new credentials are looked at, found none; try again", ctx.Err())
		}
	}
	// Those before it in the queue may have failed meanwhile.
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

// mayAsk takes nothing: failures are counted when they are known to be some.
func (l *strangerLimits) mayAsk(source *addressSource) bool {
	now := l.clock.Now()
	return source.failures.TokensAt(now) >= 1 && (source.isTrusted(now) || l.all.TokensAt(now) >= 1)
}

func (l *strangerLimits) noteFailure(source *addressSource, seen credentialFingerprint, err error) {
	now := l.clock.Now()
	// Of several at once, each is counted: a reservation goes below zero, where asking for leave would count nothing.
	source.failures.ReserveN(now, 1)
	if !source.isTrusted(now) {
		l.all.ReserveN(now, 1)
	}
	l.failures.Add(seen, err, failureTTL)
}

func (l *strangerLimits) sourceOf(remote string) *addressSource {
	key := sourceKey(remote)
	// Without the lock two first requests of a source at once would each make a limiter.
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

// sourceKey returns the address of a host:port; of IPv6 the network, in which one owner has any number of addresses.
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

// isTrusted reports whether somebody was let in from here lately.
func (s *addressSource) isTrusted(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.lastGood.IsZero() && now.Sub(s.lastGood) < trustTTL
}
