// SPDX-License-Identifier: Apache-2.0

// Package rights asks a real API server for the permissions of each role of config, attempts to exceed them, and keeps
// the tables of docs/security-model.md up to date. It contains only tests.
package rights
