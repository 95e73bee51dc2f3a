// SPDX-License-Identifier: Apache-2.0

// Package hibernation decides what happens to a cluster that somebody wants hibernating or running.
// It is pure: Decide turns what was Observed into a Plan, and the order of its rules is the documentation.
// Package controller beside it observes, acts and reports.
package hibernation
