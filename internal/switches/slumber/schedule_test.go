// SPDX-License-Identifier: Apache-2.0

package slumber_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
	"github.com/torpor-dev/torpor/internal/switches/slumber"
)

// specOf returns a spec with one window.
func specOf(zone, sleep, wake string, holidays ...torporv1alpha1.Holiday) torporv1alpha1.SlumberSpec {
	return torporv1alpha1.SlumberSpec{TimeZone: zone, Windows: []torporv1alpha1.SlumberWindow{{Sleep: sleep, Wake: wake}}, Holidays: holidays}
}

func parse(t *testing.T, spec torporv1alpha1.SlumberSpec) slumber.Schedule {
	t.Helper()
	s, err := slumber.ParseSchedule(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	found, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestTransitions lists the transitions after a time, in the time zone of the schedule.
func TestTransitions(t *testing.T) {
	const nights, mornings = "0 20 * * 1-5", "0 7 * * 1-5"
	for name, row := range map[string]struct {
		spec torporv1alpha1.SlumberSpec
		from string
		want []string
	}{
		"nights and weekends: asleep from Friday to Monday": {
			specOf("Europe/Berlin", nights, mornings), "2026-11-26T12:00:00+01:00", // A Thursday.
			[]string{"Asleep Thu 2026-11-26T20:00:00+01:00", "Awake Fri 2026-11-27T07:00:00+01:00", "Asleep Fri 2026-11-27T20:00:00+01:00", "Awake Mon 2026-11-30T07:00:00+01:00"},
		},
		"holiday on a Friday: asleep until Monday": {
			specOf("Europe/Berlin", nights, mornings, torporv1alpha1.Holiday{First: "2026-11-27"}), "2026-11-26T12:00:00+01:00",
			[]string{"Asleep Thu 2026-11-26T20:00:00+01:00", "Awake Mon 2026-11-30T07:00:00+01:00"},
		},
		"yearly holiday from December to January: one sleep in each year": {
			specOf("Europe/Berlin", "0 3 1 6 *", "0 4 1 6 *", torporv1alpha1.Holiday{First: "--12-24", Last: "--01-01"}), "2026-12-01T00:00:00+01:00",
			[]string{
				"Asleep Thu 2026-12-24T00:00:00+01:00", "Awake Sat 2027-01-02T00:00:00+01:00",
				"Asleep Tue 2027-06-01T03:00:00+02:00", "Awake Tue 2027-06-01T04:00:00+02:00", "Asleep Fri 2027-12-24T00:00:00+01:00",
			},
		},
		"window on leap days: one sleep every four years": {
			specOf("UTC", "0 0 29 2 *", "0 12 29 2 *"), "2026-01-01T00:00:00Z",
			[]string{"Asleep Tue 2028-02-29T00:00:00Z", "Awake Tue 2028-02-29T12:00:00Z", "Asleep Sun 2032-02-29T00:00:00Z"},
		},
		"holiday on leap days: one sleep every four years": {
			torporv1alpha1.SlumberSpec{TimeZone: "UTC", Holidays: []torporv1alpha1.Holiday{{First: "--02-29"}}},
			"2026-01-01T00:00:00Z",
			[]string{"Asleep Tue 2028-02-29T00:00:00Z", "Awake Wed 2028-03-01T00:00:00Z", "Asleep Sun 2032-02-29T00:00:00Z"},
		},
		"a yearly holiday up to February 29 ends on February 28 in other years": {
			torporv1alpha1.SlumberSpec{TimeZone: "UTC", Holidays: []torporv1alpha1.Holiday{{First: "--02-28", Last: "--02-29"}}},
			"2027-01-01T00:00:00Z",
			[]string{"Asleep Sun 2027-02-28T00:00:00Z", "Awake Mon 2027-03-01T00:00:00Z", "Asleep Mon 2028-02-28T00:00:00Z", "Awake Wed 2028-03-01T00:00:00Z"},
		},
		"overlapping windows: one sleep until the later wake": {
			torporv1alpha1.SlumberSpec{TimeZone: "UTC", Windows: []torporv1alpha1.SlumberWindow{{Sleep: "0 20 * * *", Wake: "0 7 * * *"}, {Sleep: "0 6 * * *", Wake: "0 9 * * *"}}},
			"2026-11-26T12:00:00Z",
			[]string{"Asleep Thu 2026-11-26T20:00:00Z", "Awake Fri 2026-11-27T09:00:00Z"},
		},
		"day of the week 7: Sunday": {
			specOf("UTC", "30 15 * * 6,7", "0 16 * * 6,7"), "2026-11-27T12:00:00Z", // A Friday.
			[]string{
				"Asleep Sat 2026-11-28T15:30:00Z", "Awake Sat 2026-11-28T16:00:00Z",
				"Asleep Sun 2026-11-29T15:30:00Z", "Awake Sun 2026-11-29T16:00:00Z", "Asleep Sat 2026-12-05T15:30:00Z",
			},
		},
		"days of the week from Friday to Monday: Friday, Saturday, Sunday and Monday": {
			specOf("UTC", "0 19 * * FRI-MON", "0 20 * * fri-mon"), "2026-11-26T12:00:00Z",
			[]string{
				"Asleep Fri 2026-11-27T19:00:00Z", "Awake Fri 2026-11-27T20:00:00Z", "Asleep Sat 2026-11-28T19:00:00Z", "Awake Sat 2026-11-28T20:00:00Z",
				"Asleep Sun 2026-11-29T19:00:00Z", "Awake Sun 2026-11-29T20:00:00Z", "Asleep Mon 2026-11-30T19:00:00Z", "Awake Mon 2026-11-30T20:00:00Z",
				"Asleep Fri 2026-12-04T19:00:00Z",
			},
		},
		"every second day of the week from Friday to day 7: Friday and Sunday": {
			specOf("UTC", "0 19 * * 5-7/2", "0 20 * * *"), "2026-11-26T12:00:00Z",
			[]string{"Asleep Fri 2026-11-27T19:00:00Z", "Awake Fri 2026-11-27T20:00:00Z", "Asleep Sun 2026-11-29T19:00:00Z", "Awake Sun 2026-11-29T20:00:00Z", "Asleep Fri 2026-12-04T19:00:00Z"},
		},
		"sleep time that is also a wake time: no transitions": {specOf("UTC", "0 0 * * *", "0 * * * *"), "2026-11-26T12:00:00Z", nil},
		"past holiday with a year: no transitions":            {torporv1alpha1.SlumberSpec{TimeZone: "UTC", Holidays: []torporv1alpha1.Holiday{{First: "2020-01-01"}}}, "2026-11-26T12:00:00Z", nil},
	} {
		t.Run(name, func(t *testing.T) {
			found := parse(t, row.spec).NextTransitions(at(t, row.from))
			zone, err := time.LoadLocation(row.spec.TimeZone)
			if err != nil {
				t.Fatal(err)
			}
			if len(found) < len(row.want) || len(row.want) == 0 && len(found) > 0 {
				t.Fatalf("expected %d transitions or more, found %+v", len(row.want), found)
			}
			for i, want := range row.want {
				if got := fmt.Sprintf("%s %s", found[i].To, found[i].At.In(zone).Format("Mon "+time.RFC3339)); got != want {
					t.Errorf("transition %d: expected %s, found %s", i, want, got)
				}
			}
		})
	}
}

// TestEveryNightIsOneStopInEveryZone steps through the clock changes of a year in quarters of an hour. A window that
// begins or ends in a skipped or repeated hour is one sleep, which ends.
func TestEveryNightIsOneStopInEveryZone(t *testing.T) {
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Beirut", "Africa/Casablanca"} {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		shifts := listShifts(location, 2026)
		if len(shifts) < 2 {
			t.Fatalf("%s: expected two changes of the clocks in 2026, found %v", zone, shifts)
		}
		for _, times := range [][2]string{{"30 2", "30 6"}, {"0 22", "30 2"}, {"0 0", "0 3"}, {"30 0", "15 2"}, {"45 23", "15 0"}, {"15 1", "45 1"}} {
			t.Run(zone+" "+times[0]+" to "+times[1], func(t *testing.T) {
				schedule := parse(t, specOf(zone, times[0]+" * * *", times[1]+" * * *"))
				for _, shift := range shifts {
					from, sleeps := shift.Add(-36*time.Hour), 0
					wasAsleep := schedule.PhaseAt(from).IsAsleep
					next := schedule.NextTransitions(from)
					for now := from; now.Before(shift.Add(60 * time.Hour)); now = now.Add(15 * time.Minute) {
						phase := schedule.PhaseAt(now)
						if phase.IsAsleep != wasAsleep {
							if len(next) == 0 || !next[0].At.Time.Equal(now) || !phase.Since.Equal(now) {
								t.Fatalf("at %s: expected the transition %v that NextTransitions has listed, found the phase %+v", now.In(location), next, phase)
							}
							next, wasAsleep = next[1:], phase.IsAsleep
							if wasAsleep {
								sleeps++
							}
						}
					}
					// A window of a few minutes may be skipped: its start and its end are both the moment when the
					// clocks go forward.
					if sleeps < 3 || sleeps > 5 {
						t.Errorf("%s: expected three to five sleeps in the nights before and after this change of the clocks, found %d", shift.In(location), sleeps)
					}
				}
			})
		}
	}
}

// listShifts returns the times at which the clocks of a zone change in a year.
func listShifts(zone *time.Location, year int) (shifts []time.Time) {
	end := time.Date(year+1, 1, 1, 0, 0, 0, 0, time.UTC)
	for now := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC); now.Before(end); now = now.Add(15 * time.Minute) {
		_, before := now.Add(-15 * time.Minute).In(zone).Zone()
		if _, after := now.In(zone).Zone(); before != after {
			shifts = append(shifts, now)
		}
	}
	return shifts
}

