// SPDX-License-Identifier: Apache-2.0

// Package machinepool decides when a cluster's MachineSets are read for a MachinePool, and how they are changed. A
// hibernating cluster is never dialled; its MachineSets are read once after each resume. MachineSets are neither
// created nor deleted. The package is pure; its package controller observes and acts.
//
// Reading order: observed.go → decide.go → machinesets.go (a pool's MachineSets) → changes.go (their changes).
package machinepool
