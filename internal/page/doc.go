// SPDX-License-Identifier: Apache-2.0

// Package page serves a page that lists stoppable objects, with their state, the requester, the reason, the start and
// end of their stop, errors, and the saved machine-hours. It shows the rows of `kubectl torpor status`, live, to users
// who may list the objects. It stops and starts objects with the rights of the user.
package page
