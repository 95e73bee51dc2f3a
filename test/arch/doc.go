// SPDX-License-Identifier: Apache-2.0

// Package arch tests the source of all modules of the repository: imports between packages, names, the length of
// functions, the number of exceptions from linters, and references in documents.
package arch
