// SPDX-License-Identifier: Apache-2.0

package reconcile

// Keys of structured log lines.
const (
	KeyMachines = "machines"
	KeyRequests = "requests"
)
