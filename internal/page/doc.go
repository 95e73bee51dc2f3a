// SPDX-License-Identifier: Apache-2.0

// Package page serves a page with everything that can be stopped: its state, since when, by whom, why, until when, what is stuck,
// and how many machine-hours are saved. It shows what `kubectl torpor status` shows, live, to who may list it, and stops and starts as whoever is logged in.
package page
