// SPDX-License-Identifier: Apache-2.0

package savings

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// tuesday is the second day of a week.
func tuesday() time.Time { return time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC) }

func TestNext(t *testing.T) {
	t.Parallel()
	at := func(of time.Time) *metav1.Time { return new(metav1.NewTime(of)) }
	two := Rate{Machines: 2}
	off := torporv1alpha1.Savings{Since: at(tuesday()), Machines: 2}
	monday := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	weekOf := func(begin time.Time, seconds int64) torporv1alpha1.WeekSavings {
		return torporv1alpha1.WeekSavings{Begin: metav1.NewTime(begin), MachineSeconds: seconds}
	}
	for name, row := range map[string]struct {
		stored  *torporv1alpha1.Savings
		rate    Rate
		at      time.Time
		counted time.Duration
		want    *torporv1alpha1.Savings
	}{
		"an object that was never stopped has no savings": {nil, Rate{}, tuesday(), 0, nil},
		"a stop begins at a whole second":                 {nil, two, tuesday().Add(time.Millisecond), 0, &off},
		"an ongoing stop leaves the savings unchanged":    {&off, two, tuesday().Add(time.Hour), time.Hour, &off},
		"a stop is added to the sums when it ends": {
			&off, Rate{}, tuesday().Add(time.Hour), time.Hour, &torporv1alpha1.Savings{MachineSeconds: 7200, Weeks: []torporv1alpha1.WeekSavings{weekOf(monday, 7200)}},
		},
		"a stop that began last week counts in both weeks": {
			&off,
			Rate{},
			tuesday().AddDate(0, 0, 6), 6 * 24 * time.Hour,
			&torporv1alpha1.Savings{MachineSeconds: 2 * 6 * 86400, Weeks: []torporv1alpha1.WeekSavings{weekOf(monday.AddDate(0, 0, 7), 2*43200), weekOf(monday, 2*5*86400+86400)}},
		},
		"a stop of ten weeks keeps the sums of only the last four": {
			&off,
			Rate{},
			monday.AddDate(0, 0, 70), 70*24*time.Hour - 36*time.Hour,
			&torporv1alpha1.Savings{MachineSeconds: 2 * (70*86400 - 129600), Weeks: []torporv1alpha1.WeekSavings{
				weekOf(monday.AddDate(0, 0, 63), 14*86400), weekOf(monday.AddDate(0, 0, 56), 14*86400), weekOf(monday.AddDate(0, 0, 49), 14*86400),
				weekOf(monday.AddDate(0, 0, 42), 14*86400),
			}},
		},
		"a stop that ends after a clock was set back over a Monday counts in the earlier week": {
			&torporv1alpha1.Savings{Since: at(monday.Add(-2 * time.Hour)), Machines: 1, Weeks: []torporv1alpha1.WeekSavings{weekOf(monday, 60), weekOf(monday.AddDate(0, 0, -7), 5)}},
			Rate{},
			monday.Add(-time.Minute), time.Hour,
			&torporv1alpha1.Savings{MachineSeconds: 3600, Weeks: []torporv1alpha1.WeekSavings{weekOf(monday, 60), weekOf(monday.AddDate(0, 0, -7), 3605)}},
		},
		"a changed rate ends one period and begins the next": {
			&off,
			Rate{Machines: 3},
			tuesday().Add(time.Hour), time.Hour,
			&torporv1alpha1.Savings{Since: at(tuesday().Add(time.Hour)), Machines: 3, MachineSeconds: 7200, Weeks: []torporv1alpha1.WeekSavings{weekOf(monday, 7200)}},
		},
		"a forged sum near the maximum does not overflow": {
			&torporv1alpha1.Savings{Since: at(tuesday()), CPUMillis: math.MaxInt64, CPUMilliSeconds: math.MaxInt64 - 1},
			Rate{},
			tuesday().Add(time.Hour), time.Hour,
			&torporv1alpha1.Savings{CPUMilliSeconds: math.MaxInt64, Weeks: []torporv1alpha1.WeekSavings{{Begin: metav1.NewTime(monday), CPUMilliSeconds: math.MaxInt64}}},
		},
		"values below zero count as zero": {
			&torporv1alpha1.Savings{Since: at(tuesday()), CPUMillis: -5, CPUMilliSeconds: -7},
			Rate{},
			tuesday().Add(time.Hour), time.Hour,
			&torporv1alpha1.Savings{Weeks: []torporv1alpha1.WeekSavings{weekOf(monday, 0)}},
		},
	} {
		if diff := cmp.Diff(row.want, Next(row.stored, row.rate, Moment{At: row.at, Counted: row.counted})); diff != "" {
			t.Errorf("%s (-want +found):\n%s", name, diff)
		}
	}
}

// TestWeeks has a stop from Sunday noon to Tuesday noon, and the savings of the current week at several times.
func TestWeeks(t *testing.T) {
	t.Parallel()
	sunday := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	off := Next(nil, Rate{Machines: 1}, Moment{At: sunday})
	awake := Next(off, Rate{}, Moment{At: tuesday(), Counted: tuesday().Sub(sunday)})
	for name, row := range map[string]struct {
		s    *torporv1alpha1.Savings
		at   time.Time
		want time.Duration
	}{
		"no recorded savings: zero":                                     {nil, tuesday(), 0},
		"stop since Sunday noon, an hour later: one hour":               {off, sunday.Add(time.Hour), time.Hour},
		"stop since Sunday noon, on Tuesday noon: 36 hours":             {off, tuesday(), 36 * time.Hour},
		"stop that ended on Tuesday noon, an hour later: 36 hours":      {awake, tuesday().Add(time.Hour), 36 * time.Hour},
		"stop that ended on Tuesday noon, on the next Sunday: 36 hours": {awake, sunday.AddDate(0, 0, 7), 36 * time.Hour},
		"stop that ended in the week before: zero":                      {awake, sunday.AddDate(0, 0, 8), 0},
		"a clock behind the start of the stop: zero":                    {off, sunday.Add(-time.Hour), 0},
	} {
		if found := TotalsOfWeek(row.s, WeekOf(row.at), row.at).MachineSeconds; found != row.want.Seconds() {
			t.Errorf("%s: expected %s, found %.0f s", name, row.want, found)
		}
	}
}

