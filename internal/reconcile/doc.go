// SPDX-License-Identifier: Apache-2.0

// Package reconcile holds the one idiom for each thing that every reconciler does: get, patch once, report, requeue.
package reconcile
