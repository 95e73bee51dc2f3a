// SPDX-License-Identifier: Apache-2.0

package slumber

const (
	// EventSleepBegins reports that a Slumber begins to stop its waves.
	EventSleepBegins = "SleepBegins"
	// EventWakeBegins reports that a Slumber begins to start its waves.
	EventWakeBegins = "WakeBegins"
	// EventAllAsleep reports that all that a Slumber selects is asleep.
	EventAllAsleep = "AllAsleep"
	// EventAllAwake reports that all that a Slumber selects is awake.
	EventAllAwake = "AllAwake"
	// EventWindowMissed reports a window that was noticed later than spec.startingDeadlineSeconds allows.
	EventWindowMissed = "WindowMissed"
	// EventWaveTimedOut reports a wave that was not as it should be in time.
	EventWaveTimedOut = "WaveTimedOut"
	// EventInvalidSchedule reports a spec that makes no sense.
	EventInvalidSchedule = "InvalidSchedule"
)
