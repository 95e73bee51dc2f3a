// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"time"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// shutdownGrace is for how long a guest may take to turn off. Kubelets and services may take minutes.
	shutdownGrace = 5 * time.Minute
	maxRemembered = 20_000
)

// pendingShutdowns remembers which guests were asked to turn off: libvirt calls them running until they are off. What is lost with the
// manager costs another press of the button.
type pendingShutdowns struct {
	clock clock.PassiveClock
	known *lru.Cache
}

type pendingShutdown struct {
	// domainID is that of the run that was asked to end.
	domainID    uint32
	first, last time.Time
}

func newPendingShutdowns(c clock.PassiveClock) *pendingShutdowns {
	return &pendingShutdowns{clock: c, known: lru.New(maxRemembered)}
}

// remember notes that a guest was asked to turn off, and reports whether it was asked so long ago before that it does not listen.
func (p *pendingShutdowns) remember(d domain) (isDeaf bool) {
	now := p.clock.Now()
	asked, ok := p.find(d)
	if !ok {
		asked = pendingShutdown{domainID: d.id, first: now}
	}
	asked.last = now
	p.known.Add(d.uuid, asked)
	return now.Sub(asked.first) >= shutdownGrace
}

// isPending reports whether a guest may still be turning off.
func (p *pendingShutdowns) isPending(d domain) bool {
	asked, ok := p.find(d)
	return ok && p.clock.Since(asked.last) < shutdownGrace
}

func (p *pendingShutdowns) find(d domain) (pendingShutdown, bool) {
	known, ok := p.known.Get(d.uuid)
	if !ok {
		return pendingShutdown{}, false
	}
	asked, ok := known.(pendingShutdown)
	return asked, ok && asked.domainID == d.id
}
