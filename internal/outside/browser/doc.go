// SPDX-License-Identifier: Apache-2.0

// Package browser looks at the page of torpor manager with a real Chromium. It is a module of its own, so that nothing else needs what drives one.
package browser
