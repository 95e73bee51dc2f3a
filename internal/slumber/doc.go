// SPDX-License-Identifier: Apache-2.0

// Package slumber decides what a Slumber stops and starts: when, by its windows and holidays, and in which order, by its waves. It is pure.
package slumber
