// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

const lookTimeout = 10 * time.Second

// lookAtVersion queries discovery for a group version and judges all of its kinds by the response.
func (l *detectionSession) lookAtVersion(b *versionState) {
	ctx := l.lifetime()
	short, cancel := context.WithTimeout(ctx, lookTimeout)
	found, err := l.detector.server.discoverKinds(short, b.gv)
	cancel()
	// The session has ended. That cancels the request, so its error does not show the state of the server.
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	b.isLooking = false
	best := outcomeMissing
	if err != nil {
		best = outcomeUnreadable
	}
	var f lookSummary
	for _, t := range b.kinds {
		s, served := found[t.kind]
		switch {
		case err != nil:
			s = lookResult{outcome: outcomeUnreadable, err: err}
		case served:
			best = outcomePresent
		default:
			s = lookResult{outcome: outcomeMissing}
		}
		f = f.mergeWith(l.judgeOrProbe(t, s, now))
	}
	l.detector.outcomes[best].Add(1)
	l.scheduleAfterLook(b, f, now)
}

// LookUp queries discovery for a kind, even if it has no subscriber. Its verdict is Served or Absent.
func (d *Detector) LookUp(ctx context.Context, gvk schema.GroupVersionKind) (Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	found, err := d.server.discoverKinds(ctx, gvk.GroupVersion())
	s, isServed := found[gvk.Kind]
	switch {
	case err != nil:
		d.outcomes[outcomeUnreadable].Add(1)
		return Verdict{}, err
	case !isServed:
		d.outcomes[outcomeMissing].Add(1)
		return Verdict{Presence: Absent}, nil
	}
	d.outcomes[outcomePresent].Add(1)
	return Verdict{Presence: Served, Plural: s.plural, Namespaced: s.scope == "Namespaced"}, nil
}

// checkDiscovery schedules queries of the watched group versions if the served kinds may have changed since the last
// check. No event reports a change of a kind without a CRD, or a change while a watch is down.
func (l *detectionSession) checkDiscovery() {
	l.mu.Lock()
	last, mayAsk := l.discovered, false
	for _, b := range l.versions {
		mayAsk = mayAsk || b.hasWatchers // Subscribers that poll must not cause other requests.
	}
	l.mu.Unlock()
	var now string
	var err error
	if mayAsk {
		ctx, cancel := context.WithTimeout(l.lifetime(), lookTimeout)
		defer cancel()
		known := ""
		if last != nil {
			known = *last
		}
		now, err = l.detector.server.discoveryVersion(ctx, known)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lifetime().Err() != nil {
		return
	}
	if mayAsk && err == nil {
		l.discovered = &now
		if last != nil && (now == "" || now != *last) {
			for _, b := range l.versions {
				l.lookIfIdle(b)
			}
		}
	}
	time.AfterFunc(wait.Jitter(discoveryInterval, 0.2), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.jobs = append(l.jobs, l.checkDiscovery)
		l.publishChanges()
	})
	l.publishChanges()
}

func (l *detectionSession) lookIfIdle(b *versionState) {
	if b.hasWatchers && b.next.IsZero() && !b.isLooking {
		l.scheduleLook(b, time.Now())
	}
}

// judgeOrProbe judges the result of a query. A served kind that is new or was replaced is probed first.
func (l *detectionSession) judgeOrProbe(t *kindState, s lookResult, now time.Time) lookSummary {
	if s.outcome != outcomePresent {
		s.mayBeDeleted = s.outcome == outcomeMissing && l.mayHaveMissedDeletion(t)
		return l.judgeKind(t, s, now)
	}
	s = l.addCRDFacts(s, t.version.gv.Group)
	if t.isProbing {
		return lookSummary{isProbing: true}
	}
	if !s.watchable || t.history.isSameKind(s) || t.history.isDoubtful(s, now) {
		return l.judgeKind(t, s, now)
	}
	t.isProbing = true
	judged := t.judgements
	l.jobs = append(l.jobs, func() { l.probeKind(t, s, judged) })
	return lookSummary{isProbing: true}
}

