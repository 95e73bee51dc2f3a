// SPDX-License-Identifier: Apache-2.0

package controller

const (
	// revisionBegan tells on the app which revision began, why, and who asked for it.
	revisionBegan = "RevisionBegan"
	// drainTimedOut tells on the process that Pods of an older revision are left and the current one starts beside them.
	drainTimedOut = "DrainTimedOut"
	// processCreated tells on the app that it got a process of a type that it lacked.
	processCreated = "ProcessCreated"
)