// TestPhasesAgreeWithTransitions compares phases and transitions of random schedules at random times. A phase ends
// with the next transition, and began with the last transition that an earlier time predicts.
func TestPhasesAgreeWithTransitions(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		spec := torporv1alpha1.SlumberSpec{TimeZone: []string{"UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia"}[random.IntN(4)]}
		for range 1 + random.IntN(3) {
			moment := func() string {
				return fmt.Sprintf("%d %d * * %s", random.IntN(60), random.IntN(24), []string{"*", "1-5", "0,6", "3"}[random.IntN(4)])
			}
			spec.Windows = append(spec.Windows, torporv1alpha1.SlumberWindow{Sleep: moment(), Wake: moment()})
		}
		if random.IntN(2) == 0 {
			spec.Holidays = append(spec.Holidays, torporv1alpha1.Holiday{First: fmt.Sprintf("2026-%02d-%02d", 1+random.IntN(12), 1+random.IntN(28))})
		}
		schedule, err := slumber.ParseSchedule(spec)
		if err != nil {
			continue // The random sleep and wake times are the same.
		}
		from := time.Date(2026, 1, 1, 0, random.IntN(60*24*365), 0, 0, time.UTC)
		phase, next := schedule.PhaseAt(from), schedule.NextTransitions(from)
		if phase.Until.IsZero() != (len(next) == 0) || len(next) > 0 && !phase.Until.Equal(next[0].At.Time) {
			t.Fatalf("%+v at %s: expected the phase %+v to end with the first of %v", spec, from, phase, next)
		}
		for i, transition := range next {
			reached := schedule.PhaseAt(transition.At.Time)
			if reached.IsAsleep != (transition.To == torporv1alpha1.SlumberAsleep) || !reached.Since.Equal(transition.At.Time) {
				t.Fatalf("%+v: expected %+v to begin a phase, found %+v", spec, transition, reached)
			}
			if i > 0 && next[i-1].To == transition.To {
				t.Fatalf("%+v: expected sleeping and waking in turn, found %v", spec, next)
			}
		}
	}
}

