// SPDX-License-Identifier: Apache-2.0

package detect

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// After an event on a CRD of a kind's group the server is looked at again and again, since it serves, or ceases
// to serve, a little later than it tells: 2 ms, 4 ms, 8 ms … for settleSpan.
const (
	firstPause = 2 * time.Millisecond
	settleSpan = 10 * time.Second
	doubtPause = 100 * time.Millisecond // doubled up to longPause while a verdict is open
	longPause  = 30 * time.Second
	pollMin    = 10 * time.Second // doubled up to pollMax while nothing changes
	pollMax    = time.Minute
)

// signal is what the watch tells the loop. Its zero value means: the watch is lost for the moment.
type signal struct {
	synced bool
	denied bool   // the watch is not allowed
	crd    string // name of a CRD that came, changed or went
	gone   bool
}

// eye is how the loop sees the API server.
type eye interface {
	// look finds the kind; when it is not the one known by its identity, it also makes sure that it can be watched.
	look(ctx context.Context, gvk schema.GroupVersionKind, known string) sighting
}

// track is the state of one kind: what is known, and when to look again.
type track struct {
	gvk     schema.GroupVersionKind
	memory  memory
	verdict Verdict
	next    time.Time // zero: no look is due
	settled time.Time
	pause   time.Duration
	poll    time.Duration
}

type loop struct {
	eye     eye
	tracks  []*track
	report  func([]Verdict)
	polling bool
}

func newLoop(e eye, kinds []schema.GroupVersionKind, report func([]Verdict)) *loop {
	l := &loop{eye: e, report: report}
	for _, gvk := range kinds {
		l.tracks = append(l.tracks, &track{
			gvk: gvk, pause: doubtPause,
			verdict: Verdict{Reason: "Detecting", Message: "the CRDs have not been listed yet"},
		})
	}
	return l
}

// run serves signals and due looks until ctx ends.
func (l *loop) run(ctx context.Context, signals <-chan signal) {
	timer := time.NewTimer(longPause)
	defer timer.Stop()
	l.tell()
	for {
		if due, ok := l.due(); ok {
			timer.Reset(time.Until(due))
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			l.hear(s, time.Now())
		case <-timer.C:
		}
		l.lookAll(ctx)
	}
}

func (l *loop) due() (first time.Time, ok bool) {
	for _, t := range l.tracks {
		if !t.next.IsZero() && (!ok || t.next.Before(first)) {
			first, ok = t.next, true
		}
	}
	return first, ok
}

// hear makes looks due.
func (l *loop) hear(s signal, now time.Time) {
	l.polling = l.polling || s.denied
	for _, t := range l.tracks {
		switch {
		case s.crd != "":
			t.touch(s, now)
		case s.synced || s.denied:
			t.next = now
		case t.next.IsZero() && t.verdict.Presence != Unclear:
			t.next = now
		}
	}
}

// touch notes an event on a CRD, if it is of the kind's group.
func (t *track) touch(s signal, now time.Time) {
	if !inGroup(s.crd, t.gvk.Group) {
		return
	}
	if s.gone && s.crd == t.memory.plural+"."+t.gvk.Group {
		t.memory = t.memory.gone(now)
	}
	t.next, t.pause, t.settled = now, firstPause, now.Add(settleSpan)
}

func (l *loop) lookAll(ctx context.Context) {
	moved := false
	for _, t := range l.tracks {
		if t.next.IsZero() || time.Now().Before(t.next) {
			continue
		}
		s := l.eye.look(ctx, t.gvk, t.memory.identity)
		if ctx.Err() != nil {
			return
		}
		moved = l.take(t, s, time.Now()) || moved
	}
	if moved {
		l.tell()
	}
}

func (l *loop) tell() {
	var verdicts []Verdict
	for _, t := range l.tracks {
		verdicts = append(verdicts, t.verdict)
	}
	l.report(verdicts)
}

// take judges a sighting, plans the next look, and tells whether the verdict moved.
func (l *loop) take(t *track, s sighting, now time.Time) bool {
	old := t.verdict
	memory, verdict, again := t.memory.judge(s, now)
	t.memory, t.verdict = memory, verdict
	moved := old != t.verdict
	if again || now.Before(t.settled) {
		t.next = now.Add(t.pause)
		t.pause = min(2*t.pause, longPause)
		return moved
	}
	t.pause, t.next = doubtPause, time.Time{}
	if l.polling {
		t.poll = min(2*t.poll, pollMax)
		if moved || t.poll == 0 {
			t.poll = pollMin
		}
		t.next = now.Add(t.poll)
	}
	return moved
}

// inGroup tells whether a CRD, whose name is <plural>.<group>, is of the group.
func inGroup(crd, group string) bool {
	_, of, ok := strings.Cut(crd, ".")
	return ok && of == group
}
