// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kindState is the state of one kind, shared by its subscribers.
type kindState struct {
	gvk         schema.GroupVersionKind
	version     *versionState
	subscribers map[*presenceSubscriber]struct{}
	history     kindHistory
	verdict     Verdict
	judgements  uint64 // counts verdicts; one that is given while a probe is under way makes the probe's result stale
	isProbing   bool   // a watch probe is under way
}

// presenceSubscriber is one call of Subscribe.
type presenceSubscriber struct {
	interest       Interest
	report         func([]Verdict)
	kinds          []*kindState    // in the order of the interest's kinds
	versions       []*versionState // of the kinds, each once
	watches        []*resourceWatch
	isReportQueued bool // a report is due
	isRemoved      bool
}

// hasSettledWatches reports whether looks may begin: a look needs to know the CRDs that the watches have listed.
func (s *presenceSubscriber) hasSettledWatches() bool {
	return !slices.ContainsFunc(s.watches, func(w *resourceWatch) bool { return !w.isSynced && !w.isRefused })
}

// hasRefusedWatch reports whether a watch is forbidden.
func (s *presenceSubscriber) hasRefusedWatch() bool {
	return slices.ContainsFunc(s.watches, func(w *resourceWatch) bool { return w.isRefused })
}

// addSubscriber registers a subscriber.
func (l *detectionLoop) addSubscriber(s *presenceSubscriber, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribers++
	for _, of := range s.interest.watchTargets() {
		w := l.watches[of]
		if w == nil {
			w = &resourceWatch{loop: l, target: of, subscribers: map[*presenceSubscriber]struct{}{}, objects: map[string]objectFacts{}}
			l.watches[of] = w
			l.unopened = append(l.unopened, w)
		}
		w.subscribers[s] = struct{}{}
		s.watches = append(s.watches, w)
	}
	for _, gvk := range s.interest.Kinds {
		t := l.stateOfKind(gvk)
		t.subscribers[s] = struct{}{}
		s.kinds = append(s.kinds, t)
		if !slices.Contains(s.versions, t.version) {
			s.versions = append(s.versions, t.version)
		}
	}
	for _, b := range s.versions {
		l.updateSchedule(b, now)
	}
	if s.hasSettledWatches() {
		l.scheduleFirstLooks(s, now)
	}
	l.queueReport(s)
	l.wakeUp()
}

// stateOfKind returns the state of a kind, a new one if there is none.
func (l *detectionLoop) stateOfKind(gvk schema.GroupVersionKind) *kindState {
	if t := l.kinds[gvk]; t != nil {
		return t
	}
	gv := gvk.GroupVersion()
	b := l.versions[gv]
	if b == nil {
		b = &versionState{gv: gv, kinds: map[string]*kindState{}, pause: doubtPause, queueIndex: -1}
		l.versions[gv] = b
		l.versionsByGroup[gv.Group] = append(l.versionsByGroup[gv.Group], b)
	}
	t := &kindState{
		gvk: gvk, version: b, subscribers: map[*presenceSubscriber]struct{}{},
		verdict: Verdict{Reason: ReasonDetecting, Message: "the API server has not been asked yet"},
	}
	b.kinds[gvk.Kind], l.kinds[gvk] = t, t
	return t
}

// scheduleFirstLooks makes the first looks due. Where a watch knows CRDs of the group, the event that makes a kind served
// may have come before the subscription, so that none follows.
func (l *detectionLoop) scheduleFirstLooks(s *presenceSubscriber, now time.Time) {
	for _, b := range s.versions {
		for _, t := range b.kinds {
			if t.judgements > 0 {
				continue
			}
			b.mayHaveMissedEvents = b.mayHaveMissedEvents || slices.ContainsFunc(s.watches, func(w *resourceWatch) bool { return w.knowsVersion(b.gv) })
			l.scheduleLook(b, now)
			break
		}
	}
}

// removeSubscriber drops a subscriber with the watches and kinds that no other one needs, and reports whether it was the
// last one. It may be called again.
func (l *detectionLoop) removeSubscriber(s *presenceSubscriber, now time.Time) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.isRemoved {
		return l.subscribers == 0
	}
	s.isRemoved = true
	l.subscribers--
	for _, w := range s.watches {
		if delete(w.subscribers, s); len(w.subscribers) == 0 {
			w.stopReflector()
			delete(l.watches, w.target)
		}
	}
	for _, t := range s.kinds {
		if delete(t.subscribers, s); len(t.subscribers) == 0 {
			l.dropKind(t)
		}
	}
	for _, b := range s.versions {
		l.updateSchedule(b, now)
	}
	l.wakeUp()
	return l.subscribers == 0
}

func (l *detectionLoop) dropKind(t *kindState) {
	b := t.version
	delete(l.kinds, t.gvk)
	delete(b.kinds, t.gvk.Kind)
	if len(b.kinds) > 0 || l.versions[b.gv] != b {
		return
	}
	l.lookQueue.setNext(b, time.Time{})
	delete(l.versions, b.gv)
	if rest := slices.DeleteFunc(l.versionsByGroup[b.gv.Group], func(other *versionState) bool { return other == b }); len(rest) > 0 {
		l.versionsByGroup[b.gv.Group] = rest
	} else {
		delete(l.versionsByGroup, b.gv.Group)
	}
}

// updateSchedule derives from a version's subscribers how it may be looked at.
func (l *detectionLoop) updateSchedule(b *versionState, now time.Time) {
	b.pollInterval, b.hasWatchers, b.needsFallback = 0, false, false
	for _, t := range b.kinds {
		for s := range t.subscribers {
			if every := s.interest.Poll; every == 0 {
				b.hasWatchers, b.needsFallback = true, b.needsFallback || s.hasRefusedWatch()
			} else if b.pollInterval == 0 || every < b.pollInterval {
				b.pollInterval = every
			}
		}
	}
	next := b.next
	// The event of a watch would have caused the next look, and the watch is forbidden.
	if b.needsFallback && next.IsZero() {
		next = now.Add(pollMin)
	}
	l.scheduleLook(b, b.limitByPoll(next, now))
}

// scheduleLook plans a look, unless a sooner one is planned; one under way is not disturbed.
func (l *detectionLoop) scheduleLook(b *versionState, at time.Time) {
	switch {
	case at.IsZero() || l.versions[b.gv] != b || !b.next.IsZero() && b.next.Before(at):
	case b.isLooking:
		b.next = at
	default:
		l.lookQueue.setNext(b, at)
	}
}
