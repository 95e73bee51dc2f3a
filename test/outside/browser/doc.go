// SPDX-License-Identifier: Apache-2.0

// Package browser tests the page of torpor manager and the site of the documentation with a real Chromium. It is a separate module, so that no
// other package depends on the driver of the browser.
package browser
