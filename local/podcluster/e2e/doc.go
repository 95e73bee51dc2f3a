// SPDX-License-Identifier: Apache-2.0

// Package e2e tests a cluster of real pods from outside, with the programs that a user runs, and checks what is left on
// the machine afterwards. It imports no other package of this repository, so that it builds quickly.
package e2e
