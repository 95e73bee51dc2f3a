// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// shutdownGrace is how long a guest may take to turn off. Kubelets and services may take minutes.
	shutdownGrace = 5 * time.Minute
	maxRemembered = 20_000
)

// pendingShutdowns records which guests were requested to turn off, because libvirt reports them as running until they
// are off. If the manager loses an entry, it requests the shutdown once more.
type pendingShutdowns struct {
	clock clock.PassiveClock
	known *lru.Cache
}

type pendingShutdown struct {
	// domainID is the domain's ID at the request. The ID changes at each start.
	domainID    uint32
	first, last time.Time
}

func newPendingShutdowns(c clock.PassiveClock) *pendingShutdowns {
	return &pendingShutdowns{clock: c, known: lru.New(maxRemembered)}
}

// shutdownKey identifies a domain of one daemon. A UUID alone is not enough, because the owner of another daemon
// could choose the same UUID.
type shutdownKey struct {
	place string
	uuid  [uuidBytes]byte
}

// remember records that a guest was requested to turn off. It reports whether the first request was so long ago that
// the guest evidently does not react.
func (p *pendingShutdowns) remember(place string, d domain) (isDeaf bool) {
	now := p.clock.Now()
	asked, ok := p.find(place, d)
	if !ok {
		asked = pendingShutdown{domainID: d.id, first: now}
	}
	asked.last = now
	p.known.Add(shutdownKey{place, d.uuid}, asked)
	return now.Sub(asked.first) >= shutdownGrace
}

// isPending reports whether a guest may still be turning off.
func (p *pendingShutdowns) isPending(place string, d domain) bool {
	asked, ok := p.find(place, d)
	return ok && p.clock.Since(asked.last) < shutdownGrace
}

func (p *pendingShutdowns) find(place string, d domain) (pendingShutdown, bool) {
	known, ok := p.known.Get(shutdownKey{place, d.uuid})
	if !ok {
		return pendingShutdown{}, false
	}
	asked, ok := known.(pendingShutdown)
	return asked, ok && asked.domainID == d.id
}
