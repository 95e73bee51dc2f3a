// SPDX-License-Identifier: Apache-2.0

package slumber_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// describeDay returns the sleeps of a day, and the length of the day unless it has 24 hours.
func describeDay(d slumber.WeekDay) string {
	words := []string{d.Start.Format("Mon")}
	if !d.HasAllHours() {
		words = append(words, d.End.Sub(d.Start).String())
	}
	for _, p := range d.Phases {
		if p.IsAsleep {
			words = append(words, p.From.Format("15:04")+"-"+p.To.Format("15:04"))
		}
	}
	if d.IsCut {
		words = append(words, "cut")
	}
	return strings.Join(words, " ")
}

// TestWeeks lists the sleeps of a week, in the time zone of the schedule.
func TestWeeks(t *testing.T) {
	t.Parallel()
	const nights, mornings = "0 20 * * 1-5", "0 7 * * 1-5"
	for name, row := range map[string]struct {
		spec torporv1alpha1.SlumberSpec
		from string
		want string
	}{
		"windows over midnight: a sleep on each of the two days": {
			specOf("Europe/Berlin", nights, mornings), "2026-11-26T23:30:00+01:00",
			"Thu 00:00-07:00 20:00-00:00, Fri 00:00-07:00 20:00-00:00, Sat 00:00-00:00, Sun 00:00-00:00, Mon 00:00-07:00 20:00-00:00, Tue 00:00-07:00 20:00-00:00, Wed 00:00-07:00 20:00-00:00",
		},
		"a date that differs between UTC and the zone: the week begins with the date of the zone": {
			specOf("Asia/Tokyo", "0 1 * * *", "0 2 * * *"), "2026-11-26T16:00:00Z",
			"Fri 01:00-02:00, Sat 01:00-02:00, Sun 01:00-02:00, Mon 01:00-02:00, Tue 01:00-02:00, Wed 01:00-02:00, Thu 01:00-02:00",
		},
		"clocks go forward: a window in the skipped hour is empty": {
			specOf("Europe/Berlin", "0 2 * * *", "0 3 * * *"), "2026-03-27T12:00:00+01:00",
			"Fri 02:00-03:00, Sat 02:00-03:00, Sun 23h0m0s, Mon 02:00-03:00, Tue 02:00-03:00, Wed 02:00-03:00, Thu 02:00-03:00",
		},
		"clocks go back: a window begins and ends at its local times": {
			specOf("Europe/Berlin", "0 20 * * *", "0 4 * * *"), "2026-10-23T12:00:00+02:00",
			"Fri 00:00-04:00 20:00-00:00, Sat 00:00-04:00 20:00-00:00, Sun 25h0m0s 00:00-04:00 20:00-00:00, Mon 00:00-04:00 20:00-00:00, Tue 00:00-04:00 20:00-00:00, Wed 00:00-04:00 20:00-00:00, Thu 00:00-04:00 20:00-00:00",
		},
		"midnight is skipped: the day begins at one": {
			specOf("Africa/Cairo", "0 22 * * *", "0 6 * * *"), "2026-04-23T12:00:00+02:00",
			"Thu 00:00-06:00 22:00-01:00, Fri 23h0m0s 01:00-06:00 22:00-00:00, Sat 00:00-06:00 22:00-00:00, Sun 00:00-06:00 22:00-00:00, Mon 00:00-06:00 22:00-00:00, Tue 00:00-06:00 22:00-00:00, Wed 00:00-06:00 22:00-00:00",
		},
		"a holiday: asleep for the whole Saturday": {
			specOf("UTC", "0 12 * * 4", "0 13 * * 4", torporv1alpha1.Holiday{First: "2026-11-28"}), "2026-11-26T12:30:00Z",
			"Thu 12:00-13:00, Fri, Sat 00:00-00:00, Sun, Mon, Tue, Wed",
		},
		"a schedule that changes every minute: the phases of the last day are cut": {
			specOf("UTC", "*/2 * * * *", "1-59/2 * * * *"), "2026-11-26T12:00:00Z",
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var days []string
			for _, d := range parse(t, row.spec).ListWeek(at(t, row.from)) {
				days = append(days, describeDay(d))
				expectCovered(t, d)
			}
			if found := strings.Join(days, ", "); row.want != "" && found != row.want {
				t.Errorf("expected %s, found %s", row.want, found)
			}
			if last := days[len(days)-1]; row.want == "" && last != "Wed cut" {
				t.Errorf("expected a last day without phases, found %s", last)
			}
		})
	}
}

