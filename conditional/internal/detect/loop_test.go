// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// bench runs a loop in a synctest bubble over a scripted eye.
type bench struct {
	mu      sync.Mutex
	seen    sighting
	looks   atomic.Int64
	signals chan signal
	got     []Presence
}

func (b *bench) look(context.Context, schema.GroupVersionKind, string) sighting {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks.Add(1)
	return b.seen
}

// show changes what the next looks find.
func (b *bench) show(s sighting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = s
}

// looksIn counts the looks of the next span.
func (b *bench) looksIn(span time.Duration) int {
	before := b.looks.Load()
	<-time.After(span) // The bubble's clock.
	synctest.Wait()
	return int(b.looks.Load() - before)
}

func (b *bench) tell(s signal) {
	b.signals <- s
	synctest.Wait()
}

func inBubble(t *testing.T, test func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{seen: sighting{kind: missing}, signals: make(chan signal)}
		kinds := []schema.GroupVersionKind{{Group: "example.com", Version: "v1", Kind: "Widget"}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			newLoop(b, kinds, func(v []Verdict) { b.got = append(b.got, v[0].Presence) }).run(ctx, b.signals)
		}()
		synctest.Wait()
		test(t, b)
		cancel()
		<-done
	})
}

func widgets(uid string) sighting {
	return sighting{kind: present, version: "v1", scope: "Namespaced", plural: "widgets", uid: uid}
}

func TestLoopIsIdleUnlessSomethingHappens(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		if n := b.looksIn(time.Hour); n != 0 {
			t.Errorf("%d looks before the CRDs are listed, want 0", n)
		}
		b.tell(signal{synced: true})
		b.tell(signal{crd: "gadgets.example.org"})
		if n := b.looksIn(time.Hour); b.looks.Load() != 1 || n != 0 {
			t.Errorf("%d looks after the first one and an event of another group, want 0", n)
		}
		b.tell(signal{crd: "gadgets.example.com"})
		b.looksIn(time.Minute)
		if n := b.looksIn(time.Hour); n != 0 {
			t.Errorf("%d looks a minute after an event, want 0", n)
		}
		if diff := cmp.Diff([]Presence{Unclear, Absent}, b.got); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
	})
}

func TestLoopFollowsAKind(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.tell(signal{synced: true})
		b.tell(signal{crd: "widgets.example.com"})
		b.show(widgets("1"))
		if n := b.looksIn(2 * time.Millisecond); n != 1 {
			t.Errorf("%d looks within 2 ms of an event, want 1", n)
		}
		b.looksIn(time.Minute)
		b.show(sighting{kind: missing}) // It ceases to be served after its CRD's event.
		b.tell(signal{crd: "widgets.example.com", gone: true})
		b.show(widgets("2"))
		b.tell(signal{crd: "widgets.example.com"})
		if diff := cmp.Diff([]Presence{Unclear, Absent, Served, Absent, Served}, b.got); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
	})
}

func TestLoopSeesAVersionThatIsNoLongerServed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.show(widgets("1"))
		b.tell(signal{synced: true})
		b.tell(signal{crd: "widgets.example.com"}) // served: false is told before it is done.
		b.show(sighting{kind: missing})
		b.looksIn(time.Minute)
		if diff := cmp.Diff([]Presence{Unclear, Served, Unclear, Absent}, b.got); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
	})
}

func TestLoopKeepsWhatRunsInAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.show(widgets("1"))
		b.tell(signal{synced: true})
		b.show(sighting{err: errors.New("connection refused")})
		b.tell(signal{})
		if n := b.looksIn(time.Hour); n < 60 || n > 130 {
			t.Errorf("%d looks in an hour of outage, want one per half minute", n)
		}
		b.show(widgets("1"))
		b.looksIn(time.Minute)
		if diff := cmp.Diff([]Presence{Unclear, Served, Unclear, Served}, b.got); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
	})
}

func TestLoopPollsWhenTheWatchIsDenied(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.tell(signal{denied: true})
		b.looksIn(10 * time.Minute)
		if n := b.looksIn(time.Hour); n != 60 {
			t.Errorf("%d polls in a quiet hour, want 60", n)
		}
		b.show(widgets(""))
		b.looksIn(time.Minute)
		if n := b.looksIn(30 * time.Second); n != 1 {
			t.Errorf("%d polls in the 30 s soon after a change, want 1: the pause grows from 10 s again", n)
		}
		b.show(sighting{kind: missing})
		b.looksIn(2 * time.Minute)
		if diff := cmp.Diff([]Presence{Unclear, Absent, Served, Unclear, Absent}, b.got); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
	})
}
