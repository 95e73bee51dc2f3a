// SPDX-License-Identifier: Apache-2.0

// Package e2e plays whole stories with real processes: the manager's own binary against a real hub, a simulated cloud
// and clusters whose machines really go away and come back. Everything that the manager does leaves it over HTTP, so
// the tests stand in the wire: they see every act, count connections, and kill the manager at any of them.
//
// Reading order: world_test.go (what there is) → act_test.go (what a request does) → wire_test.go (who stands in
// between) → story_test.go (to sleep and back) → one file per promise.
package e2e
