// SPDX-License-Identifier: Apache-2.0

// Package tutorials runs what docs/tutorials tells its readers to type, and compares what is printed. A reader has the repository and a
// terminal; so has the test.
package tutorials
