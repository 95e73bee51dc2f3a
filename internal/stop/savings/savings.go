// SPDX-License-Identifier: Apache-2.0

// Package savings counts what stopped objects save: machines, and the CPU and memory requests of Pods, multiplied by
// the seconds for which they do not run. The counts are stored in the object, so that they survive a restart of the
// manager. The package has no side effects.
package savings

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

const (
	// maxAnnotation is the maximum number of bytes of an annotation that is read.
	maxAnnotation = 4 << 10
	// maxStop is the maximum duration of a stop that is counted, because users can write any time into an annotation.
	maxStop = 10 * 365 * 24 * time.Hour
	// bytesPerKiB converts sums to the units of the metrics.
	bytesPerKiB = 1024
	// millisPerCore is the number of thousandths of a core in a core.
	millisPerCore = 1000
	week          = 7 * 24 * time.Hour
	// MaxWeeks is the number of weeks in the status of an object: the current week and the four weeks before it.
	MaxWeeks = 5
)

// Rate is what an object saves per second.
type Rate struct{ Machines, CPUMillis, MemoryKiB int64 }

// IsZero reports whether the object saves nothing, for example because it runs.
func (r Rate) IsZero() bool { return r == Rate{} }

// RateOf returns the rate that the savings of an object record.
func RateOf(s *torporv1alpha1.Savings) Rate {
	if s == nil || s.Since == nil {
		return Rate{}
	}
	return Rate{Machines: s.Machines, CPUMillis: s.CPUMillis, MemoryKiB: s.MemoryKiB}
}

// Moment is the time of an observation, and how long the stop in effect had lasted at that time. A Meter measures both.
type Moment struct {
	At      time.Time
	Counted time.Duration
}

// Next returns the new savings of an object that saves at this rate from now on. The caller writes the result together
// with the stop or the start itself.
//
// Invariant: the result depends only on the stored savings, never on an earlier result that was not stored. A pass
// that is repeated after a lost write therefore counts nothing twice (TestCountersEqualTheIntegral).
func Next(stored *torporv1alpha1.Savings, rate Rate, now Moment) *torporv1alpha1.Savings {
	before := RateOf(stored)
	if before == rate {
		return stored
	}
	next := &torporv1alpha1.Savings{}
	if stored != nil {
		next = stored.DeepCopy()
	}
	if !before.IsZero() {
		next.MachineSeconds = add(next.MachineSeconds, before.Machines, now.Counted)
		next.CPUMilliSeconds = add(next.CPUMilliSeconds, before.CPUMillis, now.Counted)
		next.MemoryKiBSeconds = add(next.MemoryKiBSeconds, before.MemoryKiB, now.Counted)
		countWeeks(next, before, now)
	}
	next.Since, next.Machines, next.CPUMillis, next.MemoryKiB = nil, 0, 0, 0
	if !rate.IsZero() {
		next.Since = new(metav1.NewTime(now.At.Truncate(time.Second)))
		next.Machines, next.CPUMillis, next.MemoryKiB = rate.Machines, rate.CPUMillis, rate.MemoryKiB
	}
	return next
}

// countWeeks adds an ended stop to those of the last MaxWeeks weeks in which it lies.
func countWeeks(s *torporv1alpha1.Savings, rate Rate, now Moment) {
	from := now.At.Add(-now.Counted)
	for monday := WeekOf(now.At); now.At.Sub(monday) < MaxWeeks*week && monday.Add(week).After(from); monday = monday.Add(-week) {
		part := overlap(from, now.At, monday)
		if part == 0 {
			continue
		}
		one := findWeek(s, monday)
		one.MachineSeconds = add(one.MachineSeconds, rate.Machines, part)
		one.CPUMilliSeconds = add(one.CPUMilliSeconds, rate.CPUMillis, part)
		one.MemoryKiBSeconds = add(one.MemoryKiBSeconds, rate.MemoryKiB, part)
	}
	slices.SortFunc(s.Weeks, func(a, b torporv1alpha1.WeekSavings) int { return b.Begin.Compare(a.Begin.Time) })
	s.Weeks = s.Weeks[:min(len(s.Weeks), MaxWeeks)]
}

// findWeek returns the week that begins on this Monday. It adds the week if it does not exist.
func findWeek(s *torporv1alpha1.Savings, monday time.Time) *torporv1alpha1.WeekSavings {
	for i := range s.Weeks {
		if s.Weeks[i].Begin.Time.Equal(monday) {
			return &s.Weeks[i]
		}
	}
	s.Weeks = append(s.Weeks, torporv1alpha1.WeekSavings{Begin: metav1.NewTime(monday)})
	return &s.Weeks[len(s.Weeks)-1]
}

