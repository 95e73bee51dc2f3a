// SPDX-License-Identifier: Apache-2.0

package slumber

import (
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"
)

// countingCron counts its calls.
type countingCron struct {
	cron.Schedule
	asked int
}

// Next implements cron.Schedule.
func (c *countingCron) Next(t time.Time) time.Time {
	c.asked++
	return c.Schedule.Next(t)
}

// TestTimeOfEveryMinuteIsFoundWithFewCalls has a schedule with an occurrence in each minute. The next and the last
// occurrence are found with a few calls of the cron parser, so that a Slumber with twenty such windows does not keep
// a worker busy.
func TestTimeOfEveryMinuteIsFoundWithFewCalls(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"* * * * *", "0 20 * * *", "0 0 29 2 *"} {
		m, err := parseMoment(text, wallClock{zone})
		if err != nil {
			t.Fatal(err)
		}
		counting := &countingCron{Schedule: m.cron}
		m.cron = counting
		const looks, most = 2000, 40
		// During these days, the clocks go back and later forward.
		at := time.Date(2026, 10, 24, 0, 0, 30, 0, time.UTC)
		for range looks {
			at = at.Add(2 * time.Hour)
			if last, next := m.last(at), m.next(at); last.After(at) || !next.After(at) {
				t.Fatalf("%s at %s: found %s and %s", text, at, last, next)
			}
		}
		if counting.asked > looks*most {
			t.Errorf("%s: expected at most %d times of a schedule for each look, found %d", text, most, counting.asked/looks)
		}
	}
}
