// SPDX-License-Identifier: Apache-2.0

package informers

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
)

// pause is the time in which an informer is kept without a lease.
type pause struct {
	timer *time.Timer
	over  chan struct{}
}

// idle keeps the informer for a while, but no longer than its kind stays what it is: an informer of a kind that is
// gone would try to list it again and again.
func (p *Pool) idle(e *entry, remaining time.Duration) {
	r := &pause{over: make(chan struct{})}
	r.timer = time.AfterFunc(remaining, func() { p.drop(e, r) })
	e.pause = r
	look := e.look
	look.Kinds = []schema.GroupVersionKind{e.kind.GVK}
	p.keepers.Go(func() {
		cancel, err := p.detector.Subscribe(look, func(verdicts []detect.Verdict) {
			if len(verdicts) == 1 && !e.kind.still(verdicts[0]) {
				p.drop(e, r)
			}
		})
		if err != nil {
			p.drop(e, r)
			return
		}
		<-r.over
		cancel()
	})
}

// still is true unless the verdict says that the kind is gone or is another one now.
func (k Kind) still(v detect.Verdict) bool {
	switch v.Presence {
	case detect.Served:
		return v.Plural == k.Plural && v.Namespaced == k.Namespaced && v.UID == k.UID
	case detect.Absent:
		return false
	case detect.Unclear:
	}
	return true
}

// drop stops the informer if it still has that pause.
func (p *Pool) drop(e *entry, r *pause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.pause == r {
		p.stop(e)
	}
}

// wake ends the pause, if there is one.
func (e *entry) wake() {
	if e.pause != nil {
		e.pause.timer.Stop()
		close(e.pause.over)
		e.pause = nil
	}
}
