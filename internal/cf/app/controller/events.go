// SPDX-License-Identifier: Apache-2.0

package controller

// These are the reasons of events.
const (
	// revisionBegan reports on the app that a revision other than its first began, with the cause and requester.
	revisionBegan = "RevisionBegan"
	// processCreated reports on the app that a missing process was created.
	processCreated = "ProcessCreated"
)
