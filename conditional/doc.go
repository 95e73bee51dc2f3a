// SPDX-License-Identifier: Apache-2.0

// Package conditional runs a controller only while the API that it watches is served: it waits for a CRD that is missing, starts
// within milliseconds after its installation, stops when it is gone, and starts anew when it comes back, while the manager and
// everything else in it goes on. [NewControllerManagedBy] does that for one controller, [Setup] for what a function sets up; that
// function runs once per start, and the manager that it receives is a scope, whose cache, client, API reader, REST mapper and field
// indexes end with the stop. Afterwards they answer [ErrScopeClosed], so take nothing from the manager outside.
//
// What happens in between is a [Group]; [Group.Status], [Group.Wait], [Group.Checker], metrics, [Events] and a page of the metrics server
// tell where it is. An error of a runnable, or a panic in setup, is retried with a back-off and never ends the manager.
//
// A condition need not be an API: see [Object], [Func], [Signal] and [Allowed], [FirstServed] and [On], and [All], [Any] and [Not]. When
// the API server cannot tell (outage, 5xx, no right to look) a condition is [Unknown], and whatever runs keeps running. docs/manual.md has the rest.
package conditional
