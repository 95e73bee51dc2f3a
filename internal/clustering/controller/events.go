// SPDX-License-Identifier: Apache-2.0

package controller

const (
	// stopEnded tells that a stop ended by itself, at the time of the annotation torpor.dev/until.
	stopEnded = "StopEnded"
	// switchOver tells that a replica took the place of a primary that was well.
	switchOver = "SwitchOver"
	// failOver tells that a replica took the place of a primary that had failed.
	failOver = "FailOver"
)
