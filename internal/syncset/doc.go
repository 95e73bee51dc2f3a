// SPDX-License-Identifier: Apache-2.0

// Package syncset decides what is applied to a cluster of the SyncSets and SelectorSyncSets that are its, when, and what is deleted
// again. A cluster that hibernates is never dialled; it is caught up with once after each resume.
//
// Reading order: observed.go → contents.go (what a set has) → decide.go → statuses.go (what became of it).
package syncset
