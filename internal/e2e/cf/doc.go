// SPDX-License-Identifier: Apache-2.0

// Package cf holds the stories of the cf client with all real parts: a real control plane with hollow nodes, the binary's
// torpor manager and torpor cf-api, each with the rights of config/rbac and no more. There are only tests.
package cf
