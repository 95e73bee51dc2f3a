// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestPaces(t *testing.T) {
	type look = func(since, at time.Time) time.Duration
	for name, row := range map[string]struct {
		pace   look
		waited time.Duration
		want   time.Duration
	}{
		"a clock that goes backwards is no hurry":      {pace, -time.Hour, minPace},
		"at first the cloud is looked at often":        {pace, 0, minPace},
		"until a tenth of the wait is more":            {pace, minPace * paceShare, minPace},
		"then a tenth of the wait":                     {pace, time.Minute, 6 * time.Second},
		"up to a bound":                                {pace, maxPace * paceShare, maxPace},
		"that stays":                                   {pace, 24 * time.Hour, maxPace},
		"a waking cluster is looked at all the time":   {fastPace, 0, fastInterval},
		"while there is hope":                          {fastPace, patience - 1, fastInterval},
		"and then as seldom as its cloud":              {fastPace, patience, maxPace},
		"a resume that begins in a moment is as close": {fastPace, -time.Second, fastInterval},
		"aftercare is close at first":                  {carePace, 0, minCare},
		"then a share of the time":                     {carePace, careShare * 10 * time.Second, 10 * time.Second},
		"and loose at the end":                         {carePace, aftercareWindow, maxCare},
	} {
		t.Run(name, func(t *testing.T) {
			if got := row.pace(worldTime(), worldTime().Add(row.waited)); got != row.want {
				t.Errorf("expected %s after %s, found %s", row.want, row.waited, got)
			}
		})
	}
}

func TestFewNames(t *testing.T) {
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("n%04d", 999-i))
	}
	for name, row := range map[string]struct {
		names []string
		want  string
	}{
		"none":               {nil, ""},
		"one":                {[]string{"a"}, "a"},
		"sorted":             {[]string{"b", "a"}, "a, b"},
		"as many as fit":     {strings.Split("e d c b a", " "), "a, b, c, d, e"},
		"one more than fits": {strings.Split("f e d c b a", " "), "a, b, c, d, e and 1 more"},
		"a crowd":            {many, "n0000, n0001, n0002, n0003, n0004 and 995 more"},
	} {
		t.Run(name, func(t *testing.T) {
			before := strings.Join(row.names, " ")
			if got := few(row.names); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
			if strings.Join(row.names, " ") != before {
				t.Error("expected the names to stay in their order")
			}
		})
	}
}
