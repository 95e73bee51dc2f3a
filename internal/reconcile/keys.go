// SPDX-License-Identifier: Apache-2.0

package reconcile

// Keys of structured log lines.
const (
	KeyRule     = "rule"
	KeyMachines = "machines"
	KeyRequests = "requests"
)
