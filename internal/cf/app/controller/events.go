// SPDX-License-Identifier: Apache-2.0

package controller

// These are the reasons of events.
const (
	// revisionBegan names on the app the revision that began, its cause and the requester.
	revisionBegan = "RevisionBegan"
	// processCreated names on the app a process that was created because the app lacked one of that type.
	processCreated = "ProcessCreated"
)
