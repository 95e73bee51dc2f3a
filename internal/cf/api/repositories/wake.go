// SPDX-License-Identifier: Apache-2.0

package repositories

import (
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// wake tells those who wait for an object, by its name, that it has changed.
type wake struct {
	mu      sync.Mutex
	waiting map[string]*bell
}

// bell rings once for all who wait.
type bell struct {
	rung    chan struct{}
	waiters int
}

func newWake() *wake { return &wake{waiting: map[string]*bell{}} }

// of is closed at the next change. Call leave when it is waited for no more.
func (w *wake) of(name string) (rung <-chan struct{}, leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.waiting[name]
	if b == nil {
		b = &bell{rung: make(chan struct{})}
		w.waiting[name] = b
	}
	b.waiters++
	return b.rung, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if b.waiters--; b.waiters == 0 && w.waiting[name] == b {
			delete(w.waiting, name)
		}
	}
}

// OnAdd wakes.
func (w *wake) OnAdd(obj any, _ bool) { w.changed(obj) }

// OnUpdate wakes.
func (w *wake) OnUpdate(_, obj any) { w.changed(obj) }

// OnDelete wakes.
func (w *wake) OnDelete(obj any) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	w.changed(obj)
}

func (w *wake) changed(obj any) {
	o, ok := obj.(client.Object)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if b := w.waiting[o.GetName()]; b != nil {
		close(b.rung)
		delete(w.waiting, o.GetName())
	}
}
