// SPDX-License-Identifier: Apache-2.0

// Package kinds defines the kinds that can be stopped, one file each. A definition contains the names of the kind,
// its parts and their switches. It decides when an object is asleep or awake and what admission records, and
// optionally how a stop is planned and what it saves. The package has no side effects.
//
// Reading order: definition.go (what each kind defines) → options.go (what it may define) → registry.go (the list) →
// cluster_deployment.go and its neighbours (the kinds) → switched.go (the common part of the kinds whose controllers
// are unaware of Torpor) → row.go, attention.go (the contents of tables in commands and on the page).
package kinds
