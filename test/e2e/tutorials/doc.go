// SPDX-License-Identifier: Apache-2.0

// Package tutorials runs the commands in docs/tutorials, docs/page.md and docs/local.md as a reader would, and
// compares their output. Like a reader, the test has the repository and a terminal.
package tutorials
