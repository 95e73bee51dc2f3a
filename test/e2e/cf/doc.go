// SPDX-License-Identifier: Apache-2.0

// Package cf tests workflows of the cf client with real components: a real control plane with hollow nodes, and the
// programs torpor manager and torpor cf-api, each with only the permissions in config/rbac. It contains only tests.
package cf
