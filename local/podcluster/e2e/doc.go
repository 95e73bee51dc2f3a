// SPDX-License-Identifier: Apache-2.0

// Package e2e tests a cluster of real pods with the programs that a user runs, and checks that nothing is left on
// the machine afterwards. It imports no other package of this repository, so that it builds quickly.
package e2e
