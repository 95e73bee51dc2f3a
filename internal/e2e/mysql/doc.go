// SPDX-License-Identifier: Apache-2.0

// Package mysql holds the long runs of clustering, with real MySQL servers, a real API server and a manager that is a
// process of its own: a workload checker (make soak-mysql) and measurements (make bench-mysql).
package mysql
