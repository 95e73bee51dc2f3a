// SPDX-License-Identifier: Apache-2.0

// Package mysql contains the long tests of clustering, with real MySQL servers, a real API server and a separate
// manager process: a workload checker (make soak-mysql) and measurements (make bench-mysql).
package mysql
