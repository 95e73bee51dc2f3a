// SPDX-License-Identifier: Apache-2.0

// Package process decides what happens to the LRPs of one process of an app. It is pure: Decide turns what was Observed of
// a process into a Plan, and BuildLRP builds the LRP that a plan asks for. Package controller beside it observes and acts.
package process
