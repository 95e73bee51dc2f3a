// SPDX-License-Identifier: Apache-2.0

// Package arch tests the repository itself: which package may import which, how things are named, how long functions get,
// how few exceptions from linters there are, and that what documents name exists. It covers all modules.
package arch
