// SPDX-License-Identifier: Apache-2.0

// Package e2e tests hibernation with real processes: the manager's own binary with a real hub, a simulated cloud,
// and clusters whose machines really stop and start. The manager acts only over HTTP, so the tests run proxies
// between the manager and its servers, which record every request, count connections, and kill the manager at any
// request.
//
// Reading order: environment_test.go (hub, cloud, manager, clusters) → manager_requests_test.go (the effects of a
// request, and where it is seen) → power_states_test.go (hibernate and resume, and their guarantees) →
// killed_test.go.
package e2e
