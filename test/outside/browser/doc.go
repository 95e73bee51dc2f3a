// SPDX-License-Identifier: Apache-2.0

// Package browser tests the page of torpor manager with a real Chromium. It is a separate module, so that no
// other package depends on the driver of the browser.
package browser
