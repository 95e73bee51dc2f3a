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
		"a clock that goes backwards gives the shortest interval":                  {cloudInterval, -time.Hour, minMachineInterval},
		"the cloud is polled often at first":                                       {cloudInterval, 0, minMachineInterval},
		"the cloud is polled every second after a wait of 20 s":                    {cloudInterval, 20 * time.Second, time.Second},
		"the cloud is polled every three seconds after a wait of a minute":         {cloudInterval, time.Minute, 3 * time.Second},
		"the interval of polling the cloud is bounded":                             {cloudInterval, maxCloudInterval * cloudIntervalShare, maxCloudInterval},
		"the interval of polling the cloud stays at its bound":                     {cloudInterval, 24 * time.Hour, maxCloudInterval},
		"a resuming cluster is probed often at first":                              {probeInterval, 0, minProbeInterval},
		"a resuming cluster is probed often until the end of the window":           {probeInterval, frequentProbeWindow - 1, minProbeInterval},
		"a long resume is probed at the longest interval of the cloud":             {probeInterval, frequentProbeWindow, maxCloudInterval},
		"a resume that begins in a moment is probed often":                         {probeInterval, -time.Second, minProbeInterval},
		"a resumed cluster is probed often at first":                               {aftercareInterval, 0, minAftercareInterval},
		"a resumed cluster is probed after a quarter of the time since its resume": {aftercareInterval, aftercareShare * 10 * time.Second, 10 * time.Second},
		"the interval of probing a resumed cluster is bounded":                     {aftercareInterval, aftercareWindow, maxAftercareInterval},
	} {
		t.Run(name, func(t *testing.T) {
			if got := row.interval(modelTime(), modelTime().Add(row.waited)); got != row.want {
				t.Errorf("expected %s after %s, found %s", row.want, row.waited, got)
			}
		})
	}
}
