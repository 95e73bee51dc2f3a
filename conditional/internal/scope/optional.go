// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/informers"
)

// presence is what the scope knows of an optional kind. It is guarded by the view.
type presence struct {
	settled *latch          // opens with the first verdict
	kind    *informers.Kind // while it is served, without a form; a doubt changes nothing
	absent  bool
	doubt   string
}

// follow subscribes to the optional kinds. What the detector reports is taken in by a goroutine of the scope: it
// must not wait for a scope, and only the last report counts.
func (v *view) follow(d *detect.Detector, o Options) error {
	if len(o.Optional) == 0 {
		return nil
	}
	look := o.Look
	look.Kinds = slices.Clone(o.Optional)
	mail := make(chan []detect.Verdict, 1)
	cancel, err := d.Subscribe(look, func(verdicts []detect.Verdict) {
		select {
		case <-mail:
		default:
		}
		mail <- slices.Clone(verdicts)
	})
	if err != nil {
		return err
	}
	v.unfollow = cancel
	v.running.Go(func() {
		for {
			select {
			case verdicts := <-mail:
				v.learn(look.Kinds, verdicts)
			case <-v.life.Done():
				return
			}
		}
	})
	return nil
}

func (v *view) learn(kinds []schema.GroupVersionKind, verdicts []detect.Verdict) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	for i, gvk := range kinds {
		if moved := v.optional[gvk].take(gvk, verdicts[i]); moved {
			v.renew() // Before a handler can make a reconciler use the client.
			v.fail(v.move(gvk))
		}
		for s, u := range v.uses {
			if s.gvk == gvk {
				u.settle()
			}
		}
	}
}

// take notes a verdict and reports whether the kind came, went, or became another.
func (p *presence) take(gvk schema.GroupVersionKind, verdict detect.Verdict) (moved bool) {
	switch verdict.Presence {
	case detect.Served:
		kind := kindOf(gvk, verdict)
		moved = p.kind == nil || *p.kind != kind
		p.kind, p.absent = &kind, false
	case detect.Absent:
		moved = !p.absent
		p.kind, p.absent = nil, true
	case detect.Unclear:
		p.doubt = verdict.Message
		if verdict.Reason == detect.Detecting {
			return false
		}
	}
	p.settled.open()
	return moved
}

// move brings the scope's uses of a kind to where it is now.
func (v *view) move(gvk schema.GroupVersionKind) error {
	p := v.optional[gvk]
	for s, u := range v.uses {
		if s.gvk != gvk {
			continue
		}
		u.detach()
		if p.kind == nil {
			continue
		}
		if err := u.attach(*p.kind); err != nil {
			return err
		}
	}
	return nil
}

// latch is a channel that is closed once.
type latch struct {
	once   sync.Once
	opened chan struct{}
}

func newLatch() *latch { return &latch{opened: make(chan struct{})} }

func (l *latch) open() { l.once.Do(func() { close(l.opened) }) }

func (l *latch) isOpen() bool { return isClosed(l.opened) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// named is a latch as client-go waits for one.
type named struct {
	*latch
	name string
}

// Name tells what is waited for.
func (n named) Name() string { return n.name }

// Done is closed when the latch is open.
func (n named) Done() <-chan struct{} { return n.opened }
