// SPDX-License-Identifier: Apache-2.0

// Package hostile runs the real programs against malicious callers and servers: no other user is affected,
// and memory stays within bounds.
package hostile
