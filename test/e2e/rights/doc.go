// SPDX-License-Identifier: Apache-2.0

// Package rights asks a real API server what each role of config grants, tries the paths to more, and keeps the tables
// of docs/security-model.md. It has tests only.
package rights
