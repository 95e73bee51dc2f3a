// SPDX-License-Identifier: Apache-2.0

package slumber

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	// widestShift is longer than any clock change in a time zone; Samoa once skipped a day.
	widestShift = 26 * time.Hour
	// farthestLook is how far back an occurrence is searched: more than the eight years that may lie between two leap
	// days.
	farthestLook = 10 * 366 * 24 * time.Hour
)

// wallClock converts between instants and the local times of a time zone. A local time is represented as a time in
// UTC, which has no gaps.
type wallClock struct{ zone *time.Location }

// read returns the local date and time of a moment.
func (w wallClock) read(at time.Time) time.Time {
	local := at.In(w.zone)
	return time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), local.Nanosecond(), time.UTC)
}

// instantOf returns the instant of a local time: the first one if the time occurs twice, and the moment at which the
// clocks went forward if they skip it. A later local time never has an earlier instant, so that events occur in the
// order in which they are written.
func (w wallClock) instantOf(shown time.Time) time.Time {
	before, after := w.withOffsetAt(shown, -widestShift), w.withOffsetAt(shown, widestShift)
	if before.After(after) {
		before, after = after, before
	}
	for _, at := range []time.Time{before, after} {
		if w.read(at).Equal(shown) {
			return at
		}
	}
	return w.firstAfter(before, after, shown)
}

// withOffsetAt converts a local time with the UTC offset that applies at the given distance from it.
func (w wallClock) withOffsetAt(shown time.Time, distance time.Duration) time.Time {
	_, offset := shown.Add(distance).In(w.zone).Zone()
	return shown.Add(-time.Duration(offset) * time.Second)
}

// firstAfter returns the first instant between low and high whose local time is later than a skipped local time.
func (w wallClock) firstAfter(low, high, shown time.Time) time.Time {
	for high.Sub(low) > time.Second {
		if middle := low.Add(high.Sub(low) / 2); w.read(middle).After(shown) {
			high = middle
		} else {
			low = middle
		}
	}
	return high.Truncate(time.Second)
}

// cronMoment is a recurring time: a cron expression in a time zone.
type cronMoment struct {
	clock wallClock
	cron  cron.Schedule
}

func parseMoment(text string, clock wallClock) (cronMoment, error) {
	if strings.Contains(text, "=") || strings.HasPrefix(strings.TrimSpace(text), "@") {
		return cronMoment{}, errors.New("expected five fields of cron, found a time zone or a descriptor such as @daily; write the five fields, and set the time zone in spec.timeZone")
	}
	parsed, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(expandWeekdays(text))
	if err != nil {
		return cronMoment{}, fmt.Errorf("expected five fields of cron, minute, hour, day of the month, month and day of the week: %w", err)
	}
	if parsed.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return cronMoment{}, errors.New("expected a day of the calendar, found one that exists in no year; correct the day of month or the month")
	}
	return cronMoment{clock, parsed}, nil
}

// last returns the latest occurrence at or before a time, or zero if none exists within farthestLook.
func (m cronMoment) last(at time.Time) (last time.Time) {
	shown := m.clock.read(at)
	for back := time.Minute; ; back *= 4 { // A schedule may have an occurrence in each minute, or one in several years.
		for next := m.cron.Next(shown.Add(-back)); !next.IsZero() && !next.After(shown.Add(widestShift)); next = m.cron.Next(next) {
			instant := m.clock.instantOf(next)
			if instant.After(at) {
				break
			}
			last = instant
		}
		if !last.IsZero() || back > farthestLook {
			return last
		}
	}
}

// next returns the first occurrence after a time, or zero if none exists within the five years that the cron library
// searches.
func (m cronMoment) next(at time.Time) time.Time {
	from := m.clock.read(at)
	if m.clock.instantOf(from).After(at) {
		// This happens only if the zone changed its clocks twice in a day. In other cases, an earlier local time is
		// never a later instant.
		from = from.Add(-widestShift)
	}
	for next := m.cron.Next(from); !next.IsZero(); next = m.cron.Next(next) {
		if instant := m.clock.instantOf(next); instant.After(at) {
			return instant
		}
	}
	return time.Time{}
}
