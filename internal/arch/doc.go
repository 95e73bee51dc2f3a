// SPDX-License-Identifier: Apache-2.0

// Package arch holds the laws of the house as tests: who may import whom, how things are named, how large they get,
// and that what the documents say exists. It covers the three modules of the repository.
package arch
