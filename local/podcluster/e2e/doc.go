// SPDX-License-Identifier: Apache-2.0

// Package e2e plays with a cluster of real pods from outside, with the programs that a person has, and looks at what
// is left on the machine afterwards. It imports nothing of the cluster, so building it takes no time.
package e2e
