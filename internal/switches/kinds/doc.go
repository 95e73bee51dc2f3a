// SPDX-License-Identifier: Apache-2.0

// Package kinds contains the kinds that can be stopped, one file each. The definition of a kind has its names, its
// parts and their switches, when an object is asleep or awake, what admission records, and optionally how a stop is
// planned and what it saves. The package has no side effects.
//
// Reading order: definition.go (what each kind defines) → options.go (what it may define) → registry.go (the list) →
// cluster_deployment.go and its neighbours (the kinds) → switched.go (the common part of the kinds whose controllers
// do not know Torpor) → row.go, attention.go (what the fronts show).
package kinds
