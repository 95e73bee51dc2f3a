// SPDX-License-Identifier: Apache-2.0

package savings

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// Instant is a time by two clocks: the wall clock, which an administrator or NTP may set, and the monotonic time
// since the process began, which cannot be set.
type Instant struct {
	Wall   time.Time
	Uptime time.Duration
}

const (
	// smallStep is the largest difference between the wall clock and the result of steadyTime that is accepted
	// immediately.
	smallStep = 5 * time.Minute
	// trustAfter is the time after which a larger difference is accepted. A wrong clock that is corrected before that
	// has no effect. The suspension of the manager's machine also counts as a step of the clock.
	trustAfter = 2 * time.Hour
)

// Meter measures the stops in effect for one process. The time before the process first saw a stop is measured by
// the wall clock, and the time after that by the monotonic clock, so that a step of the wall clock neither adds nor
// removes savings.
type Meter struct {
	now func() Instant

	mu sync.Mutex
	// anchor is the last instant at which the wall clock was accepted. doubt is the uptime since which the wall
	// clock differs from the steady time by more than smallStep; nil while it does not.
	anchor *Instant
	doubt  *time.Duration
	marks  map[types.UID]*mark
	// round increases with each scrape. Marks that were not used in two scrapes are dropped.
	round int
}

// mark is the state that the process keeps for an object.
type mark struct {
	// since identifies the stop in effect, in Unix seconds. before is its duration when it was first seen, at the
	// uptime seenAt.
	since          int64
	before, seenAt time.Duration
	// shown are the largest values of the counters that were exported.
	shown Totals
	round int
}

// NewMeter returns a Meter that reads an instant when it needs one.
func NewMeter(now func() Instant) *Meter { return &Meter{now: now, marks: map[types.UID]*mark{}} }

// ReadInstants returns a source of instants for a Meter. It relies on the monotonic reading that the times of a real
// clock have.
func ReadInstants(of clock.PassiveClock) func() Instant {
	start := of.Now()
	return func() Instant { return Instant{Wall: of.Now().Round(0), Uptime: of.Since(start)} }
}

// Observe returns the current time, and how long the stop in s has lasted.
func (m *Meter) Observe(uid types.UID, s *torporv1alpha1.Savings) Moment {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, _ := m.observe(uid, s)
	return now
}

func (m *Meter) observe(uid types.UID, s *torporv1alpha1.Savings) (Moment, *mark) {
	at := m.now()
	now := Moment{At: m.steadyTime(at)}
	one := m.marks[uid]
	if one == nil {
		one = &mark{}
		m.marks[uid] = one
	}
	one.round = m.round
	if s == nil || s.Since == nil {
		one.since = 0
		return now, one
	}
	if since := s.Since.Unix(); one.since != since {
		one.since, one.before, one.seenAt = since, Elapsed(s, now.At), at.Uptime
	}
	now.Counted = min(one.before+max(0, at.Uptime-one.seenAt), maxStop)
	return now, one
}

// steadyTime returns the wall-clock time without steps that have not been accepted yet.
func (m *Meter) steadyTime(at Instant) time.Time {
	if m.anchor == nil {
		m.anchor = &at
	}
	steady := m.anchor.Wall.Add(at.Uptime - m.anchor.Uptime)
	switch isSmall := at.Wall.Sub(steady).Abs() <= smallStep; {
	case !isSmall && m.doubt == nil:
		m.doubt = &at.Uptime
		return steady
	case !isSmall && at.Uptime-*m.doubt < trustAfter:
		return steady
	default:
		m.anchor, m.doubt = &at, nil
		return at.Wall
	}
}

// Read returns the counters of an object. They never decrease while the process runs and the object exists, although
// the cache shows the end of a stop some time after the stop has ended.
func (m *Meter) Read(uid types.UID, s *torporv1alpha1.Savings) Totals {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, one := m.observe(uid, s)
	one.shown = one.shown.max(total(s, now.Counted))
	return one.shown
}

// EndScrape drops the marks of objects that were not used in two scrapes, because these objects were deleted.
func (m *Meter) EndScrape() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, one := range m.marks {
		if one.round+1 < m.round {
			delete(m.marks, uid)
		}
	}
	m.round++
}