// TestScheduleErrors has invalid specs and the expected errors.
func TestScheduleErrors(t *testing.T) {
	for name, row := range map[string]struct {
		spec torporv1alpha1.SlumberSpec
		want string
	}{
		"unknown time zone: refused":                    {specOf("Europe/Atlantis", "0 20 * * *", "0 7 * * *"), "spec.timeZone: expected the name of a time zone"},
		"local time zone of the manager: refused":       {specOf("Local", "0 20 * * *", "0 7 * * *"), "spec.timeZone: expected the name of a time zone"},
		"cron expression of six fields: refused":        {specOf("UTC", "0 0 20 * * *", "0 7 * * *"), "spec.windows[0].sleep \"0 0 20 * * *\": expected five fields of cron"},
		"hour that does not exist: refused":             {specOf("UTC", "0 25 * * *", "0 7 * * *"), "spec.windows[0].sleep \"0 25 * * *\": expected five fields of cron"},
		"day of the week 8: refused":                    {specOf("UTC", "0 20 * * 5-8", "0 7 * * *"), "spec.windows[0].sleep \"0 20 * * 5-8\": expected five fields of cron"},
		"step of zero: refused":                         {specOf("UTC", "0 20 * * FRI-MON/0", "0 7 * * *"), "spec.windows[0].sleep \"0 20 * * FRI-MON/0\": expected five fields of cron"},
		"@every instead of five fields: refused":        {specOf("UTC", "@every 1h", "0 7 * * *"), "expected five fields of cron, found a time zone or a descriptor such as @daily"},
		"time zone in the cron expression: refused":     {specOf("UTC", "0 20 * * *", "TZ=Asia/Tokyo 0 7 * * *"), "spec.windows[0].wake"},
		"window on February 30: refused":                {specOf("UTC", "0 20 30 2 *", "0 7 * * *"), "expected a day of the calendar"},
		"the same time for sleep and wake: refused":     {specOf("UTC", "0 20 * * *", "0  20 * * *"), "expected a time that differs from sleep"},
		"no window and no holiday: refused":             {torporv1alpha1.SlumberSpec{TimeZone: "UTC"}, "expected a window or a holiday"},
		"holiday on a day that does not exist: refused": {specOf("UTC", "0 20 * * *", "0 7 * * *", torporv1alpha1.Holiday{First: "2026-02-29"}), "spec.holidays[0]: expected a day such as"},
		"holiday that ends before it begins: refused":   {specOf("UTC", "0 20 * * *", "0 7 * * *", torporv1alpha1.Holiday{First: "2026-02-03", Last: "2026-02-01"}), "on or after the first"},
		"holiday with a year in only one day: refused":  {specOf("UTC", "0 20 * * *", "0 7 * * *", torporv1alpha1.Holiday{First: "2026-02-03", Last: "--02-04"}), "both days in the same form"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := slumber.ParseSchedule(row.spec); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("expected %q, found %v", row.want, err)
			}
		})
	}
}

