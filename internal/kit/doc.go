// SPDX-License-Identifier: Apache-2.0

// Package kit holds the one idiom for each thing that every reconciler does: get, patch once, report, requeue.
package kit
