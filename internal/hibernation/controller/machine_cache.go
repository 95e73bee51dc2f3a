// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/torpor-dev/torpor/actuator"
	"github.com/torpor-dev/torpor/internal/hibernation"
)

// machineCacheTTL is how long the machines of a resuming cluster are not listed again. Its own API is probed twice a
// second, and the cloud's rate limit shall not pay for that.
const machineCacheTTL = 5 * time.Second

// machineCache keeps the machines of resuming clusters for a few seconds. Losing them costs one more call.
type machineCache struct {
	mu      sync.Mutex
	entries map[types.UID]cachedMachines
}

type cachedMachines struct {
	machines []actuator.Machine
	at       time.Time
}

func (c *machineCache) freshMachines(uid types.UID, o hibernation.Observed) ([]actuator.Machine, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cached, ok := c.entries[uid]
	return cached.machines, ok && hibernation.MayUseCachedMachines(o) && o.Now.Sub(cached.at) < machineCacheTTL
}

func (c *machineCache) storeMachines(uid types.UID, o hibernation.Observed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// What is too old goes as well, so that nothing stays of clusters that are gone.
	maps.DeleteFunc(c.entries, func(_ types.UID, old cachedMachines) bool { return o.Now.Sub(old.at) >= machineCacheTTL })
	delete(c.entries, uid)
	if hibernation.MayUseCachedMachines(o) {
		c.entries[uid] = cachedMachines{machines: o.Machines, at: o.Now}
	}
}
