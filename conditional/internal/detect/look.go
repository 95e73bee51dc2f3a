// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lookTimeout bounds one request.
const lookTimeout = 10 * time.Second

// look asks discovery for a group version and lets all its kinds know.
func (l *loop) look(ctx context.Context, b *board) {
	short, cancel := context.WithTimeout(ctx, lookTimeout)
	found, err := l.world.discover(short, b.gv)
	cancel()
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	b.looking = false
	best := missing
	if err != nil {
		best = unreadable
	}
	var f finding
	for kind, t := range b.tracks {
		s, served := found[kind]
		switch {
		case err != nil:
			s = sighting{kind: unreadable, err: err}
		case served:
			best = present
		default:
			s = sighting{kind: missing}
		}
		f = f.and(l.see(t, s, now))
	}
	l.tally.count(best)
	l.after(b, f, now)
}

// see judges a sighting. What is served but not known yet is probed before.
func (l *loop) see(t *track, s sighting, now time.Time) finding {
	if s.kind != present {
		return l.judge(t, s, now)
	}
	s = l.inform(s, t.gvk.Group)
	if t.warming {
		return finding{probing: true}
	}
	if !s.watchable || t.memory.same(s) || t.memory.doubts(s, now) {
		return l.judge(t, s, now)
	}
	t.warming = true
	judged := t.judged
	l.jobs = append(l.jobs, func(ctx context.Context) { l.warm(ctx, t, s, judged) })
	return finding{probing: true}
}

// warm probes a kind and judges it, unless something else was seen of it meanwhile.
func (l *loop) warm(ctx context.Context, t *track, s sighting, judged uint64) {
	short, cancel := context.WithTimeout(ctx, lookTimeout)
	ready, err := l.world.probe(short, schema.GroupVersionResource{Group: t.gvk.Group, Version: t.gvk.Version, Resource: s.plural})
	cancel()
	if ctx.Err() != nil {
		return
	}
	switch {
	case err != nil:
		s = sighting{kind: unreadable, err: err}
	case !ready:
		s.kind = warming
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.count(s.kind)
	t.warming = false
	now := time.Now()
	f := finding{again: true, wanted: true}
	if l.tracks[t.gvk] == t && t.judged == judged && (s.kind != present || l.inform(s, t.gvk.Group) == s) {
		f = l.judge(t, s, now)
	}
	b := t.board
	if soon := now.Add(b.pause); !b.looking && (b.next.IsZero() || f.again && soon.Before(b.next)) {
		l.schedule(b, b.plan(f, now)) // The end of a look under way plans the next one.
	}
	l.nudge()
}

func (l *loop) judge(t *track, s sighting, now time.Time) finding {
	old := t.verdict
	f := finding{wanted: s.kind == missing || s.kind == warming}
	t.memory, t.verdict, f.again = t.memory.judge(s, now)
	t.judged++
	if f.moved = old != t.verdict; f.moved {
		for s := range t.subs {
			l.mark(s)
		}
	}
	return f
}

// after plans the next look, unless an event made one due during this one.
func (l *loop) after(b *board, f finding, now time.Time) {
	next := b.next
	if next.IsZero() || now.Before(next) {
		if planned := b.plan(f, now); next.IsZero() || !planned.IsZero() && planned.Before(next) {
			next = planned
		}
	}
	b.next = time.Time{}
	l.schedule(b, next)
	l.nudge()
}
