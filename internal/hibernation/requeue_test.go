// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestRequeueIntervals(t *testing.T) {
	type look = func(since, at time.Time) time.Duration
	for name, row := range map[string]struct {
		pace   look
		waited time.Duration
		want   time.Duration
	}{
		"a clock that goes backwards is no hurry":      {cloudInterval, -time.Hour, minCloudInterval},
		"at first the cloud is looked at often":        {cloudInterval, 0, minCloudInterval},
		"until a tenth of the wait is more":            {cloudInterval, minCloudInterval * cloudIntervalShare, minCloudInterval},
		"then a tenth of the wait":                     {cloudInterval, time.Minute, 6 * time.Second},
		"up to a bound":                                {cloudInterval, maxCloudInterval * cloudIntervalShare, maxCloudInterval},
		"that stays":                                   {cloudInterval, 24 * time.Hour, maxCloudInterval},
		"a waking cluster is looked at all the time":   {probeInterval, 0, minProbeInterval},
		"while there is hope":                          {probeInterval, frequentProbeWindow - 1, minProbeInterval},
		"and then as seldom as its cloud":              {probeInterval, frequentProbeWindow, maxCloudInterval},
		"a resume that begins in a moment is as close": {probeInterval, -time.Second, minProbeInterval},
		"aftercare is close at first":                  {aftercareInterval, 0, minAftercareInterval},
		"then a share of the time":                     {aftercareInterval, aftercareShare * 10 * time.Second, 10 * time.Second},
		"and loose at the end":                         {aftercareInterval, aftercareWindow, maxAftercareInterval},
	} {
		t.Run(name, func(t *testing.T) {
			if got := row.pace(modelTime(), modelTime().Add(row.waited)); got != row.want {
				t.Errorf("expected %s after %s, found %s", row.want, row.waited, got)
			}
		})
	}
}

func TestJoinNames(t *testing.T) {
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
			if got := joinNames(row.names); got != row.want {
				t.Errorf("expected %q, found %q", row.want, got)
			}
			if strings.Join(row.names, " ") != before {
				t.Error("expected the names to stay in their order")
			}
		})
	}
}
