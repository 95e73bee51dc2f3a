// SPDX-License-Identifier: Apache-2.0

package slumber

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	// maxMoments limits how many points in time are examined to find the next or the last change, because windows may
	// overlap for a long time.
	maxMoments = 1000
	// MaxTransitions is the maximum number of future transitions that the status lists.
	MaxTransitions = 10
)

// Schedule defines when members sleep: in each of its windows, and on its holidays.
type Schedule struct {
	clock    wallClock
	windows  []sleepWindow
	holidays []holidayRange
}

type sleepWindow struct{ sleep, wake cronMoment }

// SchedulePhase is a period in which members are asleep, or awake. Since is zero if the period has no beginning, and
// Until is zero if it has no end.
type SchedulePhase struct {
	IsAsleep     bool
	Since, Until time.Time
}

// ParseSchedule reads the windows and holidays of a spec. An error contains the field, the expected form and the
// found value.
func ParseSchedule(spec torporv1alpha1.SlumberSpec) (Schedule, error) {
	zone, err := time.LoadLocation(spec.TimeZone)
	if err != nil || spec.TimeZone == "Local" {
		return Schedule{}, fmt.Errorf("spec.timeZone: expected the name of a time zone such as Europe/Berlin, found %q; correct it", spec.TimeZone)
	}
	s := Schedule{clock: wallClock{zone}}
	for i, text := range spec.Windows {
		w, err := parseWindow(text, s.clock)
		if err != nil {
			return Schedule{}, fmt.Errorf("spec.windows[%d].%w", i, err)
		}
		s.windows = append(s.windows, w)
	}
	for i, text := range spec.Holidays {
		h, err := parseHoliday(text)
		if err != nil {
			return Schedule{}, fmt.Errorf("spec.holidays[%d]: %w", i, err)
		}
		s.holidays = append(s.holidays, h)
	}
	if len(s.windows)+len(s.holidays) == 0 {
		return Schedule{}, errors.New("spec.windows: expected a window or a holiday, found none; add one, or set spec.suspend")
	}
	return s, nil
}

func parseWindow(text torporv1alpha1.SlumberWindow, clock wallClock) (w sleepWindow, err error) {
	if w.sleep, err = parseMoment(text.Sleep, clock); err != nil {
		return w, fmt.Errorf("sleep %q: %w", text.Sleep, err)
	}
	if w.wake, err = parseMoment(text.Wake, clock); err != nil {
		return w, fmt.Errorf("wake %q: %w", text.Wake, err)
	}
	if strings.Join(strings.Fields(text.Sleep), " ") == strings.Join(strings.Fields(text.Wake), " ") {
		return w, fmt.Errorf("wake %q: expected a time that differs from sleep, found the same", text.Wake)
	}
	return w, nil
}

// isAsleep reports whether members sleep at a time.
func (s Schedule) isAsleep(at time.Time) bool {
	return s.isHoliday(at) || slices.ContainsFunc(s.windows, func(w sleepWindow) bool { return w.isAsleep(at) })
}

// isAsleep reports whether a time is in the window. If sleep and wake occur at the same time, wake takes precedence.
func (w sleepWindow) isAsleep(at time.Time) bool {
	slept := w.sleep.last(at)
	return !slept.IsZero() && slept.After(w.wake.last(at))
}

func (s Schedule) isHoliday(at time.Time) bool {
	day := s.clock.read(at)
	return slices.ContainsFunc(s.holidays, func(h holidayRange) bool { return h.contains(day) })
}

// PhaseAt returns the phase at a time, with its beginning and its end.
func (s Schedule) PhaseAt(at time.Time) SchedulePhase {
	return s.phaseGivenNext(at, s.listTransitions(at, 1))
}

// phaseGivenNext returns the phase at a time whose next transitions are known.
func (s Schedule) phaseGivenNext(at time.Time, next []torporv1alpha1.SlumberTransition) SchedulePhase {
	phase := SchedulePhase{IsAsleep: s.isAsleep(at)}
	if len(next) > 0 {
		phase.Until = next[0].At.Time
	}
	for moment, i := s.lastMoment(at), 0; !moment.IsZero() && i < maxMoments; i++ {
		if s.isAsleep(moment.Add(-time.Nanosecond)) != phase.IsAsleep {
			phase.Since = moment
			break
		}
		moment = s.lastMoment(moment.Add(-time.Nanosecond))
	}
	return phase
}

