// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"
)

// eager starts as soon as it may, n times, and returns how long it waited before each of them.
func eager(p *StartLimiter, now time.Time, n int) (waited []time.Duration) {
	for range n {
		pause := max(0, p.NextStart().Sub(now))
		now = now.Add(pause)
		p.NoteStart(now)
		waited = append(waited, pause)
	}
	return waited
}

func TestPace(t *testing.T) {
	const s, m = time.Second, time.Minute
	grows := wait.Backoff{Duration: 10 * s, Factor: 2, Steps: 100, Cap: m}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		pace *StartLimiter
		want []time.Duration
	}{
		"five are free, then the pauses grow": {New(5, grows), []time.Duration{0, 0, 0, 0, 0, 10 * s, 20 * s, 40 * s, m, m}},
		"one is free":                         {New(1, grows), []time.Duration{0, 10 * s, 20 * s, 40 * s, m}},
		"the pause does not grow":             {New(2, wait.Backoff{Duration: s}), []time.Duration{0, 0, s, s, s}},
		"a long run forgives": {func() *StartLimiter {
			p := New(2, grows)
			eager(p, now, 7)
			p.NoteRun(10 * m)
			return p
		}(), []time.Duration{0, 0, 10 * s, 20 * s}},
		"a shorter run does not": {func() *StartLimiter {
			p := New(2, grows)
			eager(p, now.Add(-time.Hour), 3)
			p.NoteRun(10*m - 1)
			return p
		}(), []time.Duration{0, 40 * s, m}},
		"a pause that has passed is none": {func() *StartLimiter {
			p := New(1, grows)
			eager(p, now.Add(-time.Hour), 1)
			return p
		}(), []time.Duration{0, 20 * s}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, eager(c.pace, now, len(c.want))); diff != "" {
				t.Errorf("waited (-want +got):\n%s", diff)
			}
		})
	}
}
