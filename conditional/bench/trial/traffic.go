// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/torpor-dev/torpor/conditional/bench/world"
)

const (
	// pace is the pause between two pairs of events: an object is created and deleted.
	pace = 20 * time.Millisecond
	// lateness is how long an event may be under way before it counts as lost.
	lateness = 10 * time.Second
)

// traffic makes events all the time, and knows which of them its source has not seen yet.
type traffic struct {
	cluster *world.Cluster
	kind    schema.GroupVersionKind
	quiet   sync.Mutex // held while a pair is made, or to keep one from being made

	mu     sync.Mutex
	unseen map[string]bool // by what happened, and to which object
	made   int
}

// run ends between two pairs.
func (t *traffic) run(ctx context.Context, end <-chan struct{}) error {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ticker.C:
		case <-end:
			return nil
		}
		if err := t.pair(ctx, fmt.Sprintf("traffic-%d", i)); err != nil {
			return err
		}
	}
}

func (t *traffic) pair(ctx context.Context, name string) error {
	t.quiet.Lock()
	defer t.quiet.Unlock()
	t.expect("created " + name)
	if err := t.cluster.Create(ctx, t.kind, name); err != nil {
		return err
	}
	t.expect("deleted " + name)
	return t.cluster.Delete(ctx, t.kind, name)
}

func (t *traffic) expect(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unseen[what] = true
	t.made++
}

func (t *traffic) saw(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.unseen, what)
}

// source has all events of the kind.
func (t *traffic) source(mgr manager.Manager) source.Source {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return source.Kind(mgr.GetCache(), world.Object(t.kind, ""), handler.TypedFuncs[*unstructured.Unstructured, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*unstructured.Unstructured], _ queue) {
			t.saw("created " + e.Object.GetName())
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*unstructured.Unstructured], _ queue) {
			t.saw("deleted " + e.Object.GetName())
		},
	})
}

// lost waits for what is under way, and returns how many events never came, of how many.
func (t *traffic) lost(ctx context.Context) (lost, made int) {
	ctx, cancel := context.WithTimeout(ctx, lateness)
	defer cancel()
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for {
		t.mu.Lock()
		lost, made = len(t.unseen), t.made
		t.mu.Unlock()
		if lost == 0 {
			return lost, made
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return lost, made
		}
	}
}