// overlap returns how much of a period lies in the week that begins on this Monday.
func overlap(from, to, monday time.Time) time.Duration {
	if from.Before(monday) {
		from = monday
	}
	if end := monday.Add(week); to.After(end) {
		to = end
	}
	return max(0, to.Sub(from))
}

// WeekOf returns the start of the week that contains a time: Monday, 00:00 UTC.
func WeekOf(at time.Time) time.Time {
	at = at.UTC()
	day := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
	return day.AddDate(0, 0, -(int(day.Weekday())+int(week/(24*time.Hour))-1)%int(week/(24*time.Hour)))
}

// TotalsOfWeek returns what an object has saved in the week that begins on this Monday. A stop in effect is included
// until now.
func TotalsOfWeek(s *torporv1alpha1.Savings, monday, now time.Time) Totals {
	if s == nil {
		return Totals{}
	}
	in := &torporv1alpha1.Savings{Since: s.Since, Machines: s.Machines, CPUMillis: s.CPUMillis, MemoryKiB: s.MemoryKiB}
	for i := range s.Weeks {
		if one := &s.Weeks[i]; one.Begin.Time.Equal(monday) {
			in.MachineSeconds, in.CPUMilliSeconds, in.MemoryKiBSeconds = one.MachineSeconds, one.CPUMilliSeconds, one.MemoryKiBSeconds
		}
	}
	return total(in, overlap(now.Add(-Elapsed(s, now)), now, monday))
}

// TotalsUntil returns what an object has saved in all. A stop in effect is included until now.
func TotalsUntil(s *torporv1alpha1.Savings, now time.Time) Totals { return total(s, Elapsed(s, now)) }

// Elapsed returns the duration of the stop in effect by the wall clock; zero if none exists, or if the clock is
// behind.
func Elapsed(s *torporv1alpha1.Savings, now time.Time) time.Duration {
	if s == nil || s.Since == nil {
		return 0
	}
	return min(max(0, now.Sub(s.Since.Time)), maxStop)
}

// add returns a sum plus a rate times a duration. It saturates instead of overflowing, so that no value of an
// annotation can decrease a sum.
func add(sum, rate int64, counted time.Duration) int64 {
	more := math.Round(float64(max(0, rate)) * max(0, counted).Seconds())
	if more >= float64(math.MaxInt64-max(0, sum)) {
		return math.MaxInt64
	}
	return max(0, sum) + int64(more)
}

// Totals are the values of the counters of an object.
type Totals struct{ MachineSeconds, CPUSeconds, MemoryByteSeconds float64 }

// total returns the counters of an object whose stop in effect has lasted for the duration.
func total(s *torporv1alpha1.Savings, counted time.Duration) Totals {
	if s == nil {
		return Totals{}
	}
	of := func(sum, rate int64) float64 { return float64(max(0, sum)) + float64(max(0, rate))*counted.Seconds() }
	rate := RateOf(s)
	return Totals{
		MachineSeconds:    of(s.MachineSeconds, rate.Machines),
		CPUSeconds:        of(s.CPUMilliSeconds, rate.CPUMillis) / millisPerCore,
		MemoryByteSeconds: of(s.MemoryKiBSeconds, rate.MemoryKiB) * bytesPerKiB,
	}
}

// Plus returns the sum of the totals of two objects.
func (t Totals) Plus(o Totals) Totals {
	return Totals{t.MachineSeconds + o.MachineSeconds, t.CPUSeconds + o.CPUSeconds, t.MemoryByteSeconds + o.MemoryByteSeconds}
}

func (t Totals) max(o Totals) Totals {
	return Totals{max(t.MachineSeconds, o.MachineSeconds), max(t.CPUSeconds, o.CPUSeconds), max(t.MemoryByteSeconds, o.MemoryByteSeconds)}
}

// ReadAnnotation returns the savings in the annotation of an object; nil if there are none, or if they cannot be read.
func ReadAnnotation(annotations map[string]string) *torporv1alpha1.Savings {
	text := annotations[torporv1alpha1.SavingsAnnotation]
	if text == "" || len(text) > maxAnnotation {
		return nil
	}
	var s torporv1alpha1.Savings
	if json.Unmarshal([]byte(text), &s) != nil {
		return nil
	}
	return &s
}

// FormatAnnotation returns the value of the annotation that holds the savings.
func FormatAnnotation(s *torporv1alpha1.Savings) (string, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return "", fmt.Errorf("encode the savings: %w", err)
	}
	return string(data), nil
}
