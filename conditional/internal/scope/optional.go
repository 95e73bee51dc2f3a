// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/torpor-dev/torpor/conditional/internal/detect"
	"github.com/torpor-dev/torpor/conditional/internal/informers"
)

// optionalKind is the last state of an optional kind. It is guarded by the cache's lock.
type optionalKind struct {
	settled  *closedOnceLatch        // opens with the first verdict
	kind     *informers.InformerKind // while it is served, without a form; an unclear verdict does not change it
	isAbsent bool
	doubt    string
}

// watchOptionalKinds subscribes to the optional kinds. A goroutine of the scope applies the verdicts.
func (v *scopedCache) watchOptionalKinds(d *detect.Detector, o Options) {
	if len(o.Optional) == 0 {
		return
	}
	look := o.Interest
	look.Kinds = slices.Clone(o.Optional)
	reports, cancel := d.Subscribe(look, nil)
	v.stopWatching = cancel
	v.running.Go(func() {
		for verdicts := range reports {
			v.applyVerdicts(look.Kinds, verdicts)
		}
	})
}

func (v *scopedCache) applyVerdicts(kinds []schema.GroupVersionKind, verdicts []detect.Verdict) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isClosed {
		return
	}
	for i, gvk := range kinds {
		if moved := v.optional[gvk].noteVerdict(gvk, verdicts[i]); moved {
			v.refreshClients() // This comes before any event: a reconciler must find the kind at its new place.
			v.reportError(v.reattachInformers(gvk))
		}
		for s, u := range v.informers {
			if s.gvk == gvk {
				u.markAbsentSynced()
			}
		}
	}
}

// noteVerdict takes a verdict and reports whether the kind came, went, or became another.
func (p *optionalKind) noteVerdict(gvk schema.GroupVersionKind, verdict detect.Verdict) (moved bool) {
	switch verdict.Presence {
	case detect.Served:
		kind := kindFromVerdict(gvk, verdict)
		moved = p.kind == nil || *p.kind != kind
		p.kind, p.isAbsent = &kind, false
	case detect.Absent:
		moved = !p.isAbsent
		p.kind, p.isAbsent = nil, true
	case detect.Unclear:
		p.doubt = verdict.Message
		if verdict.Reason == detect.ReasonDetecting {
			return false
		}
	}
	p.settled.openLatch()
	return moved
}

// reattachInformers moves the scope's informers of a kind to where it is served now.
func (v *scopedCache) reattachInformers(gvk schema.GroupVersionKind) error {
	p := v.optional[gvk]
	for s, u := range v.informers {
		if s.gvk != gvk {
			continue
		}
		u.detachLease()
		if p.kind == nil {
			continue
		}
		if err := u.attachLease(*p.kind); err != nil {
			return err
		}
	}
	return nil
}

// closedOnceLatch is a channel that is closed once.
type closedOnceLatch struct {
	once   sync.Once
	opened chan struct{}
}

func newLatch() *closedOnceLatch { return &closedOnceLatch{opened: make(chan struct{})} }

func (l *closedOnceLatch) openLatch() { l.once.Do(func() { close(l.opened) }) }

func (l *closedOnceLatch) isOpen() bool { return isClosed(l.opened) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// namedLatch is a latch as client-go waits for one.
type namedLatch struct {
	*closedOnceLatch
	name string
}

func (n namedLatch) Name() string { return n.name }

func (n namedLatch) Done() <-chan struct{} { return n.opened }
