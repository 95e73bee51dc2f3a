// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

// looksAtOnce is how many requests may be under way: one that is slow must not hold up the others.
const looksAtOnce = 8

// world is how the loop sees the API server.
type world interface {
	// discover returns a present sighting per kind of the group version, and none when it is not served.
	discover(ctx context.Context, gv schema.GroupVersion) (map[string]sighting, error)
	// probe tells whether a resource can be watched already.
	probe(ctx context.Context, gvr schema.GroupVersionResource) (bool, error)
	// watch feeds a watch until ctx ends, or until it has refused it.
	watch(ctx context.Context, w *watch)
}

// loop is the detector's life from its first subscriber to its last.
type loop struct {
	world   world
	tally   *tally
	refused func(target, error)
	stop    chan struct{} // closed by the detector
	ended   chan struct{} // closed by run
	wake    chan struct{}
	work    sync.WaitGroup

	mu       sync.Mutex // of everything below, and of what it points to
	reported sync.Cond
	subs     int
	tracks   map[schema.GroupVersionKind]*track
	boards   map[schema.GroupVersion]*board
	groups   map[string][]*board
	watches  map[target]*watch
	unopened []*watch
	agenda   agenda
	jobs     []func(context.Context)
	busy     int // jobs under way
	pending  []*subscriber
	speaking *subscriber // whose report is under way
}

func newLoop(w world, t *tally, refused func(target, error)) *loop {
	l := &loop{
		world: w, tally: t, refused: refused,
		stop: make(chan struct{}), ended: make(chan struct{}), wake: make(chan struct{}, 1),
		tracks: map[schema.GroupVersionKind]*track{}, boards: map[schema.GroupVersion]*board{},
		groups: map[string][]*board{}, watches: map[target]*watch{},
	}
	l.reported.L = &l.mu
	return l
}

// run serves until the detector stops it. The loop before must have ended, so that reports never overlap.
func (l *loop) run(before <-chan struct{}) {
	defer close(l.ended)
	if before != nil {
		<-before
	}
	ctx, cancel := context.WithCancel(wait.ContextForChannel(l.stop))
	defer l.work.Wait()
	defer cancel()
	timer := time.NewTimer(longPause)
	defer timer.Stop()
	for ctx.Err() == nil {
		next := l.turn(ctx, time.Now())
		if l.speak() {
			continue
		}
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-timer.C:
		}
	}
}

// turn opens new watches and starts due looks. It returns when the next one is due.
func (l *loop) turn(ctx context.Context, now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.unopened {
		w.open(ctx)
	}
	l.unopened = nil
	for b := l.agenda.take(now); b != nil; b = l.agenda.take(now) {
		b.looking = true
		l.jobs = append(l.jobs, func(ctx context.Context) { l.look(ctx, b) })
	}
	l.launch(ctx)
	return l.agenda.first()
}

// launch starts jobs as far as there is room; each one that ends makes room for another.
func (l *loop) launch(ctx context.Context) {
	for l.busy < looksAtOnce && len(l.jobs) > 0 && ctx.Err() == nil {
		job := l.jobs[0]
		l.jobs = l.jobs[1:]
		l.busy++
		l.work.Go(func() {
			job(ctx)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.busy--
			l.launch(ctx)
		})
	}
}

func (l *loop) nudge() {
	select {
	case l.wake <- struct{}{}:
	default: // It is awake.
	}
}

// hear makes looks due at the kinds that an event may concern.
func (l *loop) hear(c change) {
	now := time.Now()
	first, group, _ := strings.Cut(c.name, ".")
	boards := l.groups[group]
	if c.resource == apiServiceResource {
		boards = nil
		if b := l.boards[schema.GroupVersion{Group: group, Version: first}]; b != nil {
			boards = []*board{b}
		}
	}
	for _, b := range boards {
		for _, t := range b.tracks {
			t.hear(c, now)
		}
		b.touch(c.came, now)
		l.schedule(b, now)
	}
	l.nudge()
}

// hear notes that the kind goes with its CRD, or with its APIService if that was not one of the API server's own.
func (t *track) hear(c change, now time.Time) {
	plural, _, _ := strings.Cut(c.name, ".")
	switch {
	case !c.gone:
	case c.resource == apiServiceResource && !c.old.automanaged:
		t.memory = t.memory.gone("", now)
		t.judged++ // A probe under way is out of date.
	case c.resource == crdResource && t.memory.last.plural == plural:
		t.memory = t.memory.gone(c.old.uid, now)
		t.judged++
	}
}

func (l *loop) known(gvk schema.GroupVersionKind) (Verdict, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tracks[gvk]
	if t == nil {
		return Verdict{}, false
	}
	return t.verdict, true
}

// inform adds to a present sighting what the watches know of its CRD.
func (l *loop) inform(s sighting, group string) sighting {
	s.informed, s.uid, s.terminating = false, "", false
	crd := s.plural + "." + group
	for _, of := range []target{{resource: crdResource}, {resource: crdResource, name: crd}} {
		if w := l.watches[of]; w != nil && w.synced && !w.refused {
			s.informed, s.uid, s.terminating = true, w.objects[crd].uid, w.objects[crd].terminating
			return s
		}
	}
	return s
}
