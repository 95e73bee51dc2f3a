// SPDX-License-Identifier: Apache-2.0

// Package process decides the next action for the LRPs of one process of an app. It is pure: Decide returns the Plan
// for an Observed process, and BuildLRP returns the LRP of a plan. Package controller observes and acts.
package process
