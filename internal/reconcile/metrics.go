// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scrapeTimeout limits the reading of one list, which would otherwise wait for a cache that is not filled yet.
const scrapeTimeout = 5 * time.Second

// ScrapedCache is the cache of a manager from which a collector of metrics reads objects. The zero ScrapedCache has
// no cache yet.
type ScrapedCache struct{ reader atomic.Pointer[client.Reader] }

// Use sets the cache.
func (s *ScrapedCache) Use(cache client.Reader) { s.reader.Store(&cache) }

// List reads all objects of a kind, and reports whether it succeeded. The objects are shared with the cache and must
// not be changed: there may be thousands, and a scrape needs only a few numbers of each.
func (s *ScrapedCache) List(list client.ObjectList) bool {
	reader := s.reader.Load()
	if reader == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) // A collector receives no context.
	defer cancel()
	return (*reader).List(ctx, list, client.UnsafeDisableDeepCopy) == nil
}
