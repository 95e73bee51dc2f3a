// SPDX-License-Identifier: Apache-2.0

// Package conditional runs a controller only while the API that it watches is served. It waits for a missing CRD,
// starts the controller within milliseconds after the CRD is installed, stops it when the CRD is deleted, and starts it
// again when the CRD is reinstalled. The manager and its other runnables keep running. [NewManager] creates the
// manager. [NewControllerManagedBy] adds one controller, and [Setup] adds all controllers and other runnables that a
// function sets up. The function runs once per start. It receives a scope, which is a manager with its own cache,
// client, API reader, REST mapper and field indexes. These end when the group stops. Reads and writes then return
// [ErrScopeClosed]. Code in a group may also use the client, cache and API reader of the outer manager. A call with the
// group's context is then served by the group's current scope.
//
// A [Group] represents these controllers from their setup until their removal. Its state is available through
// [Group.Status], [Group.Wait], [Group.Checker], metrics, [Events] and a page of the metrics server. An error of a
// runnable, or a panic in setup, is retried with a back-off and never stops the manager.
//
// A condition need not depend on a served API: see [Allowed] and [FirstServed], the combinations [All], [Any] and
// [Not], and package extra. If the state cannot be determined, for example because of an outage, a 5xx or a missing
// permission, a condition is [Unknown], and a running group keeps running. See docs/manual.md for the details.
package conditional
