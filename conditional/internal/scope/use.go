// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"errors"
	"fmt"
	"slices"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/torpor-dev/torpor/conditional/internal/informers"
)

var errGone = errors.New("the informer was removed")

// use is what one scope does with a kind in one form: it is the informer that the scope sees. It has a lease of the
// real informer, for an optional kind only while that is served. What changes in it is guarded by the view.
type use struct {
	view     *view
	slot     slot
	optional *presence // nil for a kind that is always there
	private  bool      // its informer is not shared, because it is indexed

	lease    *informers.Lease // nil while there is none
	parted   chan struct{}    // closed when the lease ends
	indexes  []index
	handlers []*registration
	synced   *latch        // of an optional kind
	gone     chan struct{} // closed when the use ends
}

type index struct {
	obj     client.Object
	field   string
	extract client.IndexerFunc
}

// use returns the scope's use of a slot, a new one if there is none.
func (v *view) use(ctx context.Context, s slot) (*use, error) {
	if u, err := v.existing(s); u != nil || err != nil {
		return u, err
	}
	return v.add(ctx, s, false)
}

func (v *view) existing(s slot) (*use, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, ErrClosed
	}
	return v.uses[s], nil
}

// add makes the scope's use of a slot, unless another goroutine was faster.
func (v *view) add(ctx context.Context, s slot, private bool) (*use, error) {
	optional := v.optional[s.gvk]
	var kind informers.Kind
	if optional == nil {
		var err error
		if kind, err = v.find(ctx, s.gvk); err != nil {
			return nil, err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, ErrClosed
	}
	if u := v.uses[s]; u != nil {
		return u, nil
	}
	u := &use{view: v, slot: s, optional: optional, private: private, synced: newLatch(), gone: make(chan struct{})}
	if optional != nil && optional.kind != nil {
		kind = *optional.kind
	}
	if kind.Plural != "" {
		if err := u.attach(kind); err != nil {
			return nil, err
		}
	}
	u.settle()
	v.uses[s] = u
	return u, nil
}

// attach takes a lease of the kind's informer and puts indexes and handlers to it.
func (u *use) attach(kind informers.Kind) error {
	kind.Form = u.slot.form
	terms := u.view.terms
	terms.Private = u.private
	lease, err := u.view.hub.Informers.Lease(u.view.life, kind, terms)
	if err != nil {
		return err
	}
	u.lease, u.parted = lease, make(chan struct{})
	for _, i := range u.indexes {
		if err := lease.IndexField(u.view.life, i.obj, i.field, i.extract); err != nil {
			u.detach()
			return fmt.Errorf("index field %s of %s: %w", i.field, kind.GVK, err)
		}
	}
	u.relay(lease.Informer().HasSyncedChecker(), u.synced)
	for _, r := range u.handlers {
		if err := u.connect(r); err != nil {
			u.detach()
			return err
		}
	}
	return nil
}

// detach takes the handlers off and gives the lease back.
func (u *use) detach() {
	if u.lease == nil {
		return
	}
	for _, r := range u.handlers {
		u.disconnect(r)
	}
	u.lease.Release()
	u.lease = nil
	close(u.parted)
}

// end detaches for ever.
func (u *use) end() {
	if u.ended() {
		return
	}
	for _, r := range slices.Clone(u.handlers) {
		u.remove(r)
	}
	u.detach()
	close(u.gone)
}

// relay opens the latch of an optional kind's informer or handler when that has synced, or when the kind went before.
func (u *use) relay(sync toolscache.DoneChecker, to *latch) {
	if u.optional == nil || to.isOpen() {
		return
	}
	parted := u.parted
	go func() {
		select {
		case <-sync.Done():
		case <-parted:
		}
		to.open()
	}()
}

// settle lets an optional kind that is not there count as synced, once that is known.
func (u *use) settle() {
	if u.optional == nil || u.lease != nil || !u.optional.settled.isOpen() {
		return
	}
	u.synced.open()
	for _, r := range u.handlers {
		r.synced.open()
	}
}

// pending are the syncs of the use, first that of the informer.
func (u *use) pending() []awaited {
	all := []awaited{{u.checker().Done(), u.gone}}
	for _, r := range u.handlers {
		all = append(all, awaited{r.checker().Done(), r.gone})
	}
	return all
}

func (u *use) checker() toolscache.DoneChecker {
	if u.optional == nil && u.lease != nil {
		return u.lease.Informer().HasSyncedChecker()
	}
	return named{u.synced, "informer of " + u.slot.gvk.String()}
}
