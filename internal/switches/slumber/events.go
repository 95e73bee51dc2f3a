// SPDX-License-Identifier: Apache-2.0

package slumber

const (
	// EventSleepBegins reports that a Slumber begins to stop its waves.
	EventSleepBegins = "SleepBegins"
	// EventWakeBegins reports that a Slumber begins to start its waves.
	EventWakeBegins = "WakeBegins"
	// EventAllAsleep reports that all members of a Slumber are asleep, except those that users skipped or resumed.
	EventAllAsleep = "AllAsleep"
	// EventAllAwake reports that all members of a Slumber are awake, except those with another stop.
	EventAllAwake = "AllAwake"
	// EventWindowMissed reports a window that was observed later than spec.startingDeadlineSeconds allows.
	EventWindowMissed = "WindowMissed"
	// EventWaveTimedOut reports a wave that did not reach its state within spec.spreadOver plus spec.waveTimeout.
	EventWaveTimedOut = "WaveTimedOut"
	// EventInvalidSchedule reports an invalid spec.
	EventInvalidSchedule = "InvalidSchedule"
)
