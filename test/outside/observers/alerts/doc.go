// SPDX-License-Identifier: Apache-2.0

// Package alerts tests the rules of config/monitoring with Prometheus' own engine and rules, as promtool does.
package alerts