// TestTotals has an object that was stopped in the week before, and is stopped again.
func TestTotals(t *testing.T) {
	t.Parallel()
	monday := WeekOf(tuesday())
	s := &torporv1alpha1.Savings{
		Since: new(metav1.NewTime(tuesday())), CPUMillis: 500, MemoryKiB: 2, CPUMilliSeconds: 9000, MemoryKiBSeconds: 7,
		Weeks: []torporv1alpha1.WeekSavings{{Begin: metav1.NewTime(monday.AddDate(0, 0, -7)), CPUMilliSeconds: 4000, MemoryKiBSeconds: 3}},
	}
	now := tuesday().Add(10 * time.Second)
	for name, row := range map[string]struct{ found, want Totals }{
		"savings of the current week": {TotalsOfWeek(s, monday, now), Totals{CPUSeconds: 5, MemoryByteSeconds: 20 * 1024}},
		"savings of an earlier week":  {TotalsOfWeek(s, monday.AddDate(0, 0, -7), now), Totals{CPUSeconds: 4, MemoryByteSeconds: 3 * 1024}},
		"savings of all stops":        {TotalsUntil(s, now), Totals{CPUSeconds: 14, MemoryByteSeconds: 27 * 1024}},
		"no recorded savings: zero":   {TotalsUntil(nil, now), Totals{}},
	} {
		if row.found != row.want {
			t.Errorf("%s: expected %+v, found %+v", name, row.want, row.found)
		}
	}
}

// TestMeterAndClockSteps has a process that sees a stop, and then steps of the wall clock.
func TestMeterAndClockSteps(t *testing.T) {
	t.Parallel()
	now := Instant{Wall: tuesday()}
	m := NewMeter(func() Instant { return now })
	off := Next(nil, Rate{CPUMillis: 1000}, m.Observe("a", nil))
	advance := func(elapsed, wall time.Duration) {
		now = Instant{Wall: now.Wall.Add(wall), Uptime: now.Uptime + elapsed}
	}
	for _, row := range []struct {
		name       string
		real, wall time.Duration
		want       time.Duration
	}{
		{"an hour passes", time.Hour, time.Hour, time.Hour},
		{"the clock is set back by a day", time.Minute, -24 * time.Hour, time.Hour + time.Minute},
		{"the clock is corrected", time.Minute, 24*time.Hour + 2*time.Minute, time.Hour + 2*time.Minute},
		{"the clock is set ahead by a year", time.Minute, 365 * 24 * time.Hour, time.Hour + 3*time.Minute},
		{"the clock stays ahead", 3 * time.Hour, 3 * time.Hour, 4*time.Hour + 3*time.Minute},
	} {
		advance(row.real, row.wall)
		if found := m.Read("a", off).CPUSeconds; found != row.want.Seconds() {
			t.Errorf("%s: expected %.0f, found %.0f", row.name, row.want.Seconds(), found)
		}
	}
	if at := m.Observe("a", off).At; !at.Equal(now.Wall) {
		t.Errorf("expected a step that lasts to be accepted, found %s instead of %s", at, now.Wall)
	}
	if s := Next(off, Rate{}, m.Observe("a", off)); s.CPUMilliSeconds != 1000*int64((4*time.Hour+3*time.Minute).Seconds()) {
		t.Errorf("expected the end of the stop to record what was shown, found %d", s.CPUMilliSeconds)
	}
}

// TestMeterForgetsDeletedObjects scrapes twice without an object that was scraped before.
func TestMeterForgetsDeletedObjects(t *testing.T) {
	t.Parallel()
	m := NewMeter(func() Instant { return Instant{Wall: tuesday()} })
	m.Read("gone", &torporv1alpha1.Savings{CPUMilliSeconds: 1})
	for range 3 {
		m.Read("left", &torporv1alpha1.Savings{CPUMilliSeconds: 1})
		m.EndScrape()
	}
	if len(m.marks) != 1 || m.marks["left"] == nil {
		t.Errorf("expected the object that is left, found %v", m.marks)
	}
}

func TestAnnotations(t *testing.T) {
	t.Parallel()
	s := &torporv1alpha1.Savings{Since: new(metav1.NewTime(tuesday())), CPUMillis: 5, CPUMilliSeconds: 7}
	text, err := FormatAnnotation(s)
	if err != nil {
		t.Fatal(err)
	}
	read := func(text string) *torporv1alpha1.Savings {
		return ReadAnnotation(map[string]string{torporv1alpha1.SavingsAnnotation: text})
	}
	if found := read(text); found == nil || !found.Since.Equal(s.Since) || found.CPUMilliSeconds != 7 {
		t.Errorf("expected %+v, found %+v", s, found)
	}
	if read("") != nil || read("[") != nil || read(string(make([]byte, maxAnnotation+1))) != nil {
		t.Error("expected no savings in annotations that cannot be read")
	}
}
