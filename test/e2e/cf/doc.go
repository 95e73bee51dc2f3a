// SPDX-License-Identifier: Apache-2.0

// Package cf tests stories of the cf client with all real parts: a real control plane with hollow nodes, and
// the programs torpor manager and torpor cf-api, each with the rights of config/rbac and no more. It contains
// only tests.
package cf
