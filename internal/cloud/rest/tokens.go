// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/utils/clock"
)

// tokenRenewal is the remaining lifetime at which a token is replaced. It exceeds the duration of any call.
const tokenRenewal = time.Minute

// AccessToken grants access to an account until Expires.
type AccessToken struct {
	Value   string
	Expires time.Time
}

// TokenCache stores an account's token. It is safe for concurrent use, and fetches one token at a time.
type TokenCache struct {
	clock    clock.PassiveClock
	fetch    func(context.Context) (AccessToken, error)
	fetching *semaphore.Weighted

	mu    sync.Mutex
	known AccessToken
}

// NewTokenCache returns a cache that fetches tokens on demand.
func NewTokenCache(now clock.PassiveClock, fetch func(context.Context) (AccessToken, error)) *TokenCache {
	return &TokenCache{clock: now, fetch: fetch, fetching: semaphore.NewWeighted(1)}
}

func (c *TokenCache) get(ctx context.Context) (string, error) {
	if known := c.valid(); known != "" {
		return known, nil
	}
	if err := c.fetching.Acquire(ctx, 1); err != nil {
		return "", err
	}
	defer c.fetching.Release(1)
	if known := c.valid(); known != "" {
		return known, nil
	}
	fetched, err := c.fetch(ctx)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = fetched
	return fetched.Value, nil
}

// valid returns the cached token, or "" if no token is cached or it is about to expire.
func (c *TokenCache) valid() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known.Expires.Sub(c.clock.Now()) < tokenRenewal {
		return ""
	}
	return c.known.Value
}

// drop removes a refused token, unless it was already replaced.
func (c *TokenCache) drop(value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known.Value == value {
		c.known = AccessToken{}
	}
}
