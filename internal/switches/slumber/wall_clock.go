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
	// widestShift is more than any zone has ever moved its clocks by: Samoa skipped a day.
	widestShift = 26 * time.Hour
	// farthestLook is more than the eight years that can lie between two leap days.
	farthestLook = 10 * 366 * 24 * time.Hour
)

// wallClock converts between instants and the times that the clocks of a zone show. A shown time is represented in
// UTC, which has no gaps.
type wallClock struct{ zone *time.Location }

// read returns the local date and time of a moment.
func (w wallClock) read(at time.Time) time.Time {
	local := at.In(w.zone)
	return time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), local.Second(), local.Nanosecond(), time.UTC)
}

// instantOf returns the instant at which the clocks show a time. If they show it twice, it returns the first instant.
// If they skip it, it returns the moment at which they went forward. The result never goes back for a later time, so
// that events come in the order in which they are written.
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

// withOffsetAt converts a shown time with the offset from UTC that is in force at a distance from it.
func (w wallClock) withOffsetAt(shown time.Time, distance time.Duration) time.Time {
	_, offset := shown.Add(distance).In(w.zone).Zone()
	return shown.Add(-time.Duration(offset) * time.Second)
}

// firstAfter finds the first moment at which the clocks show more than a time that they skip.
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

// last returns the latest occurrence that is not after a time; zero if there was none for years.
func (m cronMoment) last(at time.Time) (last time.Time) {
	shown := m.clock.read(at)
	for back := time.Minute; ; back *= 4 { // A schedule may have a moment in each minute, or one in several years.
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

// next returns the first occurrence after a time; zero if there is none for years.
func (m cronMoment) next(at time.Time) time.Time {
	from := m.clock.read(at)
	if m.clock.instantOf(from).After(at) {
		from = from.Add(-widestShift) // The zone moved its clocks twice in a day; otherwise a time that is shown earlier never comes later.
	}
	for next := m.cron.Next(from); !next.IsZero(); next = m.cron.Next(next) {
		if instant := m.clock.instantOf(next); instant.After(at) {
			return instant
		}
	}
	return time.Time{}
}
