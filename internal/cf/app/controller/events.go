// SPDX-License-Identifier: Apache-2.0

package controller

// Reasons of events.
const (
	// revisionBegan names on the app the revision that began, why, and who asked for it.
	revisionBegan = "RevisionBegan"
	// processCreated names on the app a process that it got because it lacked one of that type.
	processCreated = "ProcessCreated"
)