// expectCovered checks that the phases of a day follow each other, and alternate.
func expectCovered(t *testing.T, d slumber.WeekDay) {
	t.Helper()
	end := d.Start
	for i, p := range d.Phases {
		if !p.From.Equal(end) || !p.To.After(p.From) || i > 0 && p.IsAsleep == d.Phases[i-1].IsAsleep {
			t.Errorf("%s: expected phases that follow each other, found %v", d.Start, d.Phases)
		}
		end = p.To
	}
	if !d.IsCut && !end.Equal(d.End) {
		t.Errorf("%s: expected phases until %s, found %s", d.Start, d.End, end)
	}
}

// TestWeekAgreesWithPhases compares each hour of a week around the change of the clocks with the phase at that time.
func TestWeekAgreesWithPhases(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"} {
		s := parse(t, specOf(zone, "30 22 * * 0-5", "15 2 * * 1-6", torporv1alpha1.Holiday{First: "2026-10-26"}))
		for _, d := range s.ListWeek(at(t, "2026-10-23T12:00:00Z")) {
			for _, p := range d.Phases {
				for moment := p.From; moment.Before(p.To); moment = moment.Add(time.Hour) {
					if found := s.PhaseAt(moment).IsAsleep; found != p.IsAsleep {
						t.Errorf("%s at %s: expected asleep %t, found %t", zone, moment, found, p.IsAsleep)
					}
				}
			}
		}
	}
}

// TestEndOfSleep has a time during a sleep, a time before a sleep, and a schedule whose only sleep has passed.
func TestEndOfSleep(t *testing.T) {
	t.Parallel()
	s := parse(t, specOf("Europe/Berlin", "0 20 * * *", "0 7 * * *"))
	for from, want := range map[string]string{
		"2026-10-24T23:00:00+02:00": "Sun 2026-10-25 07:00 CET",
		"2026-11-26T12:00:00+01:00": "Fri 2026-11-27 07:00 CET",
	} {
		if found := s.Local(s.FindEndOfSleep(at(t, from))).Format(slumber.LocalTime); found != want {
			t.Errorf("%s: expected %s, found %s", from, want, found)
		}
	}
	past := parse(t, torporv1alpha1.SlumberSpec{TimeZone: "UTC", Holidays: []torporv1alpha1.Holiday{{First: "2025-12-24"}}})
	if found := past.FindEndOfSleep(at(t, "2026-11-26T12:00:00Z")); !found.IsZero() {
		t.Errorf("expected no end, found %s", found)
	}
}

// TestTypedSleeps reads times and days as users type them.
func TestTypedSleeps(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"19:00-7:00 Mon-Fri":     "0 19 * * MON-FRI to 0 7 * * MON-FRI",
		"8:30-9:45 saturday,Sun": "30 8 * * SAT,SUN to 45 9 * * SAT,SUN",
		"0:00-12:00 *":           "0 0 * * * to 0 12 * * *",
		"7:00-07:00 *":           "expected two times of day such as 19:00-7:00, found \"7:00-07:00\"",
		"night *":                "expected two times of day such as 19:00-7:00, found \"night\"",
		"19:00-7:00 workdays":    "expected days such as Mon-Fri or Sat,Sun, found \"workdays\"",
		"19:00-7:00 mon-wed-fri": "expected days such as Mon-Fri or Sat,Sun, found \"mon-wed-fri\"",
		"19:00-7:00 Mon,,Fri":    "expected days such as Mon-Fri or Sat,Sun, found \"Mon,,Fri\"",
		"19:00-25:00 Mon":        "expected two times of day such as 19:00-7:00, found \"19:00-25:00\"",
		"19:00 - 7:00|MON - FRI": "0 19 * * MON-FRI to 0 7 * * MON-FRI",
	} {
		times, typed, isCut := strings.Cut(text, "|")
		if !isCut {
			times, typed, _ = strings.Cut(text, " ")
		}
		days, err := slumber.ParseDays(typed)
		var w torporv1alpha1.SlumberWindow
		if err == nil {
			w, err = slumber.ParseSleep(times, days)
		}
		found := w.Sleep + " to " + w.Wake
		if err != nil {
			found = fmt.Sprint(err)
		}
		if found != want {
			t.Errorf("%s: expected %s, found %s", text, want, found)
		}
	}
}
