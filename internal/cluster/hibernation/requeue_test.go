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
		"clock that moves backwards causes the shortest interval":                                {cloudInterval, -time.Hour, minMachineInterval},
		"cloud is polled often at first":                                                         {cloudInterval, 0, minMachineInterval},
		"cloud is polled every second after a wait of 20 s":                                      {cloudInterval, 20 * time.Second, time.Second},
		"cloud is polled every three seconds after a wait of a minute":                           {cloudInterval, time.Minute, 3 * time.Second},
		"interval of polling the cloud is limited":                                               {cloudInterval, maxCloudInterval * cloudIntervalShare, maxCloudInterval},
		"interval of polling the cloud stays at its limit":                                       {cloudInterval, 24 * time.Hour, maxCloudInterval},
		"resuming cluster is probed often at first":                                              {probeInterval, 0, minProbeInterval},
		"resuming cluster is probed often until frequentProbeWindow has elapsed":                 {probeInterval, frequentProbeWindow - 1, minProbeInterval},
		"resuming cluster is probed every maxCloudInterval once frequentProbeWindow has elapsed": {probeInterval, frequentProbeWindow, maxCloudInterval},
		"cluster is probed often in the second before the recorded start of its resume":          {probeInterval, -time.Second, minProbeInterval},
		"resumed cluster is probed often at first":                                               {aftercareInterval, 0, minAftercareInterval},
		"interval of probing a resumed cluster grows with the time since its resume":             {aftercareInterval, aftercareShare * 10 * time.Second, 10 * time.Second},
		"interval of probing a resumed cluster is limited":                                       {aftercareInterval, aftercareWindow, maxAftercareInterval},
	} {
		t.Run(name, func(t *testing.T) {
			if got := row.interval(modelTime(), modelTime().Add(row.waited)); got != row.want {
				t.Errorf("expected %s after %s, found %s", row.want, row.waited, got)
			}
		})
	}
}
