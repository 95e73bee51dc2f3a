// SPDX-License-Identifier: Apache-2.0

package controller

const (
	// stopEnded tells that a stop ended by itself, at the time of the annotation torpor.dev/until.
	stopEnded = "StopEnded"
	// stopOverdue tells that a stop goes on after the time of the annotation torpor.dev/until, and why.
	stopOverdue = "StopOverdue"
	// switchOver tells that a replica took the place of a primary that was well.
	switchOver = "SwitchOver"
	// failOver tells that a replica took the place of a primary that had failed.
	failOver = "FailOver"
)
