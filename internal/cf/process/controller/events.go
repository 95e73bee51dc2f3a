// SPDX-License-Identifier: Apache-2.0

package controller

const (
	// drainTimedOut says on the process that Pods of an older revision are left and the current one starts beside them.
	drainTimedOut = "DrainTimedOut"
)
