// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// track is the state of one kind, shared by its subscribers.
type track struct {
	gvk     schema.GroupVersionKind
	board   *board
	subs    map[*subscriber]struct{}
	memory  memory
	verdict Verdict
	judged  uint64 // how often; changes while a probe is under way make its result stale
	warming bool   // a watch probe is under way
}

// subscriber is one call of Subscribe.
type subscriber struct {
	interest Interest
	report   func([]Verdict)
	tracks   []*track // in the order of the interest's kinds
	boards   []*board // of the tracks, each once
	watches  []*watch
	pending  bool // a report is due
	gone     bool
}

// ready tells whether looks may begin: the first one wants to know what the watches know.
func (s *subscriber) ready() bool {
	return !slices.ContainsFunc(s.watches, func(w *watch) bool { return !w.synced && !w.refused })
}

// fallback tells whether a watch is missing for good.
func (s *subscriber) fallback() bool {
	return slices.ContainsFunc(s.watches, func(w *watch) bool { return w.refused })
}

// add registers a subscriber.
func (l *loop) add(s *subscriber, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subs++
	for _, of := range s.interest.targets() {
		w := l.watches[of]
		if w == nil {
			w = &watch{loop: l, target: of, subs: map[*subscriber]struct{}{}, objects: map[string]object{}}
			l.watches[of] = w
			l.unopened = append(l.unopened, w)
		}
		w.subs[s] = struct{}{}
		s.watches = append(s.watches, w)
	}
	for _, gvk := range s.interest.Kinds {
		t := l.track(gvk)
		t.subs[s] = struct{}{}
		s.tracks = append(s.tracks, t)
		if !slices.Contains(s.boards, t.board) {
			s.boards = append(s.boards, t.board)
		}
	}
	for _, b := range s.boards {
		l.replan(b, now)
	}
	if s.ready() {
		l.begin(s, now)
	}
	l.mark(s)
	l.nudge()
}

// track returns the track of a kind, a new one if there is none.
func (l *loop) track(gvk schema.GroupVersionKind) *track {
	if t := l.tracks[gvk]; t != nil {
		return t
	}
	gv := gvk.GroupVersion()
	b := l.boards[gv]
	if b == nil {
		b = &board{gv: gv, tracks: map[string]*track{}, pause: doubtPause, place: -1}
		l.boards[gv] = b
		l.groups[gv.Group] = append(l.groups[gv.Group], b)
	}
	t := &track{
		gvk: gvk, board: b, subs: map[*subscriber]struct{}{},
		verdict: Verdict{Reason: Detecting, Message: "the API server has not been asked yet"},
	}
	b.tracks[gvk.Kind], l.tracks[gvk] = t, t
	return t
}

// begin makes the first looks due. Where a watch knows CRDs of the group, a kind that is missing then may be a moment
// from being served, with no event to come.
func (l *loop) begin(s *subscriber, now time.Time) {
	for _, b := range s.boards {
		for _, t := range b.tracks {
			if t.judged > 0 {
				continue
			}
			b.late = b.late || slices.ContainsFunc(s.watches, func(w *watch) bool { return w.knows(b.gv) })
			l.schedule(b, now)
			break
		}
	}
}

// remove forgets a subscriber and what only it wanted, and tells whether it was the last one. It may be called again.
func (l *loop) remove(s *subscriber, now time.Time) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.gone {
		return l.subs == 0
	}
	s.gone = true
	l.subs--
	for _, w := range s.watches {
		if delete(w.subs, s); len(w.subs) == 0 {
			w.close()
			delete(l.watches, w.target)
		}
	}
	for _, t := range s.tracks {
		if delete(t.subs, s); len(t.subs) == 0 {
			l.drop(t)
		}
	}
	for _, b := range s.boards {
		l.replan(b, now)
	}
	l.nudge()
	return l.subs == 0
}

func (l *loop) drop(t *track) {
	b := t.board
	delete(l.tracks, t.gvk)
	delete(b.tracks, t.gvk.Kind)
	if len(b.tracks) > 0 || l.boards[b.gv] != b {
		return
	}
	l.agenda.set(b, time.Time{})
	delete(l.boards, b.gv)
	if rest := slices.DeleteFunc(l.groups[b.gv.Group], func(other *board) bool { return other == b }); len(rest) > 0 {
		l.groups[b.gv.Group] = rest
	} else {
		delete(l.groups, b.gv.Group)
	}
}

// replan notes how the subscribers of a board may find out.
func (l *loop) replan(b *board, now time.Time) {
	b.every, b.watched, b.fallback = 0, false, false
	for _, t := range b.tracks {
		for s := range t.subs {
			if every := s.interest.Poll; every == 0 {
				b.watched, b.fallback = true, b.fallback || s.fallback()
			} else if b.every == 0 || every < b.every {
				b.every = every
			}
		}
	}
	next := b.next
	if b.fallback && next.IsZero() {
		next = now.Add(pollMin)
	}
	l.schedule(b, b.polled(next, now))
}

// schedule plans a look, unless a sooner one is planned; one under way is not disturbed.
func (l *loop) schedule(b *board, at time.Time) {
	switch {
	case at.IsZero() || l.boards[b.gv] != b || !b.next.IsZero() && b.next.Before(at):
	case b.looking:
		b.next = at
	default:
		l.agenda.set(b, at)
	}
}
