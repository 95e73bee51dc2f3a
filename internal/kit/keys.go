// SPDX-License-Identifier: Apache-2.0

package kit

// Keys of structured log lines.
const (
	KeyRule     = "rule"
	KeyMachines = "machines"
	KeyRequests = "requests"
)
