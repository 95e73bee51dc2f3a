// SPDX-License-Identifier: Apache-2.0

package controller

// drainTimedOut is the reason of the event that Pods of an older revision are left and the current one starts beside them.
const drainTimedOut = "DrainTimedOut"
