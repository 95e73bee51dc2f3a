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

// machineCacheTTL is how long what the cloud said of a waking cluster is good enough. Its API is looked at twice a second,
// and the cloud shall not pay for that.
const machineCacheTTL = 5 * time.Second

// machineCache remembers the machines of waking clusters for a few seconds. Forgetting them costs one more call.
type machineCache struct {
	mu      sync.Mutex
	entries map[types.UID]cachedMachines
}

type cachedMachines struct {
	machines []actuator.Machine
	at       time.Time
}

func (r *machineCache) freshMachines(uid types.UID, o hibernation.Observed) ([]actuator.Machine, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.entries[uid]
	return s.machines, ok && hibernation.MayReuseMachines(o) && o.Now.Sub(s.at) < machineCacheTTL
}

// storeMachines also drops what is too old, so that nothing stays of clusters that are gone.
func (r *machineCache) storeMachines(uid types.UID, o hibernation.Observed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.entries, func(_ types.UID, s cachedMachines) bool { return o.Now.Sub(s.at) >= machineCacheTTL })
	delete(r.entries, uid)
	if hibernation.MayReuseMachines(o) {
		r.entries[uid] = cachedMachines{machines: o.Machines, at: o.Now}
	}
}
