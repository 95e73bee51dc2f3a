// SPDX-License-Identifier: Apache-2.0

// Package process decides what happens to the LRPs of one process of an app. It is pure: Decide returns the Plan for an
// Observed process, and BuildLRP builds the LRP of a plan. Its package controller observes and acts.
package process
