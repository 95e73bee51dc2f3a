// SPDX-License-Identifier: Apache-2.0

// Package syncset decides which SyncSets and SelectorSyncSets are applied to a cluster, when they are applied, and
// which objects are deleted from the cluster. A hibernating cluster is never dialled; its sets are applied once after
// each resume. The package is pure; its package controller observes and acts.
//
// Reading order: observed.go → contents.go (the content of a set) → decide.go → statuses.go (the results).
package syncset
