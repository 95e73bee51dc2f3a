// SPDX-License-Identifier: Apache-2.0

// Package hibernation decides what happens to a cluster that should hibernate or run.
// It is pure: Decide turns what was Observed into a Plan, and the order of its Rules is the documentation.
// Package controller beside it observes, acts and reports.
package hibernation
