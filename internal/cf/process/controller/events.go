// SPDX-License-Identifier: Apache-2.0

package controller

const (
	// drainTimedOut is recorded on the process if Pods of an older or stopped revision remain after the drain timeout.
	// If the app is started, the current revision starts next to them.
	drainTimedOut = "DrainTimedOut"
)
