// SPDX-License-Identifier: Apache-2.0

// Package hostile runs the real programs against callers and servers that wish them ill: nobody else may notice, and memory
// stays within bounds.
package hostile
