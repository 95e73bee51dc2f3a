// SPDX-License-Identifier: Apache-2.0

// Package machinepool decides when the MachineSets of a cluster are read for a MachinePool, and what is changed in
// them. A cluster that hibernates is never dialled; its MachineSets are read once after each resume. MachineSets are
// neither created nor deleted.
// It is pure; its package controller observes and acts.
//
// Reading order: observed.go → decide.go → machinesets.go (the MachineSets of a pool) → changes.go (their changes).
package machinepool
