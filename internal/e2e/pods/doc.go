// SPDX-License-Identifier: Apache-2.0

// Package pods plays the stories of MySQL clusters and of apps with real pods, from outside: it runs the programs that
// people have, and it is a client of the database, of the CF API and of the apps. It needs root, a Debian machine and
// minutes, so only make e2e-pods runs it.
//
// Reading order: world_test.go (what there is) → clients_test.go (who writes meanwhile) → story_test.go (the stories, in
// the order in which they are played on one cluster); for apps cfworld_test.go → cfprobe_test.go (who asks meanwhile) →
// cfstory_test.go, cfcrash_test.go.
package pods
