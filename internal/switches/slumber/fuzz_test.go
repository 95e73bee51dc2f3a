// SPDX-License-Identifier: Apache-2.0

package slumber

import (
	"testing"
	"time"

	torporv1alpha1 "github.com/torpor-dev/torpor/api/torpor/v1alpha1"
)

// FuzzParseSchedule parses schedules of users, and reads the phase of each that is valid.
func FuzzParseSchedule(f *testing.F) {
	for _, s := range [][5]string{
		{"Europe/Berlin", "0 20 * * 1-5", "0 7 * * 1-5", "--12-24", "--12-26"},
		{"", "*/5 * * * *", "1-59/7 * * * *", "2026-12-24", ""},
		{"UTC", "0 0 31 2 *", "0 0 30 2 *", "--02-29", ""},
		{"Local", "@daily", "0 0 * * FRI-MON", "2026-13-01", "x"},
		{"../../etc/passwd", "", "", "", ""},
		{"Australia/Lord_Howe", "30 2 * * *", "0 3 * * *", "--01-01", "--12-31"},
	} {
		f.Add(s[0], s[1], s[2], s[3], s[4])
	}
	at := time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, zone, sleep, wake, first, last string) {
		spec := torporv1alpha1.SlumberSpec{TimeZone: zone, Windows: []torporv1alpha1.SlumberWindow{{Sleep: sleep, Wake: wake}}}
		if first != "" {
			spec.Holidays = []torporv1alpha1.Holiday{{Name: "day", First: first, Last: last}}
		}
		schedule, err := ParseSchedule(spec)
		if err != nil {
			return
		}
		phase := schedule.PhaseAt(at)
		if phase.Since.After(at) || !phase.Until.IsZero() && !phase.Until.After(at) {
			t.Errorf("%+v: expected a phase around %s, found %+v", spec, at, phase)
		}
	})
}
