// SPDX-License-Identifier: Apache-2.0

// Package tutorials runs the commands of docs/tutorials, docs/page.md and docs/local.md as a reader types
// them, and compares their output. A reader has the repository and a terminal, and so does the test.
package tutorials