// TestWeekdaysHaveOneMeaning compares different notations of days of the week by their transitions in two weeks.
func TestWeekdaysHaveOneMeaning(t *testing.T) {
	for written, same := range map[string]string{
		"7": "0", "6,7": "0,6", "0-7": "0-6", "1-7": "0-6", "5-7": "0,5,6", "7-2": "0-2", "FRI-MON": "0,1,5,6", "fri-sun": "0,5,6", "SUN-TUE": "0-2",
		"SAT-SUN,3": "0,3,6", "5-1/2": "5,0", "0-7/7": "0", "6-6": "6", "1-0": "0-6", "MON-FRI": "1-5", "*/2": "0,2,4,6", "2-": "",
		"7-7": "0", "0-0": "0", "5-1/9223372036854775807": "5", "SAT-7/8": "6", "6-7/1": "0,6", "8": "", "5-8": "", "7/2": "", "-7": "", "1-2-7": "",
	} {
		t.Run(written, func(t *testing.T) {
			found, err := slumber.ParseSchedule(specOf("UTC", "0 19 * * "+written, "0 20 * * *"))
			if same == "" {
				if err == nil {
					t.Fatal("expected an error, found none")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := parse(t, specOf("UTC", "0 19 * * "+same, "0 20 * * *"))
			for hour := range 14 * 24 {
				moment := at(t, "2026-11-23T00:30:00Z").Add(time.Duration(hour) * time.Hour)
				if found.PhaseAt(moment).IsAsleep != want.PhaseAt(moment).IsAsleep {
					t.Fatalf("%s: expected the same as %s", moment, same)
				}
			}
		})
	}
}
