// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ toolscache.ResourceEventHandler = (*changeNotifier)(nil)

// changeNotifier notifies waiting requests when an informer observes a change to an object with the name for which they
// wait.
type changeNotifier struct {
	mu      sync.Mutex
	waiters map[string]*changeWaiter
}

// changeWaiter holds a channel that is closed at the next change, and the number of requests that wait for it.
type changeWaiter struct {
	changed chan struct{}
	count   int
}

func newChangeNotifier() *changeNotifier { return &changeNotifier{waiters: map[string]*changeWaiter{}} }

// subscribe returns a channel that is closed at the next change to an object with this name. Call unsubscribe after the
// wait.
func (n *changeNotifier) subscribe(name string) (changed <-chan struct{}, unsubscribe func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.waiters[name]
	if w == nil {
		w = &changeWaiter{changed: make(chan struct{})}
		n.waiters[name] = w
	}
	w.count++
	return w.changed, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		// After a change, the name may have a new waiter, which must not be removed.
		if w.count--; w.count == 0 && n.waiters[name] == w {
			delete(n.waiters, name)
		}
	}
}

// OnAdd implements toolscache.ResourceEventHandler.
func (n *changeNotifier) OnAdd(obj any, _ bool) { n.notify(obj) }

// OnUpdate implements toolscache.ResourceEventHandler.
func (n *changeNotifier) OnUpdate(_, obj any) { n.notify(obj) }

// OnDelete implements toolscache.ResourceEventHandler.
func (n *changeNotifier) OnDelete(obj any) {
	// If the watch has missed a deletion, obj contains the last known state.
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	n.notify(obj)
}

func (n *changeNotifier) notify(obj any) {
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.waiters[o.GetName()]; w != nil {
		close(w.changed)
		delete(n.waiters, o.GetName())
	}
}
