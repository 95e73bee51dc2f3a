// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
)

// idlePeriod is the time in which an informer is kept without a lease.
type idlePeriod struct {
	timer *time.Timer
	ended chan struct{}
}

// keepIdle keeps the informer for a while, but no longer than its kind stays what it is: an informer of a kind that is
// gone would try to list it again and again.
func (p *Pool) keepIdle(e *pooledInformer, remaining time.Duration) {
	r := &idlePeriod{ended: make(chan struct{})}
	r.timer = time.AfterFunc(remaining, func() { p.dropIdle(e, r) })
	e.idle = r
	look := e.interest
	look.Kinds = []schema.GroupVersionKind{e.kind.GVK}
	// cancel waits for a report that is under way, and the report takes the pool's lock, which the caller holds here.
	p.keepers.Go(func() {
		cancel, err := p.detector.Subscribe(look, func(verdicts []detect.Verdict) {
			if len(verdicts) == 1 && !e.kind.isUnchanged(verdicts[0]) {
				p.dropIdle(e, r)
			}
		})
		if err != nil {
			p.dropIdle(e, r)
			return
		}
		<-r.ended
		cancel()
	})
}

// isUnchanged is true unless the verdict says that the kind is gone or is another one now.
func (k InformerKind) isUnchanged(v detect.Verdict) bool {
	switch v.Presence {
	case detect.Served:
		return v.Plural == k.Plural && v.Namespaced == k.Namespaced && v.UID == k.UID
	case detect.Absent:
		return false
	// A doubt is no reason to list the kind anew.
	case detect.Unclear:
	}
	return true
}

// dropIdle stops the informer if it is still in that idle period.
func (p *Pool) dropIdle(e *pooledInformer, r *idlePeriod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.idle == r {
		p.stopInformer(e)
	}
}

// endIdle ends the idle period, if there is one.
func (e *pooledInformer) endIdle() {
	if e.idle != nil {
		e.idle.timer.Stop()
		close(e.idle.ended)
		e.idle = nil
	}
}
