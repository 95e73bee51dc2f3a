// SPDX-License-Identifier: Apache-2.0

// Package pods plays the stories of MySQL clusters with real pods, from outside: it runs the programs that people have,
// and it is a client of the database. It needs root, a Debian machine and minutes, so only make e2e-pods runs it.
//
// Reading order: world_test.go (what there is) → clients_test.go (who writes meanwhile) → story_test.go (the stories, in
// the order in which they are played on one cluster).
package pods
