// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scrapeTimeout bounds the reading of one list. A cache that has not been filled yet would be waited for.
const scrapeTimeout = 5 * time.Second

// ScrapedCache is where a collector of metrics reads objects: in the cache of a manager, once there is one. The zero ScrapedCache has none.
type ScrapedCache struct{ reader atomic.Pointer[client.Reader] }

// Use has objects read from a manager's cache.
func (s *ScrapedCache) Use(cache client.Reader) { s.reader.Store(&cache) }

// List reads all objects of a kind, and reports whether it could. They are the cache's own: there may be thousands, of each of which a scrape
// wants a few numbers, and nobody may change them.
func (s *ScrapedCache) List(list client.ObjectList) bool {
	reader := s.reader.Load()
	if reader == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) // A collector is given no context.
	defer cancel()
	return (*reader).List(ctx, list, client.UnsafeDisableDeepCopy) == nil
}