// Local returns a time in the time zone of the schedule.
func (s Schedule) Local(at time.Time) time.Time { return at.In(s.clock.zone) }

// NextTransitions returns the next times, at most MaxTransitions, at which members begin to sleep or to wake.
func (s Schedule) NextTransitions(at time.Time) []torporv1alpha1.SlumberTransition {
	return s.listTransitions(at, MaxTransitions)
}

// listTransitions returns at most limit transitions after a time.
func (s Schedule) listTransitions(at time.Time, limit int) []torporv1alpha1.SlumberTransition {
	list, _ := s.walk(at, transitionLimits{changes: limit, moments: maxMoments})
	return list
}

// transitionLimits limits a list of transitions: their number, the number of points in time that are examined, and
// the end of the period, where zero means no end.
type transitionLimits struct {
	changes, moments int
	end              time.Time
}

// walk lists the transitions after a time, with one cursor for each window. known is the time until which the list
// is complete: the end of the period unless another limit was reached.
func (s Schedule) walk(at time.Time, limits transitionLimits) (list []torporv1alpha1.SlumberTransition, known time.Time) {
	cursors := make([]windowCursor, len(s.windows))
	for i, w := range s.windows {
		cursors[i] = windowCursor{sleepWindow: w, isAsleep: w.isAsleep(at), sleep: w.sleep.next(at), wake: w.wake.next(at)}
	}
	isAsleep := s.isAsleep(at)
	for range limits.moments {
		at = s.nextMoment(at, cursors)
		if at.IsZero() || !limits.end.IsZero() && !at.Before(limits.end) {
			return list, limits.end
		}
		if len(list) == limits.changes {
			return list, at
		}
		isNow := s.isHoliday(at)
		for i := range cursors {
			cursors[i].moveTo(at)
			isNow = isNow || cursors[i].isAsleep
		}
		if isNow != isAsleep {
			isAsleep = isNow
			list = append(list, torporv1alpha1.SlumberTransition{
				At: metav1.NewTime(at), To: map[bool]torporv1alpha1.SlumberState{true: torporv1alpha1.SlumberAsleep, false: torporv1alpha1.SlumberAwake}[isAsleep],
			})
		}
	}
	return list, at
}

// windowCursor is the state of a window at a time: whether the time is in the window, and when the window next
// begins and ends.
type windowCursor struct {
	sleepWindow
	isAsleep    bool
	sleep, wake time.Time
}

// moveTo advances the cursor to a time, which must not be later than the next sleep or wake of the window.
func (c *windowCursor) moveTo(at time.Time) {
	if c.sleep.Equal(at) {
		c.isAsleep, c.sleep = true, c.sleepWindow.sleep.next(at)
	}
	if c.wake.Equal(at) {
		c.isAsleep, c.wake = false, c.sleepWindow.wake.next(at)
	}
}

// nextMoment returns the next time after at when the phase may change, or zero if none exists.
func (s Schedule) nextMoment(at time.Time, cursors []windowCursor) (next time.Time) {
	consider := func(moment time.Time) {
		if moment.After(at) && (next.IsZero() || moment.Before(next)) {
			next = moment
		}
	}
	for _, c := range cursors {
		consider(c.sleep)
		consider(c.wake)
	}
	for _, h := range s.holidays {
		for _, moment := range h.boundaries(s.clock, at) {
			consider(moment)
		}
	}
	return next
}

// lastMoment returns the latest time, at or before at, when the phase may have changed.
func (s Schedule) lastMoment(at time.Time) (last time.Time) {
	consider := func(moment time.Time) {
		if !moment.After(at) && moment.After(last) {
			last = moment
		}
	}
	for _, w := range s.windows {
		consider(w.sleep.last(at))
		consider(w.wake.last(at))
	}
	for _, h := range s.holidays {
		for _, moment := range h.boundaries(s.clock, at) {
			consider(moment)
		}
	}
	return last
}
