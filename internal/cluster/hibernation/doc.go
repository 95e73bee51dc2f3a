// SPDX-License-Identifier: Apache-2.0

// Package hibernation decides whether a cluster is stopped or started, and what its status reports.
// The package is pure: Decide maps an Observed to a Plan, and the order of Rules documents the decision.
// Package controller observes, acts and reports.
package hibernation
