// SPDX-License-Identifier: Apache-2.0

// Package reconcile runs a pass over one object: get, observe, decide, act, report, one status write, then events and
// metrics. It is the only place that reads the object of a pass and writes its status.
package reconcile
