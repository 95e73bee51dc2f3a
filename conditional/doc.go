// SPDX-License-Identifier: Apache-2.0

// Package conditional runs a controller only while the API that it watches is served. It waits for a missing CRD,
// starts the controller within milliseconds after the CRD is installed, stops it when the CRD is deleted, and starts it
// again when the CRD is reinstalled. The manager and everything else in it keep running. [NewManager] creates the
// manager. [NewControllerManagedBy] adds one controller, and [Setup] adds everything that a function sets up. The
// function runs once per start. It receives a manager that is a scope: the scope's cache, client, API reader, REST
// mapper and field indexes end with the stop, and return [ErrScopeClosed] after that. Code in a group may also use the
// client, cache and API reader of the outer manager: with the group's context, they use those of the group's current
// scope.
//
// A [Group] represents the controllers between setup and removal. Its state is available through [Group.Status],
// [Group.Wait], [Group.Checker], metrics, [Events] and a page of the metrics server. An error of a runnable, or a panic
// in setup, is retried with a back-off and never stops the manager.
//
// A condition need not be about an API: see [Allowed] and [FirstServed], the combinations [All], [Any] and [Not], and
// package extra. If the API server gives no information (outage, 5xx, missing permission), a condition is [Unknown],
// and a running group keeps running. See docs/manual.md for the details.
package conditional
