// SPDX-License-Identifier: Apache-2.0

package slumber

import (
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	// LocalTime is the form of times in the time zone of a Slumber.
	LocalTime = "Mon 2006-01-02 15:04 MST"
	// maxWeekChanges and maxWeekMoments limit the listed changes of a week and the points in time that are examined
	// for them, because a window may begin in each minute.
	maxWeekChanges, maxWeekMoments = 200, 2000
)

// WeekDay is a day of a week, in the time zone of a schedule. It has 23 or 25 hours if the clocks change.
type WeekDay struct {
	Start, End time.Time
	// Phases cover the day without gaps, or only its beginning if IsCut is true.
	Phases []DayPhase
	// IsCut is true if the schedule changes too often to list the phases of the whole day.
	IsCut bool
}

// DayPhase is a part of a day in which members are asleep, or awake.
type DayPhase struct {
	From, To time.Time
	IsAsleep bool
}

// HasAllHours reports whether the day has 24 hours.
func (d WeekDay) HasAllHours() bool { return d.End.Sub(d.Start) == 24*time.Hour }

// ListWeek returns the day that contains a time, and the six days after it.
func (s Schedule) ListWeek(at time.Time) (days [daysPerWeek]WeekDay) {
	shown := s.clock.read(at)
	today := time.Date(shown.Year(), shown.Month(), shown.Day(), 0, 0, 0, 0, time.UTC)
	for i := range days {
		days[i].Start = s.Local(s.clock.instantOf(today.AddDate(0, 0, i)))
		days[i].End = s.Local(s.clock.instantOf(today.AddDate(0, 0, i+1)))
	}
	from, end := days[0].Start, days[daysPerWeek-1].End
	changes, known := s.walk(from, transitionLimits{changes: maxWeekChanges, moments: maxWeekMoments, end: end})
	isAsleep := s.isAsleep(from)
	for _, c := range changes {
		addPhase(&days, DayPhase{from, s.Local(c.At.Time), isAsleep})
		from, isAsleep = s.Local(c.At.Time), c.To == torporv1alpha1.SlumberAsleep
	}
	addPhase(&days, DayPhase{from, s.Local(known), isAsleep})
	for i := range days {
		days[i].IsCut = known.Before(days[i].End)
	}
	return days
}

// addPhase adds a phase to each day that it overlaps.
func addPhase(days *[daysPerWeek]WeekDay, phase DayPhase) {
	for i := range days {
		part := phase
		if part.From.Before(days[i].Start) {
			part.From = days[i].Start
		}
		if part.To.After(days[i].End) {
			part.To = days[i].End
		}
		if part.From.Before(part.To) {
			days[i].Phases = append(days[i].Phases, part)
		}
	}
}

// FindEndOfSleep returns the end of the current or the next sleep, or zero if none exists.
func (s Schedule) FindEndOfSleep(now time.Time) time.Time {
	for _, one := range s.listTransitions(now, 2) {
		if one.To == torporv1alpha1.SlumberAwake {
			return one.At.Time
		}
	}
	return time.Time{}
}
