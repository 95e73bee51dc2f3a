// SPDX-License-Identifier: Apache-2.0

package hibernation

import (
	"testing"
	"time"
)

func TestRequeueIntervals(t *testing.T) {
	type intervalFunc = func(since, at time.Time) time.Duration
	for name, row := range map[string]struct {
		interval intervalFunc
		waited   time.Duration
		want     time.Duration
	}{
		"a clock that goes backwards is no hurry":                          {cloudInterval, -time.Hour, minMachineInterval},
		"at first the cloud is looked at often":                            {cloudInterval, 0, minMachineInterval},
		"machines of 20 s are told within a second":                        {cloudInterval, 20 * time.Second, time.Second},
		"the cloud is looked at after a twentieth of the wait":             {cloudInterval, time.Minute, 3 * time.Second},
		"the interval of looking at the cloud has a bound":                 {cloudInterval, maxCloudInterval * cloudIntervalShare, maxCloudInterval},
		"the bound of looking at the cloud stays":                          {cloudInterval, 24 * time.Hour, maxCloudInterval},
		"a resuming cluster is probed often at first":                      {probeInterval, 0, minProbeInterval},
		"a resuming cluster is probed often until the end of the window":   {probeInterval, frequentProbeWindow - 1, minProbeInterval},
		"a cluster that resumes for long is probed as seldom as its cloud": {probeInterval, frequentProbeWindow, maxCloudInterval},
		"a resume that begins in a moment is probed often":                 {probeInterval, -time.Second, minProbeInterval},
		"aftercare is frequent at first":                                   {aftercareInterval, 0, minAftercareInterval},
		"aftercare looks again after a share of the time":                  {aftercareInterval, aftercareShare * 10 * time.Second, 10 * time.Second},
		"aftercare is seldom at the end":                                   {aftercareInterval, aftercareWindow, maxAftercareInterval},
	} {
		t.Run(name, func(t *testing.T) {
			if got := row.interval(modelTime(), modelTime().Add(row.waited)); got != row.want {
				t.Errorf("expected %s after %s, found %s", row.want, row.waited, got)
			}
		})
	}
}
