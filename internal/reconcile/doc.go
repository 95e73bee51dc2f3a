// SPDX-License-Identifier: Apache-2.0

// Package reconcile runs reconcile passes. A pass reads one object, observes, decides, acts, reports and writes the
// status once. Then it emits events and updates metrics. Only this package reads the object of a pass and writes its
// status.
package reconcile
