// SPDX-License-Identifier: Apache-2.0

// Package slumber decides which objects a Slumber stops and starts: when, according to its windows and holidays, and
// in which order, according to its waves. The package has no side effects.
package slumber
