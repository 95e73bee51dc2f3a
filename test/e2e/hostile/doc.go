// SPDX-License-Identifier: Apache-2.0

// Package hostile runs the real programs with malicious callers and servers, and verifies that other users are not
// affected and that memory is bounded.
package hostile
