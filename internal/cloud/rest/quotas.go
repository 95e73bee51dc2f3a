// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/torpor-dev/torpor/actuator"
)

const (
	// quotaInterval is how often the quotas of a region are read.
	quotaInterval = time.Hour
	// maxQuotaRegions is the maximum number of regions of an account whose quotas are read. No cloud has more regions.
	maxQuotaRegions = 200
)

// QuotaCache holds the quotas of an account whose use exceeds their limit, by region. It is safe for concurrent use.
type QuotaCache struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	regions map[string]regionQuotas
}

type regionQuotas struct {
	exceeded []string
	readAt   time.Time
}

// NewQuotaCache returns an empty cache.
func NewQuotaCache(now clock.PassiveClock) *QuotaCache {
	return &QuotaCache{clock: now, regions: map[string]regionQuotas{}}
}

// NoteExceeded sets the exceeded quotas of running machines. regionOf returns the region of a machine, or "" if its
// quotas are not read. read returns the names of the exceeded quotas of a region.
func (c *QuotaCache) NoteExceeded(
	ctx context.Context, found map[string][]actuator.Machine, regionOf func(id string) string, read func(ctx context.Context, region string) ([]string, error),
) {
	for _, machines := range found {
		for i := range machines {
			if region := regionOf(machines[i].ID); region != "" && machines[i].State == actuator.Running {
				machines[i].ExceededQuotas = c.findExceeded(ctx, region, read)
			}
		}
	}
}

// findExceeded returns the sorted names of the exceeded quotas of a region, each after the name of the region and a
// slash. It calls read once an hour. If read fails, the previous result is kept, because quotas are no reason to fail a
// listing.
func (c *QuotaCache) findExceeded(ctx context.Context, region string, read func(ctx context.Context, region string) ([]string, error)) []string {
	now := c.clock.Now()
	c.mu.Lock()
	known, isKnown := c.regions[region]
	isFull := len(c.regions) >= maxQuotaRegions
	c.mu.Unlock()
	if isKnown && now.Sub(known.readAt) < quotaInterval || !isKnown && isFull {
		return known.exceeded
	}
	names, err := read(ctx, region)
	if err == nil {
		known.exceeded = nil
		for _, name := range names {
			known.exceeded = append(known.exceeded, region+"/"+name)
		}
		slices.Sort(known.exceeded)
	}
	known.readAt = now
	c.mu.Lock()
	defer c.mu.Unlock()
	c.regions[region] = known
	return known.exceeded
}
