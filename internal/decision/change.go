// SPDX-License-Identifier: Apache-2.0

package decision

// Request describes the requester, the reason and the end of a stop, or the requester of a start. Unknown parts are
// empty.
type Request struct{ Requester, Reason, Until string }

// Change describes a requested stop or start of an object, for the log.
type Change struct {
	// What is the message of the log line, such as "Stop requested".
	What string
	// Part is the part of the object that is stopped or started; empty for the whole object.
	Part string
	Request
}