// probeKind probes a kind and judges it, unless it was judged in the meantime.
func (l *detectionSession) probeKind(t *kindState, s lookResult, judged uint64) {
	ctx := l.lifetime()
	short, cancel := context.WithTimeout(ctx, lookTimeout)
	ready, err := l.detector.server.probeWatch(short, t.version.gv.WithResource(s.plural))
	cancel()
	if ctx.Err() != nil {
		return
	}
	switch {
	case err != nil:
		s = lookResult{outcome: outcomeUnreadable, err: err}
	case !ready:
		s.outcome = outcomeInitializing
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.detector.outcomes[s.outcome].Add(1)
	t.isProbing = false
	now := time.Now()
	f := lookSummary{isOpen: true, isMissing: true}
	// The result of the probe is used only if the kind was not judged, its CRD did not change and its state was not
	// replaced by a new subscription during the probe.
	b := t.version
	if slices.Contains(b.kinds, t) && t.judgements == judged && (s.outcome != outcomePresent || l.addCRDFacts(s, b.gv.Group) == s) {
		f = l.judgeKind(t, s, now)
	}
	if soon := now.Add(b.pause); !b.isLooking && (b.next.IsZero() || f.isOpen && soon.Before(b.next)) {
		// Without a query in progress, the next query is scheduled here. Otherwise the query in progress schedules it.
		l.scheduleLook(b, b.planNextLook(f, now))
	}
	l.publishChanges()
}

func (l *detectionSession) judgeKind(t *kindState, s lookResult, now time.Time) lookSummary {
	old := t.verdict
	f := lookSummary{isMissing: s.outcome == outcomeMissing || s.outcome == outcomeInitializing}
	t.history, t.verdict, f.isOpen = t.history.judgeLook(s, now)
	t.judgements++
	switch {
	case t.verdict.Presence != Unclear:
		t.known = nil
	case old.Presence != Unclear:
		last := old
		t.known = &last
	}
	if f.hasChanged = old != t.verdict; f.hasChanged {
		for _, s := range t.subscribers {
			l.outdated[s] = struct{}{}
		}
	}
	return f
}

// scheduleAfterLook schedules the next query, unless an event has made one due during the query.
func (l *detectionSession) scheduleAfterLook(b *versionState, f lookSummary, now time.Time) {
	next := b.next
	if next.IsZero() || now.Before(next) {
		if planned := b.planNextLook(f, now); next.IsZero() || !planned.IsZero() && planned.Before(next) {
			next = planned
		}
	}
	b.next = time.Time{}
	l.scheduleLook(b, next)
	l.publishChanges()
}

// The API server starts or stops serving a kind a short time after it sends the event about the CRD. After each event
// about a CRD of a group, the server is therefore queried repeatedly for settleSpan. The first pause is firstPause, and
// each pause is twice as long as the one before: 2 ms, 4 ms, 8 ms and so on. While a kind of a new CRD is not served
// yet, no pause is longer than eagerPause for eagerSpan. Without this limit, a kind that a busy server serves 100 ms
// after the event could be detected 200 ms after it.
const (
	firstPause = 2 * time.Millisecond
	eagerPause = 32 * time.Millisecond
	eagerSpan  = 2 * time.Second
	settleSpan = 10 * time.Second
	doubtPause = 100 * time.Millisecond // doubtPause is doubled up to longPause while a verdict needs another query
	longPause  = 30 * time.Second
	pollMin    = 10 * time.Second // pollMin is doubled up to pollMax while nothing changes
	pollMax    = time.Minute

	discoveryInterval = 5 * time.Minute // discoveryInterval is the pause between two checks whether the served kinds have changed
)

// versionState is the state of one group version. One query covers all of its kinds.
type versionState struct {
	gv        schema.GroupVersion
	kinds     []*kindState
	isLooking bool        // isLooking is true if a query is in progress or about to start
	next      time.Time   // next is the time of the next query; zero if none is scheduled
	timer     *time.Timer // timer triggers the next query
	look      func()      // look performs the query

	mayHaveMissedEvents bool      // mayHaveMissedEvents is true if events of CRDs may have arrived before the first query
	settlesAt           time.Time // settlesAt is the end of the queries after an event
	crdCreatedAt        time.Time // crdCreatedAt is when a CRD of the group was last created
	eagerUntil          time.Time // eagerUntil is the end of the short pauses
	pause               time.Duration

	pollInterval  time.Duration // pollInterval is the shortest Poll of its subscribers; 0 if no subscriber polls
	hasWatchers   bool          // hasWatchers is true if a subscriber does not poll
	needsFallback bool          // needsFallback is true if a subscriber wants to watch but is not allowed to
	fallbackPause time.Duration // fallbackPause is the last pause between two queries of the fallback
}

// lookSummary is the input for calculating the time of the next query.
type lookSummary struct {
	isOpen     bool // isOpen is true if a verdict needs another query
	isMissing  bool // isMissing is true if a kind is not served
	isProbing  bool // isProbing is true if a probe is in progress
	hasChanged bool // hasChanged is true if a verdict has changed
}

func (f lookSummary) mergeWith(other lookSummary) lookSummary {
	return lookSummary{
		isOpen: f.isOpen || other.isOpen, isMissing: f.isMissing || other.isMissing,
		isProbing: f.isProbing || other.isProbing, hasChanged: f.hasChanged || other.hasChanged,
	}
}

// noteEvent begins a new series of queries, with short pauses at first. came is true if the event is about a new
// object.
func (b *versionState) noteEvent(came bool, now time.Time) {
	if came {
		b.crdCreatedAt = now
	}
	b.pause, b.settlesAt = firstPause, now.Add(settleSpan)
	// A new CRD is established by later events, and each of them may make the kind served.
	if !b.crdCreatedAt.IsZero() && now.Before(b.crdCreatedAt.Add(settleSpan)) {
		b.eagerUntil = now.Add(eagerSpan)
	}
}

// planNextLook returns the time of the next query; zero if only an event should trigger it.
func (b *versionState) planNextLook(f lookSummary, now time.Time) time.Time {
	// The event about the kind's CRD may have arrived before the first query. The kind may be served a short time
	// later, without another event.
	if b.mayHaveMissedEvents && f.isMissing {
		b.noteEvent(false, now)
	}
	b.mayHaveMissedEvents = false
	var next time.Time
	if b.hasWatchers && (f.isOpen || now.Before(b.settlesAt)) {
		next = now.Add(b.pause)
		longest := longPause
		if (f.isMissing || f.isProbing) && now.Before(b.eagerUntil) {
			longest = eagerPause
		}
		b.pause = min(2*b.pause, longest)
		return b.limitByPoll(next, now)
	}
	if !f.isProbing {
		b.pause = doubtPause
	}
	if b.needsFallback {
		b.fallbackPause = min(2*b.fallbackPause, pollMax)
		if f.hasChanged || b.fallbackPause == 0 {
			b.fallbackPause = pollMin
		}
		next = now.Add(b.fallbackPause)
	}
	return b.limitByPoll(next, now)
}

func (b *versionState) limitByPoll(next, now time.Time) time.Time {
	poll := now.Add(b.pollInterval)
	if b.pollInterval > 0 && (next.IsZero() || poll.Before(next)) {
		return poll
	}
	return next
}
