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

// recentFor is how long what the cloud said of a waking cluster is good enough. Its API is looked at twice a second,
// and the cloud shall not pay for that.
const recentFor = 5 * time.Second

// recent remembers the machines of waking clusters for a few seconds. Forgetting them costs one more call.
type recent struct {
	mu   sync.Mutex
	seen map[types.UID]sighting
}

type sighting struct {
	machines []actuator.Machine
	at       time.Time
}

func (r *recent) machines(uid types.UID, o hibernation.Observed) ([]actuator.Machine, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.seen[uid]
	return s.machines, ok && hibernation.MayRemember(o) && o.Now.Sub(s.at) < recentFor
}

// keep also drops what is too old, so that nothing stays of clusters that are gone.
func (r *recent) keep(uid types.UID, o hibernation.Observed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.seen, func(_ types.UID, s sighting) bool { return o.Now.Sub(s.at) >= recentFor })
	delete(r.seen, uid)
	if hibernation.MayRemember(o) {
		r.seen[uid] = sighting{machines: o.Machines, at: o.Now}
	}
}
