// SPDX-License-Identifier: Apache-2.0

// Package machinepool decides when a cluster is looked at for the MachineSets of a MachinePool, and what is changed of them. A cluster that
// hibernates is never dialled; it is caught up with once after each resume. MachineSets are neither made nor deleted.
//
// Reading order: observed.go → decide.go → machinesets.go (which MachineSets are a pool's) → changes.go (what becomes of them).
package machinepool
