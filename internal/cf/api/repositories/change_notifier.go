// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// changeNotifier tells those who wait for an object, by its name, that it has changed.
type changeNotifier struct {
	mu      sync.Mutex
	waiting map[string]*waiter
}

// waiter rings once for all who wait.
type waiter struct {
	changed chan struct{}
	count   int
}

func newChangeNotifier() *changeNotifier { return &changeNotifier{waiting: map[string]*waiter{}} }

// subscribe is closed at the next change. Call leave when it is waited for no more.
func (w *changeNotifier) subscribe(name string) (rung <-chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.waiting[name]
	if b == nil {
		b = &waiter{changed: make(chan struct{})}
		w.waiting[name] = b
	}
	b.count++
	return b.changed, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if b.count--; b.count == 0 && w.waiting[name] == b {
			delete(w.waiting, name)
		}
	}
}

// OnAdd wakes.
func (w *changeNotifier) OnAdd(obj any, _ bool) { w.notify(obj) }

// OnUpdate wakes.
func (w *changeNotifier) OnUpdate(_, obj any) { w.notify(obj) }

// OnDelete wakes.
func (w *changeNotifier) OnDelete(obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	w.notify(obj)
}

func (w *changeNotifier) notify(obj any) {
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if b := w.waiting[o.GetName()]; b != nil {
		close(b.changed)
		delete(w.waiting, o.GetName())
	}
}
