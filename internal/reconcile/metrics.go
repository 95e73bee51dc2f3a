// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scrapeTimeout limits one list call, which would otherwise block until the cache has synced.
const scrapeTimeout = 5 * time.Second

// ScrapedCache is a manager's cache from which a metrics collector reads objects. The zero value has no cache, so List
// returns false.
type ScrapedCache struct{ reader atomic.Pointer[client.Reader] }

// Use sets the cache.
func (s *ScrapedCache) Use(cache client.Reader) { s.reader.Store(&cache) }

// List reads all objects of a kind, and reports whether it succeeded. The caller must not change the objects: they are
// not copied, because there may be thousands, and a scrape needs only a few numbers of each.
func (s *ScrapedCache) List(list client.ObjectList) bool {
	reader := s.reader.Load()
	if reader == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) // A collector receives no context.
	defer cancel()
	return (*reader).List(ctx, list, client.UnsafeDisableDeepCopy) == nil
}
