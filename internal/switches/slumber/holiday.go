// SPDX-License-Identifier: Apache-2.0

package slumber

import (
	"fmt"
	"strings"
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	dayForm = "2006-01-02"
	// leapYear is the year with which a day without a year is parsed, so that February 29 exists.
	leapYear = 2000
	// yearsBetweenLeapDays is the maximum number of years between two leap days, as around 2100, which is not a leap
	// year.
	yearsBetweenLeapDays = 8
)

// holidayRange lasts from the start of its first day to the end of its last day. A yearly range occurs in every year.
type holidayRange struct {
	first, last time.Time
	isYearly    bool
}

func parseHoliday(text torporv1alpha1.Holiday) (h holidayRange, err error) {
	if text.Last == "" {
		text.Last = text.First
	}
	h.isYearly = strings.HasPrefix(text.First, "--")
	if h.first, err = parseDay(text.First); err != nil {
		return h, err
	}
	if h.last, err = parseDay(text.Last); err != nil {
		return h, err
	}
	switch {
	case h.isYearly != strings.HasPrefix(text.Last, "--"):
		return h, fmt.Errorf("expected both days in the same form, found %q and %q; write both as 2026-12-24, or both as --12-24", text.First, text.Last)
	case h.last.Before(h.first) && !h.isYearly:
		return h, fmt.Errorf("expected a last day on or after the first, found %q and %q; correct one of them", text.First, text.Last)
	}
	return h, nil
}

func parseDay(text string) (time.Time, error) {
	day, isYearly := strings.CutPrefix(text, "--")
	if isYearly {
		day = fmt.Sprintf("%d-%s", leapYear, day)
	}
	at, err := time.Parse(dayForm, day)
	if err != nil {
		return at, fmt.Errorf("expected a day such as 2026-12-24 or --12-24, found %.20q; correct it", text)
	}
	return at, nil
}

// in returns the first and the last day of the holiday that begins in a year. isThere is false if the holiday does
// not begin in that year.
func (h holidayRange) in(year int) (first, last time.Time, isThere bool) {
	if !h.isYearly {
		return h.first, h.last, year == h.first.Year()
	}
	first = time.Date(year, h.first.Month(), h.first.Day(), 0, 0, 0, 0, time.UTC)
	if h.last.Before(h.first) {
		year++
	}
	last = time.Date(year, h.last.Month(), h.last.Day(), 0, 0, 0, 0, time.UTC)
	if last.Month() != h.last.Month() { // The holiday ends on February 29, and the year has none.
		last = last.AddDate(0, 0, -1)
	}
	return first, last, first.Month() == h.first.Month()
}

// contains reports whether a local time is in the holiday.
func (h holidayRange) contains(shown time.Time) bool {
	year := h.first.Year()
	if h.isYearly {
		year = shown.Year()
	}
	for _, y := range []int{year - 1, year} {
		if first, last, isThere := h.in(y); isThere && !shown.Before(first) && shown.Before(last.AddDate(0, 0, 1)) {
			return true
		}
	}
	return false
}

// boundaries returns the times at which the holiday begins and ends. For a yearly holiday, it returns those of the
// years around a time.
func (h holidayRange) boundaries(clock wallClock, at time.Time) (moments []time.Time) {
	from, to := h.first.Year(), h.first.Year()
	if h.isYearly {
		from, to = clock.read(at).Year()-yearsBetweenLeapDays-1, clock.read(at).Year()+yearsBetweenLeapDays+1
	}
	for year := from; year <= to; year++ {
		if first, last, isThere := h.in(year); isThere {
			moments = append(moments, clock.instantOf(first), clock.instantOf(last.AddDate(0, 0, 1)))
		}
	}
	return moments
}
