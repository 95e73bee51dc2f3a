// SPDX-License-Identifier: Apache-2.0

// Package page serves a page that lists all stoppable objects: state, since when, by whom, why, until when, errors, and
// the machine-hours saved. It shows the rows of `kubectl torpor status`, live, to users who may list them. It stops and
// starts objects with the rights of the user.
package page
