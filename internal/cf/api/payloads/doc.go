// SPDX-License-Identifier: Apache-2.0

// Package payloads parses and validates client requests. Unknown fields are ignored, because a client may be newer than
// this API. Most fields ignore null.
package payloads
