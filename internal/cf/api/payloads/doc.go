// SPDX-License-Identifier: Apache-2.0

// Package payloads parses and validates client requests. Unknown fields and null are ignored, because a client may be
// newer than this API.
package payloads
