// SPDX-License-Identifier: Apache-2.0

// Package api is the CF v3 API for the cf client. A request is authenticated by package authorization, goes from the table of
// routes in package handlers over payloads to repositories, which act with the caller's own Kubernetes rights, and comes back
// through package presenter. Errors of all layers are those of package apierrors.
package api
